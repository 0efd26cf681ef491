package revstore.clients;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.ClientBuilder;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** A process of the server under test, with its own port and data directory. */
final class Server implements AutoCloseable {
    /** Text in the log line of a server that accepts requests (FL-13). */
    private static final String READY = "ready to serve client requests";

    /** The maximum number of starts. A start fails if another process takes the chosen port first. */
    private static final int PORT_ATTEMPTS = 5;

    private final Process process;
    private final int port;
    private final Path data;
    private final StringBuffer log = new StringBuffer();
    private final CompletableFuture<Boolean> ready = new CompletableFuture<>();

    private Server(int port, String... flags) throws IOException {
        this.port = port;
        data = Files.createTempDirectory("revstore-clients-java-");
        List<String> command = new ArrayList<>();
        command.add("../serve");
        command.add(Integer.toString(port));
        command.add(data.resolve("data").toString());
        command.addAll(List.of(flags));
        process = new ProcessBuilder(command).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        Thread reader = new Thread(this::readLog, "log of the server");
        reader.setDaemon(true);
        reader.start();
    }

    /** Starts a server and waits until it accepts requests. */
    static Server start(String... flags) throws Exception {
        for (int attempt = 1; ; attempt++) {
            Server server = new Server(freePort(), flags);
            if (Await.done(server.ready)) {
                return server;
            }
            server.close();
            boolean taken = server.log.indexOf("address already in use") >= 0;
            if (!taken || attempt == PORT_ATTEMPTS) {
                throw new IOException("the server did not start:\n" + server.log);
            }
        }
    }

    String endpoint() {
        return "http://127.0.0.1:" + port;
    }

    ClientBuilder builder() {
        return Client.builder().endpoints(endpoint());
    }

    Client client() {
        return builder().build();
    }

    @Override
    public void close() throws Exception {
        process.destroyForcibly();
        if (!process.waitFor(Await.LIMIT_SECONDS, TimeUnit.SECONDS)) {
            throw new IOException("the server does not exit");
        }
        try (var paths = Files.walk(data)) {
            for (Path path : paths.sorted(Comparator.reverseOrder()).toList()) {
                Files.delete(path);
            }
        }
    }

    private void readLog() {
        try (BufferedReader lines = new BufferedReader(
                new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                log.append(line).append('\n');
                if (line.contains(READY)) {
                    ready.complete(true);
                }
            }
        } catch (IOException closed) {
            log.append(closed).append('\n');
        }
        ready.complete(false);
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        }
    }
}
