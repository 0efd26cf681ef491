package revstore.kubernetes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.kubernetes.Server.NAMESPACE;
import static revstore.kubernetes.Server.configMap;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.api.model.ConfigMapList;
import io.fabric8.kubernetes.api.model.DeletionPropagation;
import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientException;
import io.fabric8.kubernetes.client.dsl.MixedOperation;
import io.fabric8.kubernetes.client.dsl.NonNamespaceOperation;
import io.fabric8.kubernetes.client.dsl.Resource;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** Built-in kinds: all verbs, patches, subresources, and typed errors. */
class ObjectsTest {
    private Server server;
    private KubernetesClient client;
    private NonNamespaceOperation<ConfigMap, ConfigMapList, Resource<ConfigMap>> maps;

    @BeforeEach
    void start() throws Exception {
        server = new Server();
        client = server.client();
        maps = client.configMaps().inNamespace(NAMESPACE);
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.close();
    }

    private static KubernetesClientException fails(int code, String reason, Executable request) {
        KubernetesClientException error = assertThrows(KubernetesClientException.class, request);
        assertEquals(code, error.getCode(), error.getMessage());
        assertEquals(reason, error.getStatus().getReason());
        return error;
    }

    @Test
    void objectsAndTheirErrors() {
        ConfigMap created = maps.resource(configMap("a")).create();
        assertNotNull(created.getMetadata().getUid());
        fails(409, "AlreadyExists", () -> maps.resource(configMap("a")).create());
        maps.resource(configMap("dry")).dryRun(true).create();
        assertNull(maps.withName("dry").get());

        ConfigMap changed = new ConfigMapBuilder(created).addToData("color", "red").build();
        ConfigMap updated = maps.resource(changed).update();
        assertEquals("red", updated.getData().get("color"));
        fails(409, "Conflict", () -> maps.resource(changed).lockResourceVersion().update());
        ConfigMap edited = maps.withName("a")
                .edit(map -> new ConfigMapBuilder(map).addToData("size", "large").build());
        assertEquals("large", edited.getData().get("size"));

        var invalid = fails(422, "Invalid", () -> maps.resource(configMap("Not_A_Name")).create());
        assertEquals("metadata.name", invalid.getStatus().getDetails().getCauses().get(0).getField());
        assertNull(maps.withName("unknown").get());
        assertEquals(1, maps.withName("a").delete().size());
        assertTrue(maps.withName("a").delete().isEmpty());
        for (String name : List.of("x", "y")) {
            maps.resource(configMap(name)).create();
        }
        maps.withLabel("app", "test").withPropagationPolicy(DeletionPropagation.BACKGROUND).delete();
        assertTrue(maps.withLabel("app", "test").list().getItems().isEmpty());
    }

    @Test
    void pagesAndCompaction() throws Exception {
        for (int number = 0; number < 5; number++) {
            maps.resource(configMap("m" + number)).create();
        }
        List<String> names = new ArrayList<>();
        String token = null;
        do {
            ConfigMapList page = maps.withLabel("app", "test")
                    .list(new ListOptionsBuilder().withLimit(2L).withContinue(token).build());
            page.getItems().forEach(map -> names.add(map.getMetadata().getName()));
            token = page.getMetadata().getContinue();
        } while (token != null && !token.isEmpty());
        assertEquals(List.of("m0", "m1", "m2", "m3", "m4"), names);
        String first = maps.list(new ListOptionsBuilder().withLimit(2L).build()).getMetadata().getContinue();
        maps.resource(configMap("late")).create();
        server.compact();
        fails(410, "Expired", () -> maps.list(new ListOptionsBuilder().withLimit(2L).withContinue(first).build()));
    }

    private MixedOperation<Deployment, ?, ?> deployments() {
        return client.apps().deployments();
    }

    private static Deployment deployment() {
        return new DeploymentBuilder()
                .withNewMetadata().withName("d").withNamespace(NAMESPACE).endMetadata()
                .withNewSpec()
                .withNewSelector().addToMatchLabels("app", "d").endSelector()
                .withNewTemplate()
                .withNewMetadata().addToLabels("app", "d").endMetadata()
                .withNewSpec().addNewContainer().withName("c").withImage("image").endContainer().endSpec()
                .endTemplate()
                .endSpec()
                .build();
    }

    @Test
    void patches() {
        var deployment = client.apps().deployments().inNamespace(NAMESPACE).resource(deployment());
        deployment.create();
        deployment.patch(PatchContext.of(PatchType.STRATEGIC_MERGE),
                "{\"spec\":{\"template\":{\"spec\":{\"containers\":[{\"name\":\"c2\",\"image\":\"two\"}]}}}}");
        deployment.patch(PatchContext.of(PatchType.JSON),
                "[{\"op\":\"test\",\"path\":\"/spec/replicas\",\"value\":1},"
                        + "{\"op\":\"replace\",\"path\":\"/spec/replicas\",\"value\":3}]");
        Deployment patched = deployment.patch(PatchContext.of(PatchType.JSON_MERGE),
                "{\"metadata\":{\"labels\":{\"a\":\"b\"}}}");
        assertEquals("b", patched.getMetadata().getLabels().get("a"));
        assertEquals(3, patched.getSpec().getReplicas());
        assertEquals(2, patched.getSpec().getTemplate().getSpec().getContainers().size());
    }

    @Test
    void serverSideApply() {
        var one = maps.resource(configMap("a")).fieldManager("one").serverSideApply();
        assertEquals("blue", one.getData().get("color"));
        ConfigMap red = new ConfigMapBuilder(configMap("a")).addToData("color", "red").build();
        var conflict = fails(409, "Conflict", () -> maps.resource(red).fieldManager("two").serverSideApply());
        assertEquals(".data.color", conflict.getStatus().getDetails().getCauses().get(0).getField());
        var forced = maps.resource(red).fieldManager("two").forceConflicts().serverSideApply();
        assertEquals("red", forced.getData().get("color"));
    }

    @Test
    void subresources() {
        var deployment = client.apps().deployments().inNamespace(NAMESPACE).resource(deployment());
        deployment.create();
        Deployment updated = deployment.editStatus(found -> new DeploymentBuilder(found)
                .editSpec().withPaused(true).endSpec()
                .editOrNewStatus().withReplicas(2).endStatus()
                .build());
        assertEquals(2, updated.getStatus().getReplicas());
        assertNull(updated.getSpec().getPaused());
        var scale = deployment.scale();
        scale.getSpec().setReplicas(5);
        assertEquals(5, deployment.scale(scale).getSpec().getReplicas());
        assertEquals(5, deployment.get().getSpec().getReplicas());
        assertNotNull(deployments().inAnyNamespace().list());
    }
}
