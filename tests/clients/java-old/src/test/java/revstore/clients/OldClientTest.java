package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.clients.Await.bytes;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchEvent;
import io.grpc.stub.StreamObserver;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** The calls of jetcd 0.5, a release that is still in wide use. */
class OldClientTest {
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

    @Test
    void putsGetsAndTransactions() throws Exception {
        var kv = client.getKVClient();
        Await.done(kv.put(bytes("k/a"), bytes("1")));
        Await.done(kv.put(bytes("k/b"), bytes("2")));
        var all = Await.done(kv.get(bytes("k/"), GetOption.newBuilder().withPrefix(bytes("k/")).build()));
        assertEquals(2, all.getCount());
        var compare = new Cmp(bytes("k/a"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1")));
        var txn = Await.done(kv.txn().If(compare)
                .Then(Op.put(bytes("k/c"), bytes("3"), PutOption.DEFAULT)).commit());
        assertTrue(txn.isSucceeded());
        assertEquals(1, Await.done(kv.delete(bytes("k/c"))).getDeleted());
    }

    @Test
    void watchesFromARevision() throws Exception {
        var kv = client.getKVClient();
        long first = Await.done(kv.put(bytes("k"), bytes("1"))).getHeader().getRevision();
        List<String> seen = new ArrayList<>();
        var done = new CompletableFuture<Void>();
        var option = WatchOption.newBuilder().withRevision(first).withPrevKV(true).build();
        try (Watch.Watcher watcher = client.getWatchClient().watch(bytes("k"), option, response -> {
            for (WatchEvent event : response.getEvents()) {
                seen.add(event.getEventType() + event.getKeyValue().getValue().toString(StandardCharsets.UTF_8));
            }
            if (seen.size() == 3) {
                done.complete(null);
            }
        }, done::completeExceptionally)) {
            Await.done(kv.put(bytes("k"), bytes("2")));
            Await.done(kv.delete(bytes("k")));
            Await.done(done);
        }
        assertEquals(List.of("PUT1", "PUT2", "DELETE"), seen);
    }

    @Test
    void keepsLeasesAlive() throws Exception {
        var leases = client.getLeaseClient();
        long lease = Await.done(leases.grant(60)).getID();
        var option = PutOption.newBuilder().withLeaseId(lease).build();
        Await.done(client.getKVClient().put(bytes("leased"), bytes("v"), option));
        var alive = new CompletableFuture<LeaseKeepAliveResponse>();
        try (var keepAlive = leases.keepAlive(lease, new StreamObserver<>() {
            @Override
            public void onNext(LeaseKeepAliveResponse response) {
                alive.complete(response);
            }

            @Override
            public void onError(Throwable failure) {
                alive.completeExceptionally(failure);
            }

            @Override
            public void onCompleted() {}
        })) {
            assertEquals(60, Await.done(alive).getTTL());
        }
        Await.done(leases.revoke(lease));
        assertEquals(0, Await.done(client.getKVClient().get(bytes("leased"))).getCount());
    }

    /** The calls to one endpoint use a connection of their own. */
    @Test
    void maintainsOneEndpoint() throws Exception {
        var maintenance = client.getMaintenanceClient();
        var endpoint = URI.create(server.endpoint());
        var status = Await.done(maintenance.statusMember(endpoint));
        assertEquals(status.getHeader().getMemberId(), status.getLeader());
        long hash = Await.done(maintenance.hashKV(endpoint, 0)).getHash();
        assertEquals(hash, Await.done(maintenance.hashKV(endpoint, 0)).getHash());
        Await.done(maintenance.defragmentMember(endpoint));
        assertEquals(0, Await.done(maintenance.listAlarms()).getAlarms().size());
        assertEquals(1, Await.done(client.getClusterClient().listMember()).getMembers().size());
    }
}
