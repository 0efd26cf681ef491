package revstore.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.platform.engine.discovery.DiscoverySelectors.selectMethod;

import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledIfSystemProperty;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;
import org.junit.platform.launcher.listeners.SummaryGeneratingListener;

/** Servers that are not found or do not start, and what tests leave behind. */
class StartTest {
    @TempDir
    private Path directory;

    private Path script(String name, String text) throws IOException {
        Path path = directory.resolve(name);
        Files.createDirectories(path.getParent());
        Files.writeString(path, "#!/bin/sh\n" + text + "\n");
        assertTrue(path.toFile().setExecutable(true));
        return path;
    }

    private static void refused(Options options, String... parts) {
        var error = assertThrows(StartException.class, () -> Server.start(options).close());
        for (String part : parts) {
            assertTrue(error.getMessage().contains(part), error.getMessage());
        }
    }

    @Test
    void aMissingBinaryIsAnErrorThatNamesAllPlaces() {
        var error = assertThrows(StartException.class, () -> Program.REVSTORE.find(null, Map.of("PATH", "/nowhere:/else")));
        for (String part : List.of("Options.binary", "REVSTORE_BIN", "archive", "PATH (/nowhere, /else)")) {
            assertTrue(error.getMessage().contains(part), error.getMessage());
        }
        error = assertThrows(StartException.class, () -> Program.REVSTORE.find(null, Map.of("REVSTORE_BIN", "/etc/passwd")));
        assertEquals("REVSTORE_BIN: /etc/passwd is not an executable file", error.getMessage());
        refused(Options.DEFAULT.withBinary(Path.of("/none")), "Options.binary: /none is not an executable file");
    }

    @Test
    void theExplicitPathIsFirstThenTheVariableThenPath() throws IOException {
        Path explicit = script("explicit", "");
        Path variable = script("variable", "");
        Path inPath = script("path/revstore", "");
        String path = "/nowhere" + File.pathSeparator + inPath.getParent();
        assertEquals(explicit, Program.REVSTORE.find(explicit, Map.of("REVSTORE_BIN", variable.toString(), "PATH", path)));
        assertEquals(variable, Program.REVSTORE.find(null, Map.of("REVSTORE_BIN", variable.toString(), "PATH", path)));
        assertEquals(inPath, Program.REVSTORE.find(null, Map.of("PATH", path)));
    }

    @Test
    void aStartThatFailsShowsTheOutput() {
        refused(Options.DEFAULT.withFlags("--nonsense"), "ended before it was ready", "status 2", "-nonsense");
    }

    @Test
    void aServerThatIsNeverReadyIsKilled() throws IOException {
        Path path = script("never", "echo started; sleep 20");
        refused(Options.DEFAULT.withBinary(path).withStartTimeout(Duration.ofMillis(300)), "was not ready within 300 ms", "started");
    }

    @Test
    void theServerEndsWithAProcessThatIsKilled() throws Exception {
        String java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        var killed = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), Killed.class.getName()).start();
        killed.waitFor(60, TimeUnit.SECONDS);
        long pid = Long.parseLong(new String(killed.getInputStream().readAllBytes()).trim());
        ProcessHandle.of(pid).ifPresent(server -> server.onExit().orTimeout(60, TimeUnit.SECONDS).join());
    }

    /** A program that starts a server, prints its process id and kills itself. */
    static final class Killed {
        public static void main(String[] arguments) {
            Server.start(Options.DEFAULT);
            ProcessHandle self = ProcessHandle.current();
            System.out.println(self.children().findFirst().orElseThrow().pid());
            System.out.flush();
            Runtime.getRuntime().halt(1);
        }
    }

    @Test
    void aFailedTestLeavesItsFiles() throws IOException {
        System.setProperty("revstore.artifacts", directory.toString());
        System.setProperty("revstore.failing", "true");
        try {
            var request = LauncherDiscoveryRequestBuilder.request().selectors(selectMethod(Failing.class, "fails", Server.class.getName())).build();
            var listener = new SummaryGeneratingListener();
            LauncherFactory.create().execute(request, listener);
            assertEquals(1, listener.getSummary().getTestsFailedCount());
        } finally {
            System.clearProperty("revstore.artifacts");
            System.clearProperty("revstore.failing");
        }
        try (var saved = Files.list(directory)) {
            Path files = saved.findFirst().orElseThrow();
            assertTrue(files.getFileName().toString().startsWith("Failing.fails-"), files.toString());
            assertTrue(Files.readString(files.resolve("server.log")).contains("ready to serve"));
            assertTrue(Files.readString(files.resolve("journal.jsonl")).contains("KV/Put"));
            assertTrue(Files.readString(files.resolve("dump.txt")).contains("{\"put\":{\"key\":\"key\",\"value\":\"v\""));
        }
    }

    /** A test that fails, for the one above. */
    @ExtendWith(RevstoreExtension.class)
    static class Failing {
        @Test
        @EnabledIfSystemProperty(named = "revstore.failing", matches = "true")
        void fails(Server server) throws Exception {
            var body = HttpRequest.BodyPublishers.ofString("{\"key\": \"a2V5\", \"value\": \"dg==\"}");
            var put = HttpRequest.newBuilder(URI.create(server.endpoint() + "/v3/kv/put")).POST(body).build();
            HttpClient.newHttpClient().send(put, HttpResponse.BodyHandlers.discarding());
            throw new AssertionError("as expected");
        }
    }

    @Test
    void durationsAreThoseOfGo() {
        Map<String, Duration> texts = Map.of(
                "1m30s", Duration.ofSeconds(90), "1h0m0.5s", Duration.ofMillis(3_600_500), "250ms", Duration.ofMillis(250), "2µs", Duration.ofNanos(2_000), "0s", Duration.ZERO);
        texts.forEach((text, duration) -> assertEquals(duration, Durations.fromText(text)));
        assertEquals("1500000000ns", Durations.toText(Duration.ofMillis(1500)));
    }
}
