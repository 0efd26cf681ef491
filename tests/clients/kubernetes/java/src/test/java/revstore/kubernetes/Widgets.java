package revstore.kubernetes;

import static revstore.kubernetes.Server.LIMIT_SECONDS;
import static revstore.kubernetes.Server.NAMESPACE;

import io.fabric8.kubernetes.api.model.KubernetesResourceList;
import io.fabric8.kubernetes.api.model.Namespaced;
import io.fabric8.kubernetes.api.model.apiextensions.v1.CustomResourceDefinition;
import io.fabric8.kubernetes.client.CustomResource;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.model.annotation.Group;
import io.fabric8.kubernetes.model.annotation.Version;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A custom resource. */
final class Widgets {
    private Widgets() {}

    private static final String DEFINITION = """
            apiVersion: apiextensions.k8s.io/v1
            kind: CustomResourceDefinition
            metadata: {name: widgets.example.com}
            spec:
              group: example.com
              scope: Namespaced
              names: {plural: widgets, singular: widget, kind: Widget}
              versions:
              - name: v1
                served: true
                storage: true
                subresources:
                  status: {}
                  scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
                schema:
                  openAPIV3Schema:
                    type: object
                    properties:
                      spec:
                        type: object
                        properties:
                          size: {type: integer, minimum: 1, default: 3}
                          replicas: {type: integer}
                      status: {type: object, properties: {replicas: {type: integer}}}
            """;

    public static final class WidgetSpec {
        public Integer size;
        public Integer replicas;
    }

    public static final class WidgetStatus {
        public Integer replicas;
    }

    @Group("example.com")
    @Version("v1")
    public static final class Widget extends CustomResource<WidgetSpec, WidgetStatus> implements Namespaced {
        private static final long serialVersionUID = 1;
    }

    /** Creates the definition, waits until it is established, and returns the objects. */
    static NonNamespaceOperation<Widget, KubernetesResourceList<Widget>, Resource<Widget>> define(
            KubernetesClient client) {
        var yaml = new ByteArrayInputStream(DEFINITION.getBytes(StandardCharsets.UTF_8));
        var definition = client.apiextensions().v1().customResourceDefinitions().load(yaml);
        definition.create();
        definition.waitUntilCondition(Widgets::isEstablished, LIMIT_SECONDS, TimeUnit.SECONDS);
        return client.resources(Widget.class).inNamespace(NAMESPACE);
    }

    static Widget widget(String name) {
        Widget widget = new Widget();
        widget.getMetadata().setName(name);
        widget.getMetadata().setLabels(Map.of("app", "test"));
        widget.setSpec(new WidgetSpec());
        widget.getSpec().replicas = 1;
        return widget;
    }

    private static boolean isEstablished(CustomResourceDefinition definition) {
        return definition != null && definition.getStatus() != null
                && definition.getStatus().getConditions().stream().anyMatch(condition ->
                        condition.getType().equals("Established") && condition.getStatus().equals("True"));
    }
}
