"""The faults of a Kubernetes API, and what is seen of an informer under each of them.

Each cell is a function of a `Session`; it returns what was observed, in the words of the table, and the text of the errors
that the informer reports, if there are some. Requests are counted in the journal of the server.
"""

import time

from server import ApiServer, Driver, Relay

# How long an informer is waited for that may never do what is expected.
PATIENCE = 20

# How long the handlers of an informer are waited for when its store has changed already: they may get it later.
GRACE = 5

MAPS = "/api/v1/namespaces/default/configmaps"
ELSEWHERE = "/api/v1/namespaces/kube-system/configmaps"

# A rule whose requests wait until it is removed.
WAIT = {"next": 1, "delay": {"time": "1h", "wall": True}}


class Session:
    """A server with config maps, and an informer of them in a driver that is connected to it."""

    def __init__(self, binary, arguments, directory, flags=(), relay=False, more=0, started=True):
        self.server = ApiServer(binary, *flags)
        self.driver = Driver(arguments, directory)
        self.relay = None
        self.number = None
        try:
            kubeconfig = self.server.kubeconfig
            if relay:
                self.relay = Relay(self.server.address)
                kubeconfig = self.server.kubeconfig_at(self.relay.address)
            connected = self.driver.call("connect", kubeconfig=kubeconfig)
            if connected is None or connected["event"] != "returned":
                raise RuntimeError(f"the driver did not connect: {connected}")
            # No cell changes it: a watch that sends its revision begins with all objects.
            self.first = self.create("kept", "old")
            for number in range(more):
                self.create(f"more{number:03}", "old")
            self.create("changed", "old")
            self.create("removed", "old")
            if started:
                self.start()
                assert self.driver.wait(self.number, "synced"), self.driver.events(self.number)
                self.wait_for_watch()
                # client-go takes a watch of less than a second without an event for an error.
                self.update("changed", "seen")
                assert self.is_current(), self.driver.events(self.number)
            self.mark()
        except BaseException:
            self.close()
            raise

    def close(self):
        self.driver.close()
        if self.relay:
            self.relay.close()
        self.server.close()

    def start(self):
        """Starts the informer."""
        self.number = self.driver.send("informer")

    def fault(self, **rule):
        """Adds a rule for the config maps, and returns its id."""
        return self.server.control("FaultAdd", resource="configmaps", **rule)["id"]

    def clear(self, rule):
        self.server.control("FaultClear", id=rule)

    def wait_for_watch(self):
        self.server.control("Wait", watchers=1, timeout="60s")

    def until(self, condition, timeout=PATIENCE):
        """Waits until something holds that nobody reports, and returns whether this happened."""
        ends = time.monotonic() + timeout
        while time.monotonic() < ends:
            if condition():
                return True
            time.sleep(0.02)
        return False

    def end_watch(self):
        """Lets the time pass after which the watch ends, and returns when the watch has ended."""
        self.server.control("ClockAdvance", by="11m")
        assert self.until(lambda: not self.server.control("Watches").get("watches"))

    def create(self, name, value):
        """Creates an object, and returns its revision."""
        created = self.server.request("POST", MAPS, {"metadata": {"name": name}, "data": {"value": value}})
        return int(created["metadata"]["resourceVersion"])

    def update(self, name, value):
        self.server.request("PUT", f"{MAPS}/{name}", {"metadata": {"name": name}, "data": {"value": value}})

    def change(self):
        """Changes an object, removes one and adds one."""
        self.update("changed", "new")
        self.server.request("DELETE", f"{MAPS}/removed")
        self.create("added", "new")

    def objects(self):
        """What the server has: the names and values."""
        items = self.server.request("GET", MAPS)["items"]
        return {item["metadata"]["name"]: item["data"]["value"] for item in items}

    def store(self):
        """What the informer has."""
        return self.driver.call("store")["objects"]

    def is_current(self, timeout=PATIENCE):
        """Waits until the informer has what the server has, and returns whether this happened."""
        expected = self.objects()
        ends = time.monotonic() + timeout
        while True:
            seen = len(self.driver.events(self.number))
            if self.store() == expected:
                return True
            if not self.driver.wait_more(self.number, seen, ends - time.monotonic()):
                return self.store() == expected

    def mark(self):
        """Counts requests and events from now on."""
        self.place = max((int(record["number"]) for record in self.server.journal()), default=0)
        self.seen = len(self.driver.events(self.number)) if self.number else 0

    def items(self):
        """What the handlers of the informer got since the mark."""
        return [e for e in self.driver.events(self.number)[self.seen :] if e["event"] == "item"]

    def errors(self):
        """The texts of the errors that the informer has reported."""
        return [e.get("text", "") for e in self.driver.events(self.number, "failed")]

    def records(self, *methods):
        """The records of the client's requests since the mark."""
        return [
            record
            for record in self.server.journal(*methods)
            if int(record["number"]) > self.place
            and record["resource"] == "configmaps"
            and record["client"] != ApiServer.NAME
        ]

    def requests(self):
        """The numbers of lists, of watches, and of those that sent all objects."""
        lists = self.records("list")
        watches = self.records("watch")
        opened = [r for r in watches if r["event"] == "opened"]
        # A request for which no watch was opened, with an error or without an answer. 101 is that of a WebSocket.
        refused = [r for r in watches if r["event"] == "request" and r["status"] not in (101, 200)]
        whole = {r["watch"] for r in watches if r["event"] == "progress" and int(r["revision"]) == self.first}
        # The later pages of a list do not have the first object.
        whole_lists = [r for r in lists if r["status"] == 200]
        return len(lists), len(opened) + len(refused), len(whole_lists) + len(whole)


