package revstore.behaviour;

import io.etcd.jetcd.ByteSequence;
import io.etcd.jetcd.Client;
import io.etcd.jetcd.Watch;
import io.etcd.jetcd.common.exception.CompactedException;
import io.etcd.jetcd.lease.LeaseKeepAliveResponse;
import io.etcd.jetcd.op.Cmp;
import io.etcd.jetcd.op.CmpTarget;
import io.etcd.jetcd.op.Op;
import io.etcd.jetcd.options.PutOption;
import io.etcd.jetcd.options.WatchOption;
import io.etcd.jetcd.watch.WatchResponse;
import io.grpc.stub.StreamObserver;
import io.vertx.core.json.JsonObject;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;

/**
 * The driver of jetcd for docs/client-behaviour.md: it executes the commands that it reads from standard input,
 * and prints what the client does. tests/clients/behaviour/README.md has both forms.
 */
public final class Driver {
    private final Client client;

    private Driver(Client client) {
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Driver driver = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonObject command = new JsonObject(line);
            int id = command.getInteger("id");
            if (text(command, "op").equals("connect")) {
                driver = new Driver(connect(command));
                returned(id, "");
                continue;
            }
            Driver current = driver;
            var thread = new Thread(() -> current.execute(id, command));
            thread.setDaemon(true);
            thread.start();
        }
        System.exit(0);
    }

    private static Client connect(JsonObject command) {
        var builder = Client.builder().endpoints("http://" + text(command, "endpoint"));
        if (command.containsKey("user")) {
            builder.user(bytes(text(command, "user"))).password(bytes(text(command, "password")));
        }
        if (command.containsKey("keepalive")) {
            builder.keepaliveTime(Duration.ofSeconds(10)).keepaliveTimeout(Duration.ofSeconds(1));
        }
        return builder.build();
    }

    private void execute(int id, JsonObject command) {
        try {
            ByteSequence key = bytes(text(command, "key"));
            switch (text(command, "op")) {
                case "put" -> {
                    client.getKVClient().put(key, bytes(text(command, "value"))).get();
                    returned(id, "");
                }
                case "get" -> {
                    var found = client.getKVClient().get(key).get().getKvs();
                    returned(id, found.isEmpty() ? "" : found.get(0).getValue().toString());
                }
                case "create" -> {
                    var done = client.getKVClient().txn()
                            .If(new Cmp(key, Cmp.Op.EQUAL, CmpTarget.createRevision(0)))
                            .Then(Op.put(key, bytes(text(command, "value")), PutOption.DEFAULT))
                            .commit().get();
                    returned(id, done.isSucceeded() ? "succeeded" : "");
                }
                case "watch" -> watch(id, key, command);
                case "lock" -> lock(id, key, command.getInteger("ttl"));
                default -> throw new IllegalArgumentException("unknown op");
            }
        } catch (Exception error) {
            tell(id, "failed", "text", text(error));
        }
    }

    private void watch(int id, ByteSequence key, JsonObject command) {
        var option = WatchOption.builder().isPrefix(true).withCreateNotify(true);
        if (command.containsKey("revision")) {
            option.withRevision(command.getLong("revision"));
        }
        client.getWatchClient().watch(key, option.build(), new Watch.Listener() {
            @Override
            public void onNext(WatchResponse response) {
                if (response.isCreatedNotify()) {
                    tell(id, "created");
                }
                for (var event : response.getEvents()) {
                    var kv = event.getKeyValue();
                    tell(id, "item", "key", kv.getKey().toString(), "value", kv.getValue().toString(),
                            "revision", kv.getModRevision());
                }
            }

            @Override
            public void onError(Throwable error) {
                tell(id, "failed", "text", text(error));
            }

            @Override
            public void onCompleted() {
                tell(id, "ended");
            }
        });
    }

    private void lock(int id, ByteSequence name, int ttl) throws Exception {
        long lease = client.getLeaseClient().grant(ttl).get().getID();
        client.getLeaseClient().keepAlive(lease, new StreamObserver<LeaseKeepAliveResponse>() {
            @Override
            public void onNext(LeaseKeepAliveResponse renewal) {
                if (renewal.getTTL() == 0) {
                    tell(id, "lost", "text", "onNext with TTL 0");
                }
            }

            @Override
            public void onError(Throwable error) {
                tell(id, "lost", "text", "onError: " + text(error));
            }

            @Override
            public void onCompleted() {
                tell(id, "lost", "text", "onCompleted");
            }
        });
        client.getLockClient().lock(name, lease).get();
        returned(id, "");
    }

    private static String text(Throwable error) {
        Throwable cause = error;
        while ((cause instanceof ExecutionException || cause instanceof CompletionException) && cause.getCause() != null) {
            cause = cause.getCause();
        }
        String text = cause.getClass().getSimpleName() + ": " + cause.getMessage();
        if (cause instanceof CompactedException compacted) {
            text += ", compacted revision " + compacted.getCompactedRevision();
        }
        return text;
    }

    private static String text(JsonObject command, String field) {
        return command.getString(field);
    }

    private static ByteSequence bytes(String text) {
        return ByteSequence.from(text, StandardCharsets.UTF_8);
    }

    private static void returned(int id, String value) {
        tell(id, "returned", "value", value);
    }

    private static synchronized void tell(int id, String event, Object... fields) {
        var line = new JsonObject().put("id", id).put("event", event);
        for (int i = 0; i < fields.length; i += 2) {
            line.put((String) fields[i], fields[i + 1]);
        }
        System.out.println(line.encode());
        System.out.flush();
    }
}
