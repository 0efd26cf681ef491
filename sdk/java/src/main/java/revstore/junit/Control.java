package revstore.junit;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.net.HttpURLConnection;
import java.net.Proxy;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * A client of the control port of a server: time, faults, watches, store and journal. It can be used by several threads.
 *
 * <p>Requests that the server refuses throw {@link ControlException}. docs/control.md has the verbs.
 */
public final class Control {
    private final String url;

    Control(String url) {
        this.url = url;
    }

    /** The point at which a request took effect. */
    public record Point(long revision, Duration time) {}

    /** The state of the clock. */
    public record Clock(long revision, Duration time, String mode, Duration now) {}

    /** Work that is due at a time. */
    public record Pending(String kind, String id, Duration due) {}

    /** A rule, with the number of requests for which it has fired. */
    public record FaultStatus(long id, String rule, long fired) {}

    /** An open watch. */
    public record Watch(long id, String client, String user, byte[] key, byte[] rangeEnd, long start, long position, long lag, String state) {}

    /** An open connection. */
    public record Connection(long id, String address, String client, Duration since, long requests) {}

    /** A lease; the id is hexadecimal, as etcdctl writes it. */
    public record Lease(String id, long number, Duration ttl, Duration remaining, long keys) {}

    /** Keys from a first one to an end, which is not included. */
    public record Range(byte[] key, byte[] rangeEnd) {}

    /** A request, or an event of a stream. */
    public record Record(
            long revision, Duration time, long number, String event, String method, String client, String user, long connection,
            List<Range> keys, String code, String error, Duration duration, long rule, long watch, long lag, long dropped) {}

    /** A fork: its id, the URL for clients, and that of its control. */
    public record Fork(String id, String endpoint, String control) {}

    /** Changes the mode of the clock: system, manual or auto. */
    public Clock setClock(String mode) {
        return call("ClockSet", Map.of("mode", mode), Clock.class);
    }

    /** Moves the time. Everything that became due is done when this returns. */
    public Clock advance(Duration by) {
        return call("ClockAdvance", Map.of("by", Durations.toText(by)), Clock.class);
    }

    /** Moves the time to the next due work. */
    public Clock advanceToNext() {
        return call("ClockAdvance", Map.of("to_next", true), Clock.class);
    }

    /** Lists what is due, at most 1,000 entries. */
    public List<Pending> pending() {
        return call("ClockPending", Map.of(), Lists.class).pending;
    }

    /** Adds a rule and returns its number. */
    public long addFault(Fault fault) {
        return call("FaultAdd", fault.fields(), FaultStatus.class).id();
    }

    /** Lists the rules. */
    public List<FaultStatus> faults() {
        return call("FaultList", Map.of(), Lists.class).faults;
    }

    /** Removes a rule and releases what it holds. */
    public void clearFault(long id) {
        call("FaultClear", Map.of("id", id), Point.class);
    }

    /** Removes all rules. */
    public void clearFaults() {
        call("FaultClear", Map.of(), Point.class);
    }

    /** Holds the events of a watch, or without an id of all. */
    public int holdWatches(long... id) {
        return watches("WatchHold", id);
    }

    /** Sends the events of held watches. */
    public int releaseWatches(long... id) {
        return watches("WatchRelease", id);
    }

    /** Ends the streams of watches with an error. */
    public int cutWatches(long... id) {
        return watches("WatchCut", id);
    }

    /** Cancels watches as compacted. */
    public int cancelWatchesCompacted(long... id) {
        return watches("WatchCancelCompacted", id);
    }

    /** Sends progress notifications to watches now. */
    public int bookmarkWatches(long... id) {
        return watches("WatchBookmark", id);
    }

    private int watches(String method, long[] id) {
        Map<String, Object> request = id.length == 0 ? Map.of() : Map.of("id", id[0]);
        return call(method, request, Count.class).watches;
    }

    /** Lists the open watches. */
    public List<Watch> watches() {
        return call("Watches", Map.of(), Lists.class).watches;
    }

    /** Lists the open connections. */
    public List<Connection> connections() {
        return call("Connections", Map.of(), Lists.class).connections;
    }

    /** Keeps the store under a name. */
    public Point checkpoint(String name) {
        return call("StoreCheckpoint", Map.of("name", name), Point.class);
    }

    /** Replaces the store by a checkpoint. */
    public Point restore(String name) {
        return restore(name, 0, false);
    }

    /** Replaces the store by a checkpoint, at a later revision, below which everything may count as compacted. */
    public Point restore(String name, long bumpRevision, boolean markCompacted) {
        return call("StoreRestore", Map.of("name", name, "bump_revision", bumpRevision, "mark_compacted", markCompacted), Point.class);
    }

    /** Replaces the store by an empty one, at revision 1 or at the current one. */
    public Point reset(boolean keepRevision) {
        return call("StoreReset", Map.of("keep_revision", keepRevision), Point.class);
    }

    /** Makes the next write get a revision. */
    public Point jump(long revision) {
        return call("StoreJump", Map.of("revision", revision), Point.class);
    }

    /** Compacts at a revision, or with 0 at the current one. */
    public Point compact(long revision) {
        return call("StoreCompact", Map.of("revision", revision), Point.class);
    }

    /** Starts an independent server with the same history. */
    public Fork fork() {
        return call("StoreFork", Map.of(), Fork.class);
    }

    /** Lists the forks. */
    public List<Fork> forks() {
        return call("StoreForks", Map.of(), Lists.class).forks;
    }

