package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.clients.Await.bytes;
import static revstore.clients.Await.done;
import static revstore.clients.Await.fails;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.Lease;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.options.LeaseOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.watch.WatchEvent;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class LeaseTest {
    private Server server;
    private Client client;
    private Lease leases;

    @BeforeEach
    void start() throws Exception {
        server = Server.start();
        client = server.client();
        leases = client.getLeaseClient();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.close();
    }

    private void put(String key, long lease) throws Exception {
        done(client.getKVClient().put(bytes(key), bytes("v"), PutOption.builder().withLeaseId(lease).build()));
    }

    @Test
    void grantAndRevoke() throws Exception {
        long lease = done(leases.grant(60)).getID();
        put("k", lease);
        var alive = done(leases.timeToLive(lease, LeaseOption.builder().withAttachedKeys().build()));
        assertEquals(60, alive.getGrantedTTL());
        assertEquals(bytes("k"), alive.getKeys().get(0));
        assertEquals(60, done(leases.keepAliveOnce(lease)).getTTL());
        done(leases.revoke(lease));
        assertEquals(0, done(client.getKVClient().get(bytes("k"))).getCount());
        assertEquals(-1, done(leases.timeToLive(lease, LeaseOption.DEFAULT)).getTTL());
        fails(Status.Code.NOT_FOUND, "etcdserver: requested lease not found", leases.revoke(lease));
    }

    /** Longer than it was granted for while it is kept alive, and not when it no longer is. */
    @Test
    void keepAlive() throws Exception {
        long lease = done(leases.grant(2)).getID();
        put("k", lease);
        var deleted = new CompletableFuture<WatchEvent>();
        try (var watcher = client.getWatchClient().watch(bytes("k"),
                response -> response.getEvents().forEach(deleted::complete))) {
            var beats = new Beats();
            long began = System.nanoTime();
            try (var keeping = leases.keepAlive(lease, beats)) {
                while (System.nanoTime() - began < TimeUnit.SECONDS.toNanos(4)) {
                    assertEquals(2, beats.next());
                }
                assertTrue(!deleted.isDone(), "expired while it was kept alive");
            }
            assertEquals(WatchEvent.EventType.DELETE, done(deleted).getEventType());
        }
    }

    @Test
    void keepAliveOfAnEndedLease() throws Exception {
        long lease = done(leases.grant(2)).getID();
        var beats = new Beats();
        try (var keeping = leases.keepAlive(lease, beats)) {
            assertEquals(2, beats.next());
            done(leases.revoke(lease));
            assertNotNull(done(beats.ended));
        }
    }

    /** What a keep-alive is told: times to live, and in the end why it is over. */
    private static final class Beats implements StreamObserver<LeaseKeepAliveResponse> {
        private final BlockingQueue<Long> times = new LinkedBlockingQueue<>();
        private final CompletableFuture<Throwable> ended = new CompletableFuture<>();

        long next() throws InterruptedException {
            Long time = times.poll(Await.LIMIT_SECONDS, TimeUnit.SECONDS);
            assertInstanceOf(Long.class, time, "no beat");
            return time;
        }

        @Override
        public void onNext(LeaseKeepAliveResponse beat) {
            times.add(beat.getTTL());
        }

        @Override
        public void onError(Throwable error) {
            ended.complete(error);
        }

        @Override
        public void onCompleted() {
            ended.complete(null);
        }
    }
}
