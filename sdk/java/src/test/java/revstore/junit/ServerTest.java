package revstore.junit;

import static io.etcd.jetcd.ByteSequence.from;
import static java.nio.charset.StandardCharsets.UTF_8;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.KeyValue;
import io.etcd.jetcd.common.exception.CompactedException;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchResponse;
import java.io.ByteArrayOutputStream;
import java.net.URI;
import java.nio.file.Files;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;

/** What a client sees of a server whose time and faults the test controls. */
@ExtendWith(RevstoreExtension.class)
class ServerTest {
    static final Duration LIMIT = Duration.ofMinutes(1);

    static ByteSequence bytes(String text) {
        return from(text, UTF_8);
    }

    static <T> T done(CompletableFuture<T> future) throws Exception {
        return future.get(LIMIT.toSeconds(), TimeUnit.SECONDS);
    }

    static List<String> get(Client client, String key) throws Exception {
        List<KeyValue> found = done(client.getKVClient().get(bytes(key))).getKvs();
        return found.stream().map(kv -> kv.getValue().toString(UTF_8)).toList();
    }

    @Test
    void aLeaseExpiresWhenTheTestAdvancesTheTime() throws Exception {
        try (var server = Server.start(Options.DEFAULT.withClock("manual")); var client = server.client()) {
            long lease = done(client.getLeaseClient().grant(3600)).getID();
            var option = PutOption.builder().withLeaseId(lease).build();
            done(client.getKVClient().put(bytes("session"), bytes("mine"), option));
            assertTrue(server.control().pending().get(0).due().compareTo(Duration.ofHours(1)) <= 0);
            var clock = server.control().advance(Duration.ofHours(1));
            assertEquals(Duration.ofHours(1), clock.now());
            assertEquals("manual", clock.mode());
            assertEquals(List.of(), get(client, "session"));
        }
    }

    @Test
    void aLostAnswerIsFollowedByACorrectRetry(Server server) throws Exception {
        try (var client = server.client()) {
            long fault = server.control().addFault(Fault.on("Txn").next(1).errorAfter("DATA_LOSS:the answer is lost"));
            var error = assertThrows(ExecutionException.class, () -> create(client));
            assertTrue(error.getMessage().contains("the answer is lost"), error.getMessage());
            assertFalse(create(client), "the first request was not executed");
            assertEquals(List.of("one"), get(client, "order"));
            var status = server.control().faults();
            assertEquals(List.of(new Control.FaultStatus(fault, status.get(0).rule(), 1)), status);
            server.control().clearFaults();
            assertEquals(List.of(), server.control().faults());
        }
    }

    /** Creates a key. The write says under which conditions it may be repeated. */
    private static boolean create(Client client) throws Exception {
        var isAbsent = new Cmp(bytes("order"), Cmp.Op.EQUAL, CmpTarget.createRevision(0));
        var put = Op.put(bytes("order"), bytes("one"), PutOption.DEFAULT);
        return done(client.getKVClient().txn().If(isAbsent).Then(put).commit()).isSucceeded();
    }

    @Test
    void aWatchThatIsCanceledAsCompactedRecovers(Server server) throws Exception {
        try (var client = server.client()) {
            BlockingQueue<Object> received = new LinkedBlockingQueue<>();
            var option = WatchOption.builder().build();
            client.getWatchClient().watch(bytes("key"), option, received::add, received::add);
            server.control().waitWatchers(1, LIMIT);
            assertEquals(1, server.control().cancelWatchesCompacted());
            assertInstanceOf(CompactedException.class, received.poll(LIMIT.toSeconds(), TimeUnit.SECONDS));
            // As after a real compaction: read, and watch from the revision of the read.
            long revision = done(client.getKVClient().get(bytes("key"))).getHeader().getRevision();
            option = WatchOption.builder().withRevision(revision + 1).build();
            client.getWatchClient().watch(bytes("key"), option, received::add, received::add);
            done(client.getKVClient().put(bytes("key"), bytes("after")));
            var events = assertInstanceOf(WatchResponse.class, received.poll(LIMIT.toSeconds(), TimeUnit.SECONDS));
            assertEquals("after", events.getEvents().get(0).getKeyValue().getValue().toString(UTF_8));
        }
    }

    @Test
    void theJournalHasTheRequests(Server server) throws Exception {
        try (var client = server.client()) {
            done(client.getKVClient().put(bytes("key"), bytes("value")));
            var records = server.control().journal("Put");
            assertEquals(1, records.size());
            assertEquals(2, records.get(0).revision());
            assertEquals("key", new String(records.get(0).keys().get(0).key(), UTF_8));
            try (var followed = server.control().followJournal("Put")) {
                var record = followed.iterator().next();
                assertEquals(2, record.revision());
            }
        }
    }

    @Test
    void termsBegin(Server server) {
        long term = server.control().newTerm();
        assertEquals(term + 1, server.control().newTerm());
    }

    @Test
    void aDumpReplacesTheStoreOfAnotherServer(Server server) throws Exception {
        try (var client = server.client(); var other = Server.start(Options.DEFAULT); var ofOther = other.client()) {
            done(client.getKVClient().put(bytes("key"), bytes("value")));
            var dump = new ByteArrayOutputStream();
            server.control().dump(dump);
            assertEquals(2, other.control().load(dump.toByteArray()).revision());
            assertEquals(List.of("value"), get(ofOther, "key"));
            byte[] damaged = "no snapshot".getBytes(UTF_8);
            var refused = assertThrows(ControlException.class, () -> other.control().importSnapshot(damaged));
            assertEquals(3, refused.code());
        }
    }

    @Test
    void refusedRequestsAreExceptionsWithCodeAndText(Server server) {
        var control = server.control();
        var refused = assertThrows(ControlException.class, () -> control.restore("none"));
        assertEquals(5, refused.code());
        assertFalse(refused.text().isEmpty());
        refused = assertThrows(ControlException.class, () -> control.addFault(Fault.on().preset("nonsense")));
        assertEquals(3, refused.code());
        refused = assertThrows(ControlException.class, () -> control.waitRevision(100, Duration.ofMillis(1)));
        assertEquals(4, refused.code());
    }

    @Test
    void aServerWithoutControlHasNone() throws Exception {
        try (var server = Server.start(Options.DEFAULT.withoutControl()); var client = server.client()) {
            done(client.getKVClient().put(bytes("key"), bytes("value")));
            assertThrows(IllegalStateException.class, server::control);
        }
    }

    @Test
    void theApiServerAnswers(ApiServer server) throws Exception {
        try (var answer = URI.create(server.url() + "/version").toURL().openStream()) {
            assertTrue(new String(answer.readAllBytes(), UTF_8).contains("gitVersion"));
        }
        assertTrue(Files.readString(server.kubeconfig()).contains("apiVersion"));
        var hour = Duration.ofHours(1);
        assertTrue(server.control().advance(hour).now().compareTo(hour) >= 0);
    }
}
