package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static revstore.clients.Await.bytes;
import static revstore.clients.Await.done;
import static revstore.clients.Await.fails;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.KV;
import io.etcd.jetcd.kv.GetResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.DeleteOption;
import io.etcd.jetcd.options.GetOption;
import io.etcd.jetcd.options.PutOption;
import io.grpc.Status;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

class KvTest {
    private Server server;
    private Client client;
    private KV kv;

    @BeforeEach
    void start() throws Exception {
        server = Server.start();
        client = server.client();
        kv = client.getKVClient();
    }

    @AfterEach
    void stop() throws Exception {
        client.close();
        server.close();
    }

    private static List<String> pairs(GetResponse response) {
        return response.getKvs().stream().map(kv -> kv.getKey() + "=" + kv.getValue()).toList();
    }

    @Test
    void putGetDelete() throws Exception {
        assertEquals(2, done(kv.put(bytes("a"), bytes("1"))).getHeader().getRevision());
        var second = done(kv.put(bytes("a"), bytes("2"), PutOption.builder().withPrevKV().build()));
        assertEquals(bytes("1"), second.getPrevKv().getValue());
        var got = done(kv.get(bytes("a"))).getKvs().get(0);
        assertEquals(bytes("2"), got.getValue());
        assertEquals(2, got.getCreateRevision());
        assertEquals(3, got.getModRevision());
        assertEquals(2, got.getVersion());
        var deleted = done(kv.delete(bytes("a"), DeleteOption.builder().withPrevKV(true).build()));
        assertEquals(1, deleted.getDeleted());
        assertEquals(bytes("2"), deleted.getPrevKvs().get(0).getValue());
        assertEquals(0, done(kv.get(bytes("a"))).getCount());
    }

    @Test
    void ranges() throws Exception {
        for (String key : List.of("k/a", "k/b", "k/c", "l")) {
            done(kv.put(bytes(key), bytes("v")));
        }
        var page = done(kv.get(bytes("k/"), GetOption.builder().isPrefix(true).withLimit(2).build()));
        assertEquals(List.of("k/a=v", "k/b=v"), pairs(page));
        assertTrue(page.isMore());
        assertEquals(3, page.getCount());
        var last = done(kv.get(bytes("k/"), GetOption.builder().isPrefix(true)
                .withSortField(GetOption.SortTarget.KEY)
                .withSortOrder(GetOption.SortOrder.DESCEND)
                .withKeysOnly(true)
                .build()));
        assertEquals(List.of("k/c=", "k/b=", "k/a="), pairs(last));
        var old = done(kv.get(bytes("k/"), GetOption.builder().isPrefix(true).withRevision(2).build()));
        assertEquals(List.of("k/a=v"), pairs(old));
        var recent = done(kv.get(bytes("k/"),
                GetOption.builder().isPrefix(true).withMinModRevision(4).build()));
        assertEquals(List.of("k/c=v"), pairs(recent));
        var count = done(kv.get(bytes("k/"), GetOption.builder().isPrefix(true).withCountOnly(true).build()));
        assertEquals(3, count.getCount());
    }

    @Test
    void compactionAndErrors() throws Exception {
        done(kv.put(bytes("k"), bytes("1")));
        done(kv.put(bytes("k"), bytes("2")));
        done(kv.compact(3));
        fails(Status.Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted",
                kv.get(bytes("k"), GetOption.builder().withRevision(2).build()));
        fails(Status.Code.OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision",
                kv.get(bytes("k"), GetOption.builder().withRevision(9).build()));
        fails(Status.Code.INVALID_ARGUMENT, "etcdserver: key is not provided", kv.put(bytes(""), bytes("v")));
        fails(Status.Code.NOT_FOUND, "etcdserver: requested lease not found",
                kv.put(bytes("k"), bytes("v"), PutOption.builder().withLeaseId(99).build()));
    }

    @Test
    void transactions() throws Exception {
        var absent = new Cmp(bytes("k"), Cmp.Op.EQUAL, CmpTarget.version(0));
        var put = Op.put(bytes("k"), bytes("1"), PutOption.DEFAULT);
        var get = Op.get(bytes("k"), GetOption.DEFAULT);
        var first = done(kv.txn().If(absent).Then(put, get).Else(get).commit());
        assertTrue(first.isSucceeded());
        assertEquals(List.of("k=1"), pairs(first.getGetResponses().get(0)));
        var second = done(kv.txn().If(absent).Then(put).Else(get).commit());
        assertFalse(second.isSucceeded());
        assertEquals(List.of("k=1"), pairs(second.getGetResponses().get(0)));

        var inner = Op.txn(
                new Cmp[] {new Cmp(bytes("k"), Cmp.Op.EQUAL, CmpTarget.value(bytes("1")))},
                new Op[] {Op.put(bytes("in"), bytes("then"), PutOption.DEFAULT)},
                new Op[] {Op.put(bytes("in"), bytes("else"), PutOption.DEFAULT)});
        var nested = done(kv.txn()
                .If(new Cmp(bytes("k"), Cmp.Op.GREATER, CmpTarget.createRevision(1)))
                .Then(Op.put(bytes("k"), bytes("2"), PutOption.DEFAULT), inner)
                .commit());
        assertTrue(nested.getTxnResponses().get(0).isSucceeded());
        assertEquals(List.of("in=then"), pairs(done(kv.get(bytes("in")))));
        fails(Status.Code.INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request",
                kv.txn().Then(put, put).commit());
    }
}