    /** Ends a fork, or removes a checkpoint. */
    public Point drop(String id) {
        return call("StoreDrop", Map.of("id", id), Point.class);
    }

    /** Writes the store as text. */
    public void dump(OutputStream to) {
        copy("StoreDump", Map.of(), to);
    }

    /** Replaces the store by a dump. */
    public Point load(byte[] dump) {
        return send("StoreLoad", dump, Point.class);
    }

    /** Replaces the store by a file of {@code etcdctl snapshot save}. */
    public Point importSnapshot(byte[] snapshot) {
        return send("StoreImport", snapshot, Point.class);
    }

    /** Lists the leases in the order of their expiry, at most 1,000. */
    public List<Lease> leases() {
        return call("Leases", Map.of(), Lists.class).leases;
    }

    /** Ends a lease now, as if its time had passed. */
    public Point expire(long lease) {
        return call("Expire", Map.of("number", lease), Point.class);
    }

    /** Raises an alarm: nospace or corrupt. */
    public Point raiseAlarm(String name) {
        return call("Alarm", Map.of("action", "raise", "name", name), Point.class);
    }

    /** Clears an alarm. */
    public Point clearAlarm(String name) {
        return call("Alarm", Map.of("action", "clear", "name", name), Point.class);
    }

    /** Begins the next Raft term, and returns it. */
    public long newTerm() {
        return call("TermNew", Map.of(), Term.class).term;
    }

    /** Returns the records of methods, or without any of all requests and streams. */
    public List<Record> journal(String... methods) {
        Map<String, Object> filter = methods.length == 0 ? Map.of() : Map.of("methods", List.of(methods));
        try (var lines = new BufferedReader(new InputStreamReader(open("JournalRead", json(filter)), StandardCharsets.UTF_8))) {
            return lines.lines().map(line -> Json.GSON.fromJson(line, Record.class)).toList();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /**
     * Returns the records of methods, or without any of all requests and streams, and goes on with new ones. The stream waits for
     * them, and must be closed.
     */
    public Stream<Record> followJournal(String... methods) {
        Map<String, Object> filter = new LinkedHashMap<>(Map.of("follow", true));
        if (methods.length > 0) {
            filter.put("methods", List.of(methods));
        }
        try {
            var lines = new BufferedReader(new InputStreamReader(open("JournalRead", json(filter)), StandardCharsets.UTF_8));
            return lines.lines().map(line -> Json.GSON.fromJson(line, Record.class)).onClose(() -> close(lines));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static void close(BufferedReader lines) {
        try {
            lines.close();
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    /** Writes the journal with the requests as JSON, one record in each line, for {@code revstore ctl journal replay}. */
    public void writeJournal(OutputStream to) {
        copy("JournalRead", Map.of("requests", true), to);
    }

    /** Waits until the store has a revision. The timeout is time of the system. */
    public Point waitRevision(long revision, Duration timeout) {
        return await("min_revision", revision, timeout);
    }

    /** Waits until a key is live. */
    public Point waitKey(String key, Duration timeout) {
        return await("key", Base64.getEncoder().encodeToString(key.getBytes(StandardCharsets.UTF_8)), timeout);
    }

    /** Waits until at least this many watches are open. */
    public Point waitWatchers(long count, Duration timeout) {
        return await("watchers", count, timeout);
    }

    private Point await(String name, Object value, Duration timeout) {
        Map<String, Object> request = new LinkedHashMap<>(Map.of(name, value));
        request.put("timeout", Durations.toText(timeout));
        return call("Wait", request, Point.class);
    }

    /** Sends a request of any method, with the fields of docs/control.md. */
    public <T> T call(String method, Map<String, ?> request, Class<T> type) {
        return send(method, json(request), type);
    }

    private <T> T send(String method, byte[] body, Class<T> type) {
        try (var answer = new InputStreamReader(open(method, body), StandardCharsets.UTF_8)) {
            return Json.GSON.fromJson(answer, type);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private void copy(String method, Map<String, ?> request, OutputStream to) {
        try (var answer = open(method, json(request))) {
            answer.transferTo(to);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static byte[] json(Map<String, ?> request) {
        return Json.GSON.toJson(request).getBytes(StandardCharsets.UTF_8);
    }

    /** Sends a body and returns the answer. */
    private InputStream open(String method, byte[] body) throws IOException {
        var target = URI.create(url + "/control/v1/" + method).toURL();
        // Control is never reached through a proxy.
        var connection = (HttpURLConnection) target.openConnection(Proxy.NO_PROXY);
        connection.setRequestMethod("POST");
        connection.setDoOutput(true);
        connection.setFixedLengthStreamingMode(body.length);
        try (var request = connection.getOutputStream()) {
            request.write(body);
        }
        if (connection.getResponseCode() == HttpURLConnection.HTTP_OK) {
            return connection.getInputStream();
        }
        try (var refused = connection.getErrorStream()) {
            var text = refused == null ? "" : new String(refused.readAllBytes(), StandardCharsets.UTF_8);
            var fields = text.startsWith("{") ? Json.GSON.fromJson(text, Refused.class) : new Refused(2, connection.getResponseMessage());
            throw new ControlException(method, fields.code, fields.error);
        }
    }

    private record Refused(int code, String error) {}

    private record Count(int watches) {}

    private record Term(long term) {}

    /** The answers with lists; a request fills one of them. */
    private record Lists(
            List<Pending> pending, List<FaultStatus> faults, List<Watch> watches, List<Connection> connections, List<Fork> forks, List<Lease> leases) {}
}
