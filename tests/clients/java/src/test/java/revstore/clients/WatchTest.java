package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static revstore.clients.Await.bytes;
import static revstore.clients.Await.done;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.common.exception.CompactedException;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class WatchTest {
    /** The responses and errors of a watch, in order. */
    private final BlockingQueue<Object> received = new LinkedBlockingQueue<>();

    private Server server;
    private Client client;

    @BeforeEach
    void start() throws Exception {
        server = Server.start("--experimental-watch-progress-notify-interval=100ms");
        client = server.client();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.close();
    }

    private Watch.Watcher watch(String key, WatchOption.Builder options) {
        return client.getWatchClient().watch(bytes(key), options.build(), received::add, received::add);
    }

    private Object next() throws InterruptedException {
        Object next = received.poll(Await.LIMIT_SECONDS, TimeUnit.SECONDS);
        assertNotNull(next, "no response");
        return next;
    }

    private WatchResponse response() throws InterruptedException {
        return assertInstanceOf(WatchResponse.class, next());
    }

    private List<String> events(int count) throws InterruptedException {
        List<String> seen = new ArrayList<>();
        while (seen.size() < count) {
            for (var event : response().getEvents()) {
                var kv = event.getKeyValue();
                seen.add("%s %s=%s@%d was %s".formatted(event.getEventType(), kv.getKey(), kv.getValue(),
                        kv.getModRevision(), event.getPrevKV().getValue()));
            }
        }
        return seen;
    }

    private void put(String key, String value) throws Exception {
        done(client.getKVClient().put(bytes(key), bytes(value)));
    }

    @Test
    void newEvents() throws Exception {
        put("k/a", "0");
        try (var watcher = watch("k/",
                WatchOption.builder().isPrefix(true).withPrevKV(true).withCreateNotify(true))) {
            assertEquals(List.of(), response().getEvents());
            put("k/a", "1");
            put("l", "1");
            done(client.getKVClient().delete(bytes("k/a")));
            assertEquals(List.of("PUT k/a=1@3 was 0", "DELETE k/a=@5 was 1"), events(2));
        }
    }

    @Test
    void pastEvents() throws Exception {
        for (int i = 0; i < 50; i++) {
            put("k", Integer.toString(i));
        }
        try (var watcher = watch("k", WatchOption.builder().withRevision(2))) {
            put("k", "new");
            var seen = events(51);
            assertEquals("PUT k=0@2 was ", seen.get(0));
            assertEquals("PUT k=new@52 was ", seen.get(50));
        }
    }

    @Test
    void compactedRevision() throws Exception {
        for (int i = 0; i < 3; i++) {
            put("k", "v");
        }
        done(client.getKVClient().compact(4));
        try (var watcher = watch("k", WatchOption.builder().withRevision(2))) {
            var compacted = assertInstanceOf(CompactedException.class, next());
            assertEquals(4, compacted.getCompactedRevision());
        }
    }

    @Test
    void progress() throws Exception {
        try (var watcher = watch("k", WatchOption.builder().withProgressNotify(true).withCreateNotify(true))) {
            response();
            put("other", "v");
            WatchResponse notification = response();
            while (notification.getHeader().getRevision() < 2) {
                notification = response();
            }
            assertEquals(List.of(), notification.getEvents());
        }
    }

    @Test
    void progressOnRequest() throws Exception {
        try (var watcher = watch("k", WatchOption.builder().withCreateNotify(true))) {
            response();
            put("other", "v");
            watcher.requestProgress();
            WatchResponse notification = response();
            assertEquals(2, notification.getHeader().getRevision());
            assertEquals(List.of(), notification.getEvents());
        }
    }
}
