package revstore.junit;

import java.io.IOException;
import java.nio.file.Path;
import java.util.function.Supplier;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Gives servers to tests as parameters.
 *
 * <p>A parameter of type {@link Server} or {@link ApiServer} is a server for one test, in {@code @BeforeAll} one for all tests of the
 * class. A {@link Forked} one is a fork of the server of the class. Servers stop with the test or the class. If the test has failed,
 * the store, the journal and the log are saved before.
 */
public final class RevstoreExtension implements ParameterResolver, AfterEachCallback {
    private static final Namespace NAMESPACE = Namespace.create(RevstoreExtension.class);

    private final Options options;

    /** Servers with {@link Options#DEFAULT}. */
    public RevstoreExtension() {
        this(Options.DEFAULT);
    }

    /** Servers with options, for {@code @RegisterExtension}. */
    public RevstoreExtension(Options options) {
        this.options = options;
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return type == Server.class || type == ApiServer.class;
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        if (parameter.getParameter().getType() == ApiServer.class) {
            return get(context, ApiServer.class, "api server", () -> ApiServer.start(options));
        }
        if (parameter.isAnnotated(Forked.class)) {
            return get(context, Server.class, "fork", () -> server(ofClass(context)).fork());
        }
        return server(context);
    }

    @Override
    public void afterEach(ExtensionContext context) throws IOException {
        if (context.getExecutionException().isEmpty()) {
            return;
        }
        String name = context.getRequiredTestClass().getSimpleName() + "." + context.getRequiredTestMethod().getName();
        for (String key : new String[] {"server", "fork", "api server"}) {
            Running<?> running = context.getStore(NAMESPACE).get(id(context, key), Running.class);
            if (running != null) {
                Path directory = running.save(name);
                context.publishReportEntry("revstore", directory.toString());
                System.err.println("revstore: the store, the journal and the log are in " + directory);
            }
        }
    }

    private Server server(ExtensionContext context) {
        return get(context, Server.class, "server", () -> Server.start(options));
    }

    /** Returns the context of the class, or of the class around it, that has a server; else that of the class. */
    private static ExtensionContext ofClass(ExtensionContext context) {
        ExtensionContext nearest = null;
        ExtensionContext outer = context;
        while (outer != null && outer.getTestClass().isPresent()) {
            if (outer.getTestMethod().isEmpty()) {
                nearest = nearest == null ? outer : nearest;
                if (outer.getStore(NAMESPACE).get(id(outer, "server")) != null) {
                    return outer;
                }
            }
            outer = outer.getParent().orElse(null);
        }
        return nearest == null ? context : nearest;
    }

    /** Returns the server of a context, which stops with it. */
    private static <T extends AutoCloseable> T get(ExtensionContext context, Class<T> type, String key, Supplier<T> start) {
        Running<?> running = context.getStore(NAMESPACE)
                .getOrComputeIfAbsent(id(context, key), ignored -> new Running<>(start.get()), Running.class);
        return type.cast(running.server);
    }

    /** Returns a key that only this context has: stores show those of the parents, too. */
    private static String id(ExtensionContext context, String key) {
        return context.getUniqueId() + " " + key;
    }

    /** A server that is closed with its context. */
    private record Running<T extends AutoCloseable>(T server) implements AutoCloseable {
        Path save(String name) throws IOException {
            return server instanceof Server store ? store.save(name) : ((ApiServer) server).save(name);
        }

        @Override
        public void close() throws Exception {
            server.close();
        }
    }
}
