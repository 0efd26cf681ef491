package revstore.kubernetes;

import io.fabric8.kubernetes.api.model.ConfigMap;
import io.fabric8.kubernetes.api.model.ConfigMapBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.http.BasicBuilder;
import io.fabric8.kubernetes.client.http.HttpRequest;
import io.fabric8.kubernetes.client.http.Interceptor;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;

/** A process of the server under test, on free ports. */
final class Server implements AutoCloseable {
    /** The time limit of a wait, after which the test fails. It is long enough for busy machines. */
    static final long LIMIT_SECONDS = 120;

    static final String NAMESPACE = "default";

    private final Process process;
    private final String etcd;
    private final File kubeconfig;

    Server(String... flags) throws IOException {
        List<String> command = new ArrayList<>();
        command.add(System.getenv("APISERVER"));
        command.add("--secure-port=0");
        command.add("--controllers=none");
        command.add("--etcd-listen-url=http://127.0.0.1:0");
        command.addAll(List.of(flags));
        process = new ProcessBuilder(command).start();
        BufferedReader log = lines(process.getErrorStream());
        etcd = log.lines()
                .filter(line -> line.contains("etcd's API on "))
                .map(line -> line.substring(line.indexOf("http://")).strip())
                .findFirst()
                .orElseThrow(() -> new IOException("the server did not start"));
        Thread reader = new Thread(() -> log.lines().forEach(line -> {}), "log of the server");
        reader.setDaemon(true);
        reader.start();
        String ready = lines(process.getInputStream()).readLine();
        if (ready == null || !ready.startsWith("revstore-apiserver ready ")) {
            throw new IOException("the server did not start: " + ready);
        }
        kubeconfig = new File(ready.split(" ")[3]);
    }

    private static BufferedReader lines(java.io.InputStream stream) {
        return new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
    }

    /** Returns the configuration of the kubeconfig that the server has written. */
    Config config() {
        return Config.fromKubeconfig(kubeconfig);
    }

    KubernetesClient client() {
        return new KubernetesClientBuilder().withConfig(config()).build();
    }

    /** Returns a client whose request URLs are changed by a function. */
    KubernetesClient client(UnaryOperator<String> change) {
        Interceptor interceptor = new Interceptor() {
            @Override
            public void before(BasicBuilder builder, HttpRequest request, RequestTags tags) {
                builder.uri(URI.create(change.apply(request.uri().toString())));
            }
        };
        return new KubernetesClientBuilder()
                .withConfig(config())
                .withHttpClientBuilderConsumer(http -> http.addOrReplaceInterceptor("change", interceptor))
                .build();
    }

    /** Removes the history of the store before the version of a list. */
    void compact() throws Exception {
        String version;
        try (KubernetesClient client = client()) {
            version = client.configMaps().inNamespace(NAMESPACE).list().getMetadata().getResourceVersion();
        }
        String body = "{\"revision\":\"" + version + "\",\"physical\":true}";
        var request = java.net.http.HttpRequest.newBuilder(URI.create(etcd + "/v3/kv/compaction"))
                .POST(java.net.http.HttpRequest.BodyPublishers.ofString(body))
                .build();
        var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (answer.statusCode() != 200) {
            throw new IOException(answer.body());
        }
    }

    @Override
    public void close() throws IOException, InterruptedException {
        process.destroyForcibly();
        if (!process.waitFor(LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IOException("the server does not exit");
        }
    }

    static ConfigMap configMap(String name) {
        return new ConfigMapBuilder()
                .withNewMetadata().withName(name).withNamespace(NAMESPACE).addToLabels("app", "test").endMetadata()
                .addToData("color", "blue")
                .build();
    }
}
