package revstore.junit;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A rule: the requests that it selects, when it fires, and what happens then. A fault is not changed by its methods. */
public final class Fault {
    private final Map<String, Object> fields;

    private Fault(Map<String, Object> fields) {
        this.fields = fields;
    }

    /** Selects the calls of methods, such as Put, KV/Put or etcdserverpb.KV/Put; all without any. */
    public static Fault on(String... methods) {
        return new Fault(methods.length == 0 ? Map.of() : Map.of("methods", List.of(methods)));
    }

    /** Selects keys with a prefix. */
    public Fault prefix(String prefix) {
        byte[] bytes = prefix.getBytes(StandardCharsets.UTF_8);
        return with("prefix", Base64.getEncoder().encodeToString(bytes));
    }

    /** Fires for the next requests. */
    public Fault next(long count) {
        return with("next", count);
    }

    /** Fires for every n-th request. */
    public Fault every(long count) {
        return with("every", count);
    }

    /** Fires at random, repeatable with the seed. */
    public Fault probability(double probability, long seed) {
        return with("probability", probability).with("seed", seed);
    }

    /** Fires from a revision to another. */
    public Fault revisions(long from, long to) {
        return with("from_revision", from).with("to_revision", to);
    }

    /** Fails the call before it is executed: CODE:TEXT. */
    public Fault error(String error) {
        return with("error", error);
    }

    /** Executes the call and replaces its answer: CODE:TEXT. */
    public Fault errorAfter(String error) {
        return with("error_after", error);
    }

    /** Fails the call with an error of etcd, such as no-leader. */
    public Fault preset(String preset) {
        return with("preset", preset);
    }

    /** Delays the call by time of the server's clock. */
    public Fault delay(Duration time) {
        return with("delay", Map.of("time", Durations.toText(time)));
    }

    /** Adds any other condition or action, by its name in docs/control.md: {@code with("reset", true)}. */
    public Fault with(String field, Object value) {
        Map<String, Object> more = new LinkedHashMap<>(fields);
        more.put(field, value);
        return new Fault(more);
    }

    Map<String, Object> fields() {
        return fields;
    }
}