def times(count):
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def counts(session):
    lists, watches, _ = session.requests()
    return f"{lists} LIST, {watches} WATCH"


def way(session, counted=True):
    """How an informer has got all changes."""
    lists, watches, whole = session.requests()
    if lists + watches == 0:
        return "goes on"
    words = f"relists {times(whole)}" if whole else "resumes"
    return f"{words} ({counts(session)})" if counted else words


def not_notified(session):
    """The changes of `Session.change` that the handlers did not get."""
    changes = {
        ("applied", "changed"): "update",
        ("deleted", "removed"): "deletion",
        ("applied", "added"): "creation",
    }
    items = {(item["kind"], item["key"]) for item in session.items()}
    missing = [words for change, words in changes.items() if change not in items]
    return [f"**no event of the {' and the '.join(missing)}**"] if missing else []


def reported(session, words):
    """A cell with these words and the errors of the informer."""
    errors = session.errors()
    return ", ".join([*words, *(["reports an error"] if errors else [])]), "; ".join(dict.fromkeys(errors))


def outcome(session, timeout=PATIENCE):
    """What has become of an informer that has to get the changes of `Session.change`."""
    if session.is_current(timeout):
        session.wait_for_watch()
        session.until(lambda: not not_notified(session), GRACE)
        return reported(session, [way(session), *not_notified(session)])
    return reported(session, [f"**nothing within {timeout} s** ({counts(session)})"])


def obeys(took, rule):
    """Whether a client has waited as `Retry-After` demands."""
    demanded = rule.get("http", {}).get("retry_after", 0) * rule.get("next", 0)
    if not demanded:
        return []
    # The first request was seen some time after it came. Without the demand the waits are less than half as long.
    return ["obeys `Retry-After`" if took >= 0.8 * demanded else "**ignores `Retry-After`**"]


def loading(**rule):
    """An informer starts while a rule applies to all its requests."""

    def cell(session):
        session.fault(**rule)
        session.start()
        # Its program may take a while until then.
        session.until(lambda: session.records("list", "watch"))
        begun = time.monotonic()
        if not session.driver.wait(session.number, "synced", timeout=PATIENCE):
            return reported(session, [f"**not loaded within {PATIENCE} s** ({counts(session)})"])
        took = time.monotonic() - begun
        session.wait_for_watch()
        return reported(session, [f"loads ({counts(session)})", *obeys(took, rule)])

    return cell


def expired_page(session):
    """The second page of the first list is asked for after a compaction."""
    waiting = session.fault(verb="list", every=2, delay=WAIT["delay"])
    session.start()

    def has_pages():
        return session.server.control("FaultList")["faults"][0]["fired"] > 0

    session.until(lambda: has_pages() or session.driver.events(session.number, "synced"))
    suffix = [] if has_pages() else ["asks for no pages"]
    session.update("changed", "new")
    session.server.control("StoreCompact")
    session.clear(waiting)
    if not session.driver.wait(session.number, "synced", timeout=PATIENCE) or not session.is_current():
        return reported(session, [f"**not loaded within {PATIENCE} s** ({counts(session)})"])
    session.wait_for_watch()
    return reported(session, [f"loads ({counts(session)})", *suffix])


def ended(**rule):
    """The watch ends at its time limit. The changes happen before the next one, for which there may be a rule."""

    def cell(session):
        waiting = session.fault(verb="watch", **WAIT)
        if rule:
            session.fault(verb="watch", **rule)
        session.end_watch()
        session.change()
        begun = time.monotonic()
        session.clear(waiting)
        words, text = outcome(session)
        return ", ".join([words, *obeys(time.monotonic() - begun, rule)]), text

    return cell


def cut(session):
    waiting = session.fault(verb="watch", **WAIT)
    session.server.control("WatchCut")
    session.change()
    session.clear(waiting)
    return outcome(session)


