package revstore.kubernetes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.kubernetes.Server.LIMIT_SECONDS;
import static revstore.kubernetes.Server.configMap;

import io.fabric8.kubernetes.api.model.ListOptionsBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.Watcher;
import io.fabric8.kubernetes.client.WatcherException;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import org.junit.jupiter.api.Test;
import revstore.kubernetes.Widgets.Widget;

/** Watches over a WebSocket, and informers. */
class InformerTest {
    private static final class Seen implements ResourceEventHandler<Widget> {
        private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();

        @Override
        public void onAdd(Widget added) {
            lines.add("added " + added.getMetadata().getName());
        }

        @Override
        public void onUpdate(Widget before, Widget after) {
            if (!before.getMetadata().getResourceVersion().equals(after.getMetadata().getResourceVersion())) {
                lines.add("changed " + after.getMetadata().getName());
            }
        }

        @Override
        public void onDelete(Widget deleted, boolean isUnknown) {
            lines.add("deleted " + deleted.getMetadata().getName());
        }

        private void expect(String line) throws InterruptedException {
            assertEquals(line, lines.poll(LIMIT_SECONDS, TimeUnit.SECONDS));
        }
    }

    /** Writes an object and removes the history, so that a watch of a later resource cannot begin at version 1. */
    private static void compact(Server server, KubernetesClient client) throws Exception {
        client.configMaps().resource(configMap("a")).create();
        server.compact();
    }

    @Test
    void watchOverAWebSocket() throws Exception {
        try (Server server = new Server(); KubernetesClient client = server.client()) {
            compact(server, client);
            var widgets = Widgets.define(client);
            BlockingQueue<String> events = new LinkedBlockingQueue<>();
            CompletableFuture<WatcherException> closed = new CompletableFuture<>();
            Watcher<Widget> watcher = new Watcher<>() {
                @Override
                public void eventReceived(Action action, Widget widget) {
                    events.add(action + " " + widget.getMetadata().getName());
                }

                @Override
                public void onClose(WatcherException cause) {
                    closed.complete(cause);
                }
            };
            String version = widgets.list().getMetadata().getResourceVersion();
            try (var watch = widgets.watch(new ListOptionsBuilder().withResourceVersion(version).build(), watcher)) {
                widgets.resource(Widgets.widget("a")).create();
                widgets.withName("a").delete();
                assertEquals("ADDED a", events.poll(LIMIT_SECONDS, TimeUnit.SECONDS));
                assertEquals("DELETED a", events.poll(LIMIT_SECONDS, TimeUnit.SECONDS));
            }
            try (var watch = widgets.watch(new ListOptionsBuilder().withResourceVersion("1").build(), watcher)) {
                assertTrue(closed.get(LIMIT_SECONDS, TimeUnit.SECONDS).isHttpGone());
            }
        }
    }

    /** Watches end after a second, and one of them begins at a compacted version. */
    @Test
    void informerOverDisturbedWatches() throws Exception {
        AtomicBoolean isOutdated = new AtomicBoolean();
        CompletableFuture<String> outdated = new CompletableFuture<>();
        try (Server server = new Server();
                KubernetesClient client = server.client(url -> {
                    boolean isResumed = url.contains("/widgets?") && url.contains("watch=true");
                    if (isResumed && isOutdated.getAndSet(false)) {
                        outdated.complete(url);
                        return url.replaceAll("resourceVersion=\\d+", "resourceVersion=1");
                    }
                    return url.replaceAll("timeoutSeconds=\\d+", "timeoutSeconds=1");
                })) {
            compact(server, client);
            var widgets = Widgets.define(client);
            widgets.resource(Widgets.widget("first")).create();
            Seen seen = new Seen();
            try (var informer = widgets.withLabel("app", "test").inform(seen)) {
                seen.expect("added first");
                widgets.resource(Widgets.widget("second")).create();
                seen.expect("added second");
                widgets.withName("second").edit(widget -> {
                    widget.getSpec().size = 5;
                    return widget;
                });
                seen.expect("changed second");
                isOutdated.set(true);
                outdated.get(LIMIT_SECONDS, TimeUnit.SECONDS);
                widgets.withName("first").delete();
                seen.expect("deleted first");
                widgets.resource(Widgets.widget("third")).create();
                seen.expect("added third");
                assertEquals(2, informer.getStore().list().size());
                assertTrue(seen.lines.isEmpty(), seen.lines::toString);
            }
        }
    }
}
