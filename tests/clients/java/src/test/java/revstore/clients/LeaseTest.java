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
        var remaining = done(leases.timeToLive(lease, LeaseOption.builder().withAttachedKeys().build()));
        assertEquals(60, remaining.getGrantedTTL());
        assertEquals(bytes("k"), remaining.getKeys().get(0));
        assertEquals(60, done(leases.keepAliveOnce(lease)).getTTL());
        done(leases.revoke(lease));
        assertEquals(0, done(client.getKVClient().get(bytes("k"))).getCount());
        assertEquals(-1, done(leases.timeToLive(lease, LeaseOption.DEFAULT)).getTTL());
        fails(Status.Code.NOT_FOUND, "etcdserver: requested lease not found", leases.revoke(lease));
    }

    /** A lease does not expire while it is kept alive, and expires after the keep-alives end. */
    @Test
    void keepAlive() throws Exception {
        long lease = done(leases.grant(2)).getID();
        put("k", lease);
        var deleted = new CompletableFuture<WatchEvent>();
        try (var watcher = client.getWatchClient().watch(bytes("k"),
                response -> response.getEvents().forEach(deleted::complete))) {
            var renewals = new Renewals();
            long started = System.nanoTime();
            try (var keeping = leases.keepAlive(lease, renewals)) {
                while (System.nanoTime() - started < TimeUnit.SECONDS.toNanos(4)) {
                    assertEquals(2, renewals.next());
                }
                assertTrue(!deleted.isDone(), "expired while it was kept alive");
            }
            assertEquals(WatchEvent.EventType.DELETE, done(deleted).getEventType());
        }
    }

    @Test
    void keepAliveOfARevokedLease() throws Exception {
        long lease = done(leases.grant(2)).getID();
        var renewals = new Renewals();
        try (var keeping = leases.keepAlive(lease, renewals)) {
            assertEquals(2, renewals.next());
            done(leases.revoke(lease));
            assertNotNull(done(renewals.ended));
        }
    }

    /** The responses of a keep-alive: times to live, then the reason of the end of the stream. */
    private static final class Renewals implements StreamObserver<LeaseKeepAliveResponse> {
        private final BlockingQueue<Long> times = new LinkedBlockingQueue<>();
        private final CompletableFuture<Throwable> ended = new CompletableFuture<>();

        long next() throws InterruptedException {
            Long time = times.poll(Await.LIMIT_SECONDS, TimeUnit.SECONDS);
            assertInstanceOf(Long.class, time, "no renewal");
            return time;
        }

        @Override
        public void onNext(LeaseKeepAliveResponse renewal) {
            times.add(renewal.getTTL());
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
