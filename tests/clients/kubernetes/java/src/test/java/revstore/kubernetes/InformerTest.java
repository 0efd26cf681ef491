package revstore.kubernetes;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
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
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;
import revstore.kubernetes.Widgets.Widget;

/** Watches over a WebSocket, and informers. */
class InformerTest {
    /** How long watches last. A bookmark comes two seconds before the end. */
    private static final long WATCH_SECONDS = 4;

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

    /** A watch without events gets the versions of other objects by bookmarks, and another one begins there. */
    @Test
    void watchFromABookmark() throws Exception {
        try (Server server = new Server(); KubernetesClient client = server.client()) {
            var widgets = Widgets.define(client);
            BlockingQueue<String> events = new LinkedBlockingQueue<>();
            BlockingQueue<Long> bookmarks = new LinkedBlockingQueue<>();
            Watcher<Widget> watcher = new Watcher<>() {
                @Override
                public void eventReceived(Action action, Widget widget) {
                    if (action == Action.BOOKMARK) {
                        bookmarks.add(Long.valueOf(widget.getMetadata().getResourceVersion()));
                    } else {
                        events.add(action + " " + widget.getMetadata().getName());
                    }
                }

                @Override
                public void onClose(WatcherException cause) {
                    events.add("closed " + cause);
                }
            };
            widgets.resource(Widgets.widget("before")).create();
            String version = widgets.list().getMetadata().getResourceVersion();
            long written = Long.parseLong(
                    client.configMaps().resource(configMap("other")).create().getMetadata().getResourceVersion());
            var options = new ListOptionsBuilder().withAllowWatchBookmarks(true).withTimeoutSeconds(WATCH_SECONDS);
            long bookmark;
            try (var watch = widgets.watch(options.withResourceVersion(version).build(), watcher)) {
                do {
                    Long next = bookmarks.poll(LIMIT_SECONDS, TimeUnit.SECONDS);
                    assertNotNull(next, "no bookmark");
                    bookmark = next;
                } while (bookmark < written);
            }
            assertTrue(events.stream().allMatch(line -> line.startsWith("closed")), events::toString);
            events.clear();
            // What is older than the bookmark is no longer there.
            server.compact();
            options = new ListOptionsBuilder().withAllowWatchBookmarks(true);
            try (var watch = widgets.watch(options.withResourceVersion(String.valueOf(bookmark)).build(), watcher)) {
                widgets.resource(Widgets.widget("after")).create();
                assertEquals("ADDED after", events.poll(LIMIT_SECONDS, TimeUnit.SECONDS));
            }
        }
    }

    /** The watches of an informer end, and go on from bookmarks: there is one list, whatever is compacted. */
    @Test
    void informerFromBookmarks() throws Exception {
        BlockingQueue<Long> versions = new LinkedBlockingQueue<>();
        AtomicInteger lists = new AtomicInteger();
        Pattern watched = Pattern.compile("/widgets\\?.*resourceVersion=(\\d+)");
        try (Server server = new Server();
                KubernetesClient client = server.client(url -> {
                    if (url.contains("/widgets?") && url.contains("watch=true")) {
                        Matcher version = watched.matcher(url);
                        if (version.find()) {
                            versions.add(Long.valueOf(version.group(1)));
                        }
                    } else if (url.contains("/widgets?")) {
                        lists.incrementAndGet();
                    }
                    return url.replaceAll("timeoutSeconds=\\d+", "timeoutSeconds=" + WATCH_SECONDS);
                })) {
            var widgets = Widgets.define(client);
            widgets.resource(Widgets.widget("first")).create();
            Seen seen = new Seen();
            lists.set(0);
            try (var informer = widgets.withLabel("app", "test").inform(seen)) {
                seen.expect("added first");
                long written = Long.parseLong(
                        client.configMaps().resource(configMap("other")).create().getMetadata().getResourceVersion());
                Long begin;
                do {
                    begin = versions.poll(LIMIT_SECONDS, TimeUnit.SECONDS);
                    assertNotNull(begin, "no watch begins at a bookmark");
                } while (begin < written);
                server.compact();
                widgets.resource(Widgets.widget("second")).create();
                seen.expect("added second");
                assertEquals(1, lists.get());
                assertEquals(2, informer.getStore().list().size());
                assertTrue(seen.lines.isEmpty(), seen.lines::toString);
            }
        }
    }
}
