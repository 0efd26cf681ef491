package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.clients.Await.bytes;
import static revstore.clients.Await.done;
import static revstore.clients.Await.fails;

import io.etcd.jetcd.Client;
import io.grpc.Status;
import java.net.URI;
import java.util.List;
import java.util.concurrent.ExecutionException;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class MaintenanceTest {
    private Server server;
    private Client client;

    @BeforeEach
    void start() throws Exception {
        server = Server.start("--quota-backend-bytes=200000");
        client = server.client();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.close();
    }

    @Test
    void statusAndMembers() throws Exception {
        var status = done(client.getMaintenanceClient().statusMember(server.endpoint()));
        assertEquals(status.getHeader().getMemberId(), status.getLeader());
        assertTrue(status.getVersion().startsWith("3."), status.getVersion());
        assertFalse(status.isLearner());
        var members = done(client.getClusterClient().listMember()).getMembers();
        assertEquals(1, members.size());
        assertEquals("default", members.get(0).getName());
        assertEquals(List.of(URI.create(server.endpoint())), members.get(0).getClientURIs());
    }

    @Test
    void hashKv() throws Exception {
        var maintenance = client.getMaintenanceClient();
        done(client.getKVClient().put(bytes("k"), bytes("v")));
        long before = done(maintenance.hashKV(server.endpoint(), 0)).getHash();
        done(client.getKVClient().put(bytes("k"), bytes("w")));
        assertEquals(before, done(maintenance.hashKV(server.endpoint(), 2)).getHash());
        assertTrue(before != done(maintenance.hashKV(server.endpoint(), 0)).getHash(), "different data, equal hash");
    }

    @Test
    void alarms() throws Exception {
        var maintenance = client.getMaintenanceClient();
        var large = bytes("v".repeat(150_000));
        var put = client.getKVClient().put(bytes("k0"), large);
        for (int i = 1; i < 10; i++) {
            try {
                done(put);
            } catch (ExecutionException quotaExceeded) {
                break;
            }
            put = client.getKVClient().put(bytes("k" + i), large);
        }
        fails(Status.Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", put);
        var alarms = done(maintenance.listAlarms()).getAlarms();
        assertEquals(1, alarms.size());
        done(maintenance.defragmentMember(server.endpoint()));
        done(maintenance.alarmDisarm(alarms.get(0)));
        assertEquals(0, done(maintenance.listAlarms()).getAlarms().size());
    }
}
