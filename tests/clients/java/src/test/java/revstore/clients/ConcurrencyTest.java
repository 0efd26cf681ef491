package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.clients.Await.bytes;
import static revstore.clients.Await.done;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.Election;
import io.etcd.jetcd.election.CampaignResponse;
import io.etcd.jetcd.election.LeaderResponse;
import io.etcd.jetcd.election.NoLeaderException;
import io.etcd.jetcd.election.NotLeaderException;
import io.etcd.jetcd.options.WatchOption;
import io.grpc.Status;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Locks and elections. This client uses the server's lock and election services. */
class ConcurrencyTest {
    private Server server;
    private Client client;

    @BeforeEach
    void start() throws Exception {
        server = Server.start();
        client = server.client();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.close();
    }

    private long lease() throws Exception {
        return done(client.getLeaseClient().grant(60)).getID();
    }

    /** Returns a future that completes at the next put of a key with a prefix. */
    private CompletableFuture<Void> nextPut(String prefix) throws Exception {
        var watching = new CompletableFuture<Void>();
        var put = new CompletableFuture<Void>();
        client.getWatchClient().watch(bytes(prefix),
                WatchOption.builder().isPrefix(true).withNoDelete(true).withCreateNotify(true).build(),
                response -> {
                    watching.complete(null);
                    if (!response.getEvents().isEmpty()) {
                        put.complete(null);
                    }
                });
        done(watching);
        return put;
    }

    @Test
    void lockIsReleasedByUnlockAndRevoke() throws Exception {
        var locks = client.getLockClient();
        long one = lease();
        long two = lease();
        var held = done(locks.lock(bytes("lock"), one));
        assertEquals(bytes("lock/" + Long.toHexString(one)), held.getKey());
        assertEquals(held.getKey(), done(locks.lock(bytes("lock"), one)).getKey());

        var queued = nextPut("lock/");
        var waiting = locks.lock(bytes("lock"), two);
        done(queued);
        assertTrue(!waiting.isDone(), "two holders");
        done(locks.unlock(held.getKey()));
        assertEquals(bytes("lock/" + Long.toHexString(two)), done(waiting).getKey());

        var third = locks.lock(bytes("lock"), lease());
        done(client.getLeaseClient().revoke(two));
        assertNotNull(done(third).getKey());
    }

    @Test
    void lockNeedsALease() {
        Await.fails(Status.Code.UNKNOWN, "etcdserver: requested lease not found",
                client.getLockClient().lock(bytes("lock"), 99));
    }

    @Test
    void election() throws Exception {
        Election election = client.getElectionClient();
        var name = bytes("election");
        fails(NoLeaderException.class, election.leader(name));
        CampaignResponse first = done(election.campaign(name, lease(), bytes("one")));
        assertEquals(bytes("one"), done(election.leader(name)).getKv().getValue());

        var observed = new LinkedBlockingQueue<String>();
        election.observe(name, new Observer(observed));
        assertEquals("one", observed.poll(Await.LIMIT_SECONDS, TimeUnit.SECONDS));
        done(election.proclaim(first.getLeader(), bytes("still one")));
        assertEquals("still one", observed.poll(Await.LIMIT_SECONDS, TimeUnit.SECONDS));

        var queued = nextPut("election/");
        var second = election.campaign(name, lease(), bytes("two"));
        done(queued);
        assertTrue(!second.isDone(), "two leaders");
        done(election.resign(first.getLeader()));
        assertEquals(name, done(second).getLeader().getName());
        assertEquals("two", observed.poll(Await.LIMIT_SECONDS, TimeUnit.SECONDS));
        fails(NotLeaderException.class, election.proclaim(first.getLeader(), bytes("resigned")));
    }

    /** Checks the type of the exception. The client maps the text of the status to it. */
    private static void fails(Class<? extends Exception> kind, CompletableFuture<?> future) {
        var failure = assertThrows(ExecutionException.class, () -> done(future));
        assertInstanceOf(kind, failure.getCause());
    }

    private record Observer(BlockingQueue<String> observed) implements Election.Listener {
        @Override
        public void onNext(LeaderResponse response) {
            observed.add(response.getKv().getValue().toString());
        }

        @Override
        public void onError(Throwable error) {
            observed.add(error.toString());
        }

        @Override
        public void onCompleted() {
            observed.add("completed");
        }
    }
}
