package revstore.behaviour;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * The driver of fabric8 for docs/client-behaviour.md: it executes the commands that it reads from standard input, and
 * prints what the client does. tests/clients/behaviour/README.md has both forms.
 */
public final class Driver {
    private static final String NAMESPACE = "default";
    private static final ObjectMapper JSON = new ObjectMapper();

    private final KubernetesClient client;
    private SharedIndexInformer<ConfigMap> informer;

    private Driver(KubernetesClient client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode command = JSON.readTree(line);
            int id = command.get("id").asInt();
            switch (text(command, "op")) {
                case "connect" -> {
                    Config config = Config.fromKubeconfig(new File(text(command, "kubeconfig")));
                    driver = new Driver(new KubernetesClientBuilder().withConfig(config).build());
                    tell(id, "returned", Map.of("value", ""));
                }
                case "informer" -> driver.start(id);
                case "store" -> tell(id, "returned", Map.of("objects", driver.contents()));
                default -> {
                    Driver current = driver;
                    var thread = new Thread(() -> current.execute(id, command));
                    thread.setDaemon(true);
                    thread.start();
                }
            }
        }
        System.exit(0);
    }

    private void start(int id) {
        informer = client.configMaps().inNamespace(NAMESPACE).runnableInformer(0);
        informer.addEventHandler(new ResourceEventHandler<>() {
            @Override
            public void onAdd(ConfigMap added) {
                item(id, "applied", added);
            }

            @Override
            public void onUpdate(ConfigMap before, ConfigMap after) {
                item(id, "applied", after);
            }

            @Override
            public void onDelete(ConfigMap deleted, boolean isUnknown) {
                item(id, "deleted", deleted);
            }
        });
        // Decides as the handler that an informer has by default.
        informer.exceptionHandler((isStarted, error) -> {
            tell(id, "failed", Map.of("text", String.valueOf(error.getMessage())));
            return isStarted && !(error instanceof WatcherException);
        });
        informer.start().thenRun(() -> tell(id, "synced", Map.of()));
        informer.stopped().whenComplete((done, error) -> tell(id, "ended", Map.of()));
    }

    private Map<String, String> contents() {
        Map<String, String> objects = new TreeMap<>();
        for (ConfigMap map : informer.getStore().list()) {
            objects.put(map.getMetadata().getName(), map.getData().get("value"));
        }
        return objects;
    }

    private void execute(int id, JsonNode command) {
        String key = text(command, "key");
        String value = text(command, "value");
        var maps = client.configMaps().inNamespace(NAMESPACE);
        try {
            String result = switch (text(command, "op")) {
                case "get" -> maps.withName(key).get().getData().get("value");
                case "create" -> maps.resource(new ConfigMapBuilder()
                                .withNewMetadata().withGenerateName(key).endMetadata()
                                .addToData("value", value).build())
                        .create().getMetadata().getName();
                case "update" -> {
                    if (command.get("helper").asBoolean()) {
                        maps.withName(key).edit(map -> new ConfigMapBuilder(map).addToData("value", value).build());
                    } else {
                        var changed = new ConfigMapBuilder(maps.withName(key).get()).addToData("value", value).build();
                        maps.resource(changed).update();
                    }
                    yield "";
                }
                default -> throw new IllegalArgumentException("unknown op");
            };
            tell(id, "returned", Map.of("value", result));
        } catch (Exception error) {
            tell(id, "failed", Map.of("text", String.valueOf(error.getMessage())));
        }
    }

    private static String text(JsonNode command, String field) {
        return command.path(field).asText("");
    }

    private static void item(int id, String kind, ConfigMap map) {
        String value = map.getData() == null ? "" : map.getData().getOrDefault("value", "");
        tell(id, "item", Map.of("kind", kind, "key", map.getMetadata().getName(), "value", value));
    }

    private static void tell(int id, String event, Map<String, ?> fields) {
        Map<String, Object> line = new LinkedHashMap<>(fields);
        line.put("id", id);
        line.put("event", event);
        try {
            String text = JSON.writeValueAsString(line);
            synchronized (JSON) {
                System.out.println(text);
            }
        } catch (JsonProcessingException error) {
            throw new IllegalStateException(error);
        }
    }
}