def cancelled(session):
    # So that the informer does not get the changes before the end of the watch.
    session.server.control("WatchHold")
    session.change()
    session.server.control("WatchCancelCompacted")
    return outcome(session)


def held(session):
    expected = [f"{number:04}" for number in range(1000)]
    session.server.control("WatchHold")
    for value in expected:
        session.update("changed", value)
    assert not session.items(), session.items()
    read = session.driver.call("get", timeout=5, key="kept")
    session.server.control("WatchRelease")
    session.until(lambda: len(session.items()) >= len(expected))
    values = [item["value"] for item in session.items()]
    words = ["other calls go on" if read and read["event"] == "returned" else "**other calls hang**"]
    if values == expected:
        words.append("then all 1,000 events in order")
    else:
        words.append(f"then {len(set(values))} of 1,000 events")
        words += [] if values == sorted(values) else ["**another order**"]
    if (found := way(session)) != "goes on":
        words.append(found)
    return reported(session, words)


def broken(act, limits):
    """The connection of the watch breaks. The changes happen before the next watch."""

    def cell(session):
        waiting = session.fault(verb="watch", **WAIT)
        begun = time.monotonic()
        act(session.relay)
        session.change()
        session.clear(waiting)
        return within(session, begun, limits)

    return cell


def within(session, begun, limits):
    """The outcome, with the first of some limits within which it happens."""
    words, text = outcome(session, limits[-1])
    took = time.monotonic() - begun
    if "nothing" in words:
        return words, text
    return f"within {next((limit for limit in limits if took < limit), limits[-1])} s: {words}", text


def black_hole_request(session):
    session.fault(verb="watch", next=1, black_hole=True)
    session.end_watch()
    begun = time.monotonic()
    session.change()
    return within(session, begun, (20, 60))


def goaway(session):
    session.fault(verb="get", every=5, goaway=True)
    calls = [session.driver.call("get", timeout=PATIENCE, key="kept") for _ in range(20)]
    succeeded = sum(call is not None and call["event"] == "returned" for call in calls)
    session.change()
    words, text = outcome(session)
    texts = [call["text"] for call in calls if call and call["event"] == "failed"]
    return f"{'all' if succeeded == 20 else succeeded} of 20 calls succeed; {words}", text or "; ".join(texts[:1])


def stale(session):
    """A server that lags behind answers the lists after the end of a watch."""
    past = session.server.control("Watches")["revision"]
    session.update("changed", "new")
    assert session.is_current()
    session.mark()
    lagging = session.fault(verb="list", stale=True, stale_revision=past)
    session.server.control("WatchCancelCompacted")
    session.until(lambda: session.requests()[2])
    session.clear(lagging)
    session.wait_for_watch()

    def shown():
        return [item["value"] for item in session.items() if item["key"] == "changed"]

    is_current = session.is_current()
    session.until(lambda: shown()[-1:] == ["new"], GRACE)
    values = shown()
    words = ["**goes back to the older state**" if "seen" in values else "does not go back"]
    words.append("then current" if is_current else f"**not current within {PATIENCE} s**")
    return reported(session, [*words, way(session)])


def restored(bump):
    """The store goes back while a watch is open; `bump` is the way that etcd recommends."""

    def cell(session):
        session.server.control("StoreCheckpoint", name="backup")
        session.update("changed", "lost")
        lost = [f"lost{number}" for number in range(5)]
        for name in lost:
            session.create(name, "lost")
        assert session.is_current()
        session.mark()
        session.server.control(
            "StoreRestore",
            name="backup",
            **({"bump_revision": 1000, "mark_compacted": True} if bump else {}),
        )
        session.server.disconnect()
        session.wait_for_watch()
        new = [f"new{number:02}" for number in range(12)]
        for name in new:
            session.create(name, "new")
        current = session.is_current()

        def deletions():
            return {item["key"] for item in session.items() if item["kind"] == "deleted"} & set(lost)

        if current:
            session.until(lambda: len(deletions()) == len(lost), GRACE)
        has, had = session.objects(), session.store()
        items = session.items()
        # How often it connects until the old connections have ended differs.
        words = [way(session, counted=False)]
        missed = [name for name in new if name not in {item["key"] for item in items}]
        if missed:
            words.append(f"**misses {len(missed)} of {len(new)} events**")
        ghosts = [name for name in had if name not in has]
        if ghosts:
            words.append(f"**keeps {len(ghosts)} objects that are gone**")
        if had.get("changed") != has["changed"]:
            words.append("**keeps a value that is gone**")
        kept = len(lost) - len(deletions())
        if current and kept:
            words.append(f"**no event of {kept} deletions**")
        # Without a compaction the only error is that of a connection which ends, as it happens, before the client knows.
        return reported(session, words) if bump else (", ".join(words), "")

    return cell


