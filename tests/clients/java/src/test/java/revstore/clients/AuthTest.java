package revstore.clients;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static revstore.clients.Await.bytes;
import static revstore.clients.Await.done;
import static revstore.clients.Await.fails;

import io.etcd.jetcd.Client;
import io.etcd.jetcd.auth.Permission;
import io.etcd.jetcd.common.exception.EtcdException;
import io.grpc.Status;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;

class AuthTest {
    @Test
    void usersAndRoles() throws Exception {
        try (var server = Server.start("--bcrypt-cost=4"); var open = server.client()) {
            var setup = open.getAuthClient();
            done(setup.userAdd(bytes("root"), bytes("secret")));
            done(setup.userGrantRole(bytes("root"), bytes("root")));
            done(setup.roleAdd(bytes("reader")));
            done(setup.roleGrantPermission(bytes("reader"), bytes("k"), bytes("l"), Permission.Type.READ));
            done(setup.userAdd(bytes("alice"), bytes("wonder")));
            done(setup.userGrantRole(bytes("alice"), bytes("reader")));
            done(open.getKVClient().put(bytes("k"), bytes("v")));
            done(setup.authEnable());

            fails(Status.Code.INVALID_ARGUMENT, "etcdserver: user name is empty", open.getKVClient().get(bytes("k")));
            try (var root = as(server, "root", "secret"); var alice = as(server, "alice", "wonder")) {
                var auth = root.getAuthClient();
                assertEquals(List.of("alice", "root"), done(auth.userList()).getUsers());
                assertEquals(List.of("reader"), done(auth.userGet(bytes("alice"))).getRoles());
                assertEquals(1, done(auth.roleGet(bytes("reader"))).getPermissions().size());

                var kv = alice.getKVClient();
                assertEquals(1, done(kv.get(bytes("k"))).getCount());
                fails(Status.Code.PERMISSION_DENIED, "etcdserver: permission denied", kv.put(bytes("k"), bytes("w")));
                fails(Status.Code.PERMISSION_DENIED, "etcdserver: permission denied", kv.get(bytes("m")));
                var denied = new CompletableFuture<Throwable>();
                try (var watcher = alice.getWatchClient().watch(bytes("m"), response -> {}, denied::complete)) {
                    var error = assertInstanceOf(EtcdException.class, done(denied));
                    // The cancel reason contains the whole status.
                    assertEquals(
                            "rpc error: code = PermissionDenied desc = etcdserver: permission denied", error.getMessage());
                }

                // This invalidates the token. The client requests a new token.
                done(auth.userChangePassword(bytes("alice"), bytes("wonder")));
                assertEquals(1, done(kv.get(bytes("k"))).getCount());
                done(auth.userRevokeRole(bytes("alice"), bytes("reader")));
                fails(Status.Code.PERMISSION_DENIED, "etcdserver: permission denied", kv.get(bytes("k")));
                done(auth.authDisable());
            }
            assertEquals(1, done(open.getKVClient().get(bytes("k"))).getCount());
        }
    }

    private static Client as(Server server, String user, String password) {
        return server.builder().user(bytes(user)).password(bytes(password)).build();
    }
}
