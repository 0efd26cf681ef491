package revstore.junit;

import io.etcd.jetcd.Client;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** An etcd, or a fork of one. */
public final class Server implements AutoCloseable {
    private final String endpoint;
    private final Control control;
    /** Null for a fork. */
    private final ServerProcess process;
    private final Runnable close;

    private Server(String endpoint, Control control, ServerProcess process, Runnable close) {
        this.endpoint = endpoint;
        this.control = control;
        this.process = process;
        this.close = close;
    }

    /** Starts a server. */
    public static Server start(Options options) {
        List<String> flags = new ArrayList<>(List.of(
                "--listen-client-urls=http://127.0.0.1:0",
                "--advertise-client-urls=http://127.0.0.1:0",
                "--listen-peer-urls=http://127.0.0.1:0"));
        flags.addAll(options.controlFlags());
        ServerProcess process = ServerProcess.start(Program.REVSTORE, options, flags);
        String[] urls = process.ready().split(" ");
        return new Server(urls[0], urls.length > 1 ? new Control(urls[1]) : null, process, process::stop);
    }

    /** Returns the URL for etcd clients. */
    public String endpoint() {
        return endpoint;
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

    /** Returns a client, which the caller closes. */
    public Client client() {
        return Client.builder().endpoints(endpoint).build();
    }

    /** Starts an independent server with the same history, within milliseconds. Its clock is its own. */
    public Server fork() {
        Control.Fork fork = control().fork();
        return new Server(fork.endpoint(), new Control(fork.control()), null, () -> control.drop(fork.id()));
    }

    /** Writes the store, the journal and the log to files of a new directory, and returns it. */
    public Path save(String name) throws IOException {
        return Artifacts.save(name, process == null ? "" : process.output(), control);
    }

    @Override
    public void close() {
        close.run();
    }
}