def quiet(session):
    """Only other namespaces change, until the watch has ended and its revision has left the window of the server."""
    for _ in range(8):
        for _ in range(50):
            session.server.request("POST", ELSEWHERE, {"metadata": {"generateName": "other-"}})
        session.server.control("StoreCompact")
        session.server.control("ClockAdvance", by="100s")
        # After its time limit, the informer opens another one.
        session.wait_for_watch()
    session.change()
    current = session.is_current()
    session.until(lambda: not not_notified(session), GRACE)
    words = [way(session, counted=False) if current else f"**not current within {PATIENCE} s**"]
    return reported(session, [*words, *not_notified(session)])


def call_words(session, verb, ended):
    attempts = sum(record["event"] == "request" for record in session.records(verb))
    words = [f"retries {times(attempts - 1)}"] if attempts > 1 else []
    return [*words, "no answer" if ended is None else "succeeds" if ended["event"] == "returned" else "fails"]


def conflict(helper):
    def cell(session):
        session.fault(verb="update", next=1, http={"status": 409})
        ended = session.driver.call("update", timeout=PATIENCE, key="kept", value="new", helper=helper)
        if ended and ended.get("value") == "no helper":
            return "has none", ""
        words = call_words(session, "update", ended)
        if session.records("patch"):
            words.append("by a PATCH, which does not meet the rule")
        return ", ".join(words), (ended or {}).get("text", "")

    return cell


def lost_create(failure):
    def cell(session):
        session.fault(verb="create", next=1, error_after=failure)
        ended = session.driver.call("create", timeout=PATIENCE, key="made-", value="new")
        made = sum(name.startswith("made-") for name in session.objects())
        words = call_words(session, "create", ended)
        words.append("created once" if made == 1 else f"**created {times(made)}**")
        return ", ".join(words), (ended or {}).get("text", "")

    return cell


LATER = {"started": False}
MANUAL = {"flags": ("--control-clock=manual",)}
RELAY = {"relay": True}

# The rows: the fault in words, the cell, and what a session needs for it.
ROWS = {
    "load-429": (
        "429 with `Retry-After: 5` for the first 2 requests",
        loading(next=2, http={"status": 429, "retry_after": 5}),
        LATER,
    ),
    "load-500": ("500 for the first 3 requests", loading(next=3, http={"status": 500}), LATER),
    "load-503": ("503 for the first 3 requests", loading(next=3, http={"status": 503}), LATER),
    "load-403": ("403 for the first 2 requests", loading(next=2, http={"status": 403}), LATER),
    "expired-page": ("600 objects, compaction after the first page", expired_page, {"more": 600, **LATER}),
    "end": ("end of the watch at its time limit", ended(), MANUAL),
    "watch-429": (
        "end of the watch, then 429 with `Retry-After: 5` for 2 watches",
        ended(next=2, http={"status": 429, "retry_after": 5}),
        MANUAL,
    ),
    "watch-500": ("end of the watch, then 500 for 2 watches", ended(next=2, http={"status": 500}), MANUAL),
    "watch-503": ("end of the watch, then 503 for 2 watches", ended(next=2, http={"status": 503}), MANUAL),
    "watch-401": ("end of the watch, then 401 for 2 watches", ended(next=2, http={"status": 401}), MANUAL),
    "watch-403": ("end of the watch, then 403 for 2 watches", ended(next=2, http={"status": 403}), MANUAL),
    "quiet": ("changes only elsewhere, bookmarks and compactions for 800 s", quiet, MANUAL),
    "cancelled": ("watch ended with 410 `Expired`", cancelled, {}),
    "cut": ("stream of a watch cut", cut, {}),
    "reset": ("connection of a watch reset", broken(Relay.reset, (10, 20)), RELAY),
    "black-hole": ("black hole under a watch", broken(Relay.freeze, (20, 60)), RELAY),
    "black-hole-request": ("black hole under the request for a watch", black_hole_request, MANUAL),
    "goaway": ("GOAWAY after each fifth GET", goaway, {}),
    "held-watch": ("watch held for 1,000 events", held, {}),
    "stale": ("410 `Expired`, then lists of an older state", stale, {}),
    "restored": ("store restored to an older revision under a watch", restored(False), {}),
    "restored-bumped": ("store restored with the revision bumped and marked compacted", restored(True), {}),
    "conflict": ("409 for an update", conflict(False), LATER),
    "conflict-helper": ("409 for an update with the client's helper for conflicts", conflict(True), LATER),
    "lost-create": ("answer of a create with `generateName` lost: 500", lost_create("500:connection lost"), LATER),
    "lost-create-503": ("answer of a create with `generateName` lost: 503", lost_create("503:connection lost"), LATER),
    "lost-create-504": ("answer of a create with `generateName` lost: 504", lost_create("504:connection lost"), LATER),
}
