package revstore.junit;

import java.io.IOException;
import java.nio.file.Path;
import java.util.List;

/** A Kubernetes API server. It has no control yet. */
public final class ApiServer implements AutoCloseable {
    private final ServerProcess process;

    private ApiServer(ServerProcess process) {
        this.process = process;
    }

    /** Starts a server. */
    public static ApiServer start(Options options) {
        return new ApiServer(ServerProcess.start(Program.API_SERVER, options, List.of("--secure-port=0", "--listen-http=127.0.0.1:0")));
    }

    /** Returns the URL of plain HTTP, whose requests are those of an administrator. */
    public String url() {
        return process.ready().split(" ", 2)[0];
    }

    /** Returns a kubeconfig with the credentials of an administrator. The file ends with the server. */
    public Path kubeconfig() {
        return Path.of(process.ready().split(" ", 2)[1]);
    }

    /** Writes the log to a file of a new directory, and returns it. */
    public Path save(String name) throws IOException {
        return Artifacts.save(name, process.output(), null);
    }

    @Override
    public void close() {
        process.stop();
    }
}
