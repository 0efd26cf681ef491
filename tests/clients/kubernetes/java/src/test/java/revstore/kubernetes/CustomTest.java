package revstore.kubernetes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.kubernetes.Server.NAMESPACE;

import io.fabric8.kubernetes.api.model.GenericKubernetesResource;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Custom resources: typed and generic objects, their status and scale. */
class CustomTest {
    @Test
    void customObjects() throws Exception {
        try (Server server = new Server(); KubernetesClient client = server.client()) {
            var widgets = Widgets.define(client);
            Widgets.Widget created = widgets.resource(Widgets.widget("a")).create();
            assertEquals(3, created.getSpec().size);
            KubernetesClientException error = assertThrows(KubernetesClientException.class, () ->
                    widgets.withName("a").edit(found -> {
                        found.getSpec().size = 0;
                        return found;
                    }));
            assertEquals(422, error.getCode());
            Widgets.Widget updated = widgets.withName("a").editStatus(found -> {
                found.setStatus(new Widgets.WidgetStatus());
                found.getStatus().replicas = 4;
                return found;
            });
            assertEquals(4, updated.getStatus().replicas);
            assertEquals(7, widgets.withName("a").scale(7).getSpec().replicas);

            var generic = client.genericKubernetesResources("example.com/v1", "Widget").inNamespace(NAMESPACE);
            GenericKubernetesResource found = generic.withName("a").get();
            assertEquals(Map.of("replicas", 7, "size", 3), found.get("spec"));
            generic.withName("a").delete();
            assertTrue(widgets.list().getItems().isEmpty());
        }
    }
}
