package revstore.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** A running server. It ends with this process, whose pipe is its standard input. */
final class ServerProcess {
    /** The number of lines of a server's output that are kept, the last ones. */
    private static final int OUTPUT_LINES = 2_000;

    /** The time for which a server may finish after its standard input has ended. Then it is killed. */
    private static final Duration STOP_TIMEOUT = Duration.ofSeconds(5);

    /** The time to wait for the rest of the output of a server that has ended. A child of it may hold the pipes. */
    private static final Duration OUTPUT_TIMEOUT = Duration.ofSeconds(1);

    private final Process process;
    private final Deque<String> lines = new ArrayDeque<>();
    private final CompletableFuture<String> ready = new CompletableFuture<>();
    private final List<Thread> readers;

    private ServerProcess(Process process, String name) {
        this.process = process;
        readers = List.of(
                reader(process.getInputStream(), name + " ready "), reader(process.getErrorStream(), null));
    }

    /** Starts a server and waits for its ready line. */
    static ServerProcess start(Program program, Options options, List<String> flags) {
        Path path = program.find(options.binary(), System.getenv());
        List<String> command = new ArrayList<>(List.of(path.toString(), "--exit-with-stdin"));
        command.addAll(flags);
        command.addAll(options.flags());
        ServerProcess server;
        try {
            server = new ServerProcess(new ProcessBuilder(command).start(), program.name());
        } catch (IOException error) {
            throw new StartException(path + ": " + error.getMessage(), error);
        }
        try {
            server.ready.get(options.startTimeout().toNanos(), TimeUnit.NANOSECONDS);
            return server;
        } catch (TimeoutException error) {
            server.kill();
            throw server.failed(path + " was not ready within " + options.startTimeout().toMillis() + " ms");
        } catch (ExecutionException error) {
            throw server.failed(path + " ended before it was ready, with status " + server.status());
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw server.failed("interrupted");
        }
    }

    /** Returns the text after "NAME ready ". */
    String ready() {
        return ready.join();
    }

    /** Returns the last lines that the server has written. */
    String output() {
        synchronized (lines) {
            return String.join("", lines);
        }
    }

    /** Returns the exit status, after the end. */
    private int status() {
        stop();
        return process.exitValue();
    }

    /** Stops the server and waits for its end. */
    void stop() {
        try {
            process.getOutputStream().close();
            if (!process.waitFor(STOP_TIMEOUT.toMillis(), TimeUnit.MILLISECONDS)) {
                kill();
            }
            process.waitFor();
            for (Thread reader : readers) {
                reader.join(OUTPUT_TIMEOUT.toMillis());
            }
        } catch (IOException error) {
            kill();
        } catch (InterruptedException error) {
            kill();
            Thread.currentThread().interrupt();
        }
    }

    private StartException failed(String reason) {
        stop();
        return new StartException(reason + ":\n" + output());
    }

    private void kill() {
        // The method of Process would close the streams, and what was not read yet would be lost.
        process.toHandle().destroyForcibly();
    }

    private Thread reader(InputStream input, String prefix) {
        Thread reader = new Thread(() -> read(input, prefix), "revstore-output");
        reader.setDaemon(true);
        reader.start();
        return reader;
    }

    /** Keeps the lines of a stream, and completes {@code ready} with the first one that has a prefix. */
    private void read(InputStream input, String prefix) {
        try (var text = new BufferedReader(new InputStreamReader(input, StandardCharsets.UTF_8))) {
            for (String line = text.readLine(); line != null; line = text.readLine()) {
                if (prefix != null && line.startsWith(prefix) && ready.complete(line.substring(prefix.length()))) {
                    continue;
                }
                synchronized (lines) {
                    lines.add(line + "\n");
                    if (lines.size() > OUTPUT_LINES) {
                        lines.remove();
                    }
                }
            }
        } catch (IOException error) {
            // The pipe of a killed process ends in this way, too.
        }
        if (prefix != null) {
            ready.completeExceptionally(new IOException("the output has ended"));
        }
    }
}
