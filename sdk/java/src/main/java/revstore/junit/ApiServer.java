package revstore.junit;

import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** A Kubernetes API server. */
public final class ApiServer implements AutoCloseable {
    private final ServerProcess process;

    private final Control control;
    private final String url;
    private final Path kubeconfig;

    private ApiServer(ServerProcess process, boolean hasControl) {
        this.process = process;
        // The URL, the path, which may have blanks, and the URL of control.
        String ready = process.ready();
        int end = hasControl ? ready.lastIndexOf(' ') : ready.length();
        url = ready.substring(0, ready.indexOf(' '));
        kubeconfig = Path.of(ready.substring(url.length() + 1, end));
        control = hasControl ? new Control(ready.substring(end + 1)) : null;
    }

    /** Starts a server. */
    public static ApiServer start(Options options) {
        List<String> flags = new ArrayList<>(List.of("--secure-port=0", "--listen-http=127.0.0.1:0"));
        flags.addAll(options.controlFlags());
        return new ApiServer(ServerProcess.start(Program.API_SERVER, options, flags), options.control());
    }

    /** Returns the URL of plain HTTP, whose requests are those of an administrator. */
    public String url() {
        return url;
    }

    /** Returns a kubeconfig with the credentials of an administrator. The file ends with the server. */
    public Path kubeconfig() {
        return kubeconfig;
    }

    /**
     * Returns the control of the server.
     *
     * @throws IllegalStateException the server was started without control
     */
    public Control control() {
        if (control == null) {
            throw new IllegalStateException("the server was started without control");
        }
        return control;
    }

    /** Writes the store, the journal and the log to files of a new directory, and returns it. */
    public Path save(String name) throws IOException {
        return Artifacts.save(name, process.output(), control);
    }

    @Override
    public void close() {
        process.stop();
    }
}
