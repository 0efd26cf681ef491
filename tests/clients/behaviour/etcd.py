"""The faults of an etcd, and what is seen of a client under each of them.

Each cell is a function of a `Session`; it returns what was observed, in the words of the table, and the text of the error
that a caller gets, if there is one. Words that depend on time have ranges that are far from what was measured.
"""

import contextlib
import re
import time

from server import Driver, Server, Unable

# How long a call is waited for that is expected to hang.
PATIENCE = 20


class Session:
    """A server, and a driver that is connected to it."""

    def __init__(self, binary, arguments, directory, flags=(), prepare=None, **options):
        self.server = Server(binary, *flags)
        self.driver = Driver(arguments, directory)
        try:
            if prepare:
                prepare(self.server)
            connected = self.driver.call("connect", endpoint=self.server.endpoint, **options)
            if connected is None or connected["event"] != "returned":
                raise RuntimeError(f"the driver did not connect: {connected}")
            # So that the connection is open, and the client has its token.
            warm = self.driver.call("put", key="warm", value="")
            if warm is None:
                raise RuntimeError("the driver did not answer: is the machine overloaded?")
            if warm["event"] != "returned":
                raise Unable(warm["text"])
        except BaseException:
            self.close()
            raise

    def close(self):
        self.driver.close()
        self.server.close()

    def fault(self, **rule):
        self.server.control("FaultAdd", **rule)

    def attempts(self, method, since):
        return sum(record["event"] == "request" for record in self.server.journal(method)) - since

    def watch(self, **options):
        return self.driver.send("watch", key="w/", **options)

    def open_watch(self):
        number = self.watch()
        assert self.driver.wait(number, "created"), self.driver.events(number)
        return number

    def keys(self, number):
        return [item["key"] for item in self.driver.events(number, "item")]


def error_of(session, number):
    """The text of the errors of a watch."""
    failed = session.driver.events(number, "failed") + session.driver.events(0, "uncaught")
    return "; ".join(e.get("text", "") for e in failed)


def error_words(session, number):
    """Whether the caller of a watch gets an error, and the revision to go on from after a compaction."""
    failed = session.driver.events(number, "failed") + session.driver.events(0, "uncaught")
    told = any(e.get("revision") or re.search(r"compacted revision \d", e.get("text", "")) for e in failed)
    return ["error, with the compacted revision" if told else "error"] if failed else []


def call(operation, method, **rule):
    """A call that meets a rule once."""

    def cell(session):
        since = session.attempts(method, 0)
        session.fault(methods=[method], next=1, **rule)
        ended = session.driver.call(operation, timeout=PATIENCE, key="k", value="v")
        attempts = session.attempts(method, since)
        words = []
        if attempts > 1:
            words.append("retries once" if attempts == 2 else f"retries {attempts - 1} times")
        if ended is None:
            words.append(f"no answer within {PATIENCE} s")
        elif ended["event"] == "failed":
            words.append("fails")
        elif operation == "create" and ended.get("value") != "succeeded":
            words.append("returns that the condition was false")
        else:
            words.append("succeeds")
        if operation != "get":
            version = session.server.version("k")
            words.append({0: "not written", 1: "written once", 2: "**written twice**"}[version])
        return ", ".join(words), (ended or {}).get("text", "")

    return cell


def black_hole(session):
    since = time.monotonic()
    session.fault(methods=["Put"], next=1, black_hole=True)
    first = session.driver.call("put", timeout=PATIENCE, key="k", value="v")
    elapsed = time.monotonic() - since
    if first is None:
        return f"**no answer within {PATIENCE} s**", ""
    when = next(f"within {limit} s" for limit in (2, 6, 15, PATIENCE + 5) if elapsed < limit)
    second = session.driver.call("put", timeout=PATIENCE, key="k", value="v")
    if second is None:
        then = "the next call hangs, too"
    else:
        then = "the next call succeeds" if second["event"] == "returned" else "the next call fails, too"
    return f"{'fails' if first['event'] == 'failed' else 'succeeds'} {when}, {then}", first.get("text", "")


def goaway(session):
    session.fault(methods=["Put"], every=5, goaway=True)
    ended = [session.driver.call("put", timeout=PATIENCE, key=f"k{i}", value="v") for i in range(20)]
    succeeded = sum(e is not None and e["event"] == "returned" for e in ended)
    texts = [e["text"] for e in ended if e and e["event"] == "failed"]
    return f"{'all' if succeeded == 20 else succeeded} of 20 calls succeed", texts[0] if texts else ""


def after(session, number, key):
    """What a client does after its watch was ended: whether it goes on, fails, or is silent."""
    driver = session.driver
    # A client that opens its watch again may do so some time later.
    deadline = time.monotonic() + 4
    while key not in session.keys(number) and time.monotonic() < deadline:
        time.sleep(0.05)
    text = error_of(session, number)
    words = error_words(session, number)
    if key in session.keys(number):
        words.append("goes on")
    elif words or driver.events(number, "ended"):
        words.append("ends")
    else:
        words.append("**silent: no error, no more events**")
    return words, text


def compacted_watch(session):
    number = session.open_watch()
    session.server.put("w/1")
    assert session.driver.wait(number, "item")
    session.server.control("WatchCancelCompacted")
    time.sleep(1)
    session.server.put("w/2")
    session.server.put("w/3")
    words, text = after(session, number, "w/3")
    if words[-1] == "goes on" and "w/2" not in session.keys(number):
        words.append("**a gap**")
    return ", ".join(words), text


def compacted_start(session):
    for i in range(5):
        session.server.put(f"w/{i}")
    session.server.control("StoreCompact")
    number = session.watch(revision=2)
    session.driver.wait(number, "failed", "created", timeout=2)
    session.server.put("w/after")
    words, text = after(session, number, "w/after")
    return ", ".join(words), text


def sequence(keys, expected):
    """How the keys of events differ from those that were written."""
    words = []
    missing = [key for key in expected if key not in keys]
    if missing:
        words.append(f"**misses {len(missing)} of {len(expected)} events**")
    if len(set(keys)) < len(keys):
        words.append(f"{len(keys) - len(set(keys))} events twice")
    if not words:
        words.append("no gap, nothing twice" if keys == expected else "**another order**")
    return words


def cut_watch(session):
    number = session.open_watch()
    expected = [f"w/{i:02}" for i in range(10)]
    for key in expected[:5]:
        session.server.put(key)
    assert session.driver.wait(number, "item", count=5)
    # So that events happen while there is no watch.
    session.fault(methods=["Watch"], next=1, delay={"time": "500ms", "wall": True})
    session.server.control("WatchCut")
    for key in expected[5:]:
        session.server.put(key)
    session.driver.wait(number, "item", count=10, timeout=5)
    keys = session.keys(number)
    if len(keys) == 5:
        words, text = after(session, number, expected[9])
        return ", ".join(words), text
    words = [*error_words(session, number), "goes on", *sequence(keys, expected)]
    return ", ".join(words), error_of(session, number)


def restored(bump):
    """The store goes back while a watch is open; `bump` is the way that etcd recommends."""

    def cell(session):
        number = session.open_watch()
        expected = [f"w/old{i}" for i in range(8)]
        for key in expected[:2]:
            session.server.put(key)
        session.server.control("StoreCheckpoint", name="backup")
        for key in expected[2:]:
            session.server.put(key)
        assert session.driver.wait(number, "item", count=8)
        session.server.control(
            "StoreRestore",
            name="backup",
            **({"bump_revision": 1000, "mark_compacted": True} if bump else {}),
        )
        # Clients of gRPC wait about a second before they connect again.
        with contextlib.suppress(RuntimeError):
            session.server.control("Wait", watchers=1, timeout="4s")
        new = [f"w/new{i:02}" for i in range(12)]
        for key in new:
            session.server.put(key)
        session.driver.wait(number, "item", count=20, timeout=2)
        keys = session.keys(number)[8:]
        text = error_of(session, number)
        words = error_words(session, number)
        if keys:
            words.append("goes on")
            words += sequence(keys, new)
        elif words or session.driver.events(number, "ended"):
            words.append("ends")
        else:
            words.append("**silent: no error, no more events**")
        return ", ".join(words), text

    return cell


def held_watch(session):
    number = session.open_watch()
    session.server.control("WatchHold")
    expected = [f"w/{i:04}" for i in range(1000)]
    for key in expected:
        session.server.put(key)
    other = session.driver.call("put", timeout=5, key="other", value="")
    early = session.keys(number)
    assert not early, early
    session.server.control("WatchRelease")
    session.driver.wait(number, "item", count=1000, timeout=10)
    calls = "other calls go on" if other and other["event"] == "returned" else "**other calls hang**"
    words = sequence(session.keys(number), expected)
    return f"{calls}; then all 1,000 events, {', '.join(words)}", error_of(session, number)


def lock(session, ttl):
    number = session.driver.send("lock", key="lock", ttl=ttl)
    assert session.driver.wait(number, "returned"), session.driver.events(number)
    # The client renews its lease.
    deadline = time.monotonic() + 10
    while not session.server.journal("LeaseKeepAlive") and time.monotonic() < deadline:
        time.sleep(0.02)
    return number


def notice(session, number, lease_end, ttl, limits):
    """When the holder of a lock learns that its lease is gone."""
    noticed = session.driver.wait(number, "lost", timeout=max(3 * ttl, 10))
    if not noticed:
        return f"**not noticed within {max(3 * ttl, 10)} s**", ""
    event = session.driver.events(number, "lost")[0]
    late = event["at"] - lease_end
    if late < -0.25:
        when = "noticed before the lease ends"
    else:
        when = next(f"noticed within {limit} s" for limit in limits if late < limit)
    return when, event["text"]


def expired_session(session):
    ttl = 9
    number = lock(session, ttl)
    lease = session.server.control("Leases")["leases"][0]["id"]
    session.server.control("Expire", id=lease)
    # At the next renewal, a third of the time to live later.
    return notice(session, number, time.monotonic(), ttl, (6, 60))


def lost_keep_alives(session):
    ttl = 4
    number = lock(session, ttl)
    session.fault(lose_keep_alive=True)
    deadline = time.monotonic() + 20
    while session.server.control("Leases").get("leases") and time.monotonic() < deadline:
        time.sleep(0.02)
    return notice(session, number, time.monotonic(), ttl, (2, 6, 60))


def with_users(server):
    server.gateway("auth/user/add", name="root", password="secret")
    server.gateway("auth/role/add", name="root")
    server.gateway("auth/user/grant", user="root", role="root")
    server.gateway("auth/enable")


def with_token(cell):
    """A cell that has users, and cannot look at the store without a token."""

    def run(session):
        token = session.server.gateway("auth/authenticate", name="root", password="secret")["token"]
        session.server.authorize(token)
        return cell(session)

    return run


def expired_token(session):
    session.server.control("ClockAdvance", by="1h")
    since = session.attempts("Put", 0)
    ended = session.driver.call("put", timeout=PATIENCE, key="k", value="v")
    attempts = session.attempts("Put", since)
    words = ["logs in again"] if attempts > 1 else []
    words.append("no answer" if ended is None else "succeeds" if ended["event"] == "returned" else "fails")
    again = session.driver.call("put", timeout=PATIENCE, key="k", value="v")
    if ended and ended["event"] == "failed":
        succeeds = again and again["event"] == "returned"
        words.append("the next call succeeds" if succeeds else "**the next calls fail, too**")
    return ", ".join(words), (ended or {}).get("text", "")


USERS = {"prepare": with_users, "user": "root", "password": "secret"}

# The rows: the fault in words, the cell, and what a session needs for it.
ROWS = {
    "lost-answer": ("the answer of a Put is lost", call("put", "Put", error_after="UNAVAILABLE:connection lost"), {}),
    "lost-answer-txn": (
        "the answer of a Txn that creates a key is lost",
        call("create", "Txn", error_after="UNAVAILABLE:connection lost"),
        {},
    ),
    "reset-txn": ("connection reset by a Txn, before it is executed", call("create", "Txn", reset=True), {}),
    "no-leader-read": ("no leader: Range", call("get", "Range", preset="no-leader"), {}),
    "no-leader-write": ("no leader: Put", call("put", "Put", preset="no-leader"), {}),
    "leader-changed-read": ("leader changed: Range", call("get", "Range", preset="leader-changed"), {}),
    "leader-changed-write": ("leader changed: Put", call("put", "Put", preset="leader-changed"), {}),
    "too-many-requests": ("too many requests: Put", call("put", "Put", preset="too-many-requests"), {}),
    "goaway": ("GOAWAY after each fifth Put", goaway, {}),
    "black-hole": ("black hole under a Put, default settings", black_hole, {}),
    "black-hole-keepalive": ("black hole under a Put, pings each 10 s, timeout 1 s", black_hole, {"keepalive": True}),
    "watch-compacted": ("watch cancelled as compacted", compacted_watch, {}),
    "watch-compacted-start": ("watch opened at a compacted revision", compacted_start, {}),
    "watch-cut": ("stream of a watch ended with an error", cut_watch, {}),
    "restored": ("store restored to an older revision under a watch", restored(False), {}),
    "restored-bumped": ("the same with the revision bumped and marked compacted", restored(True), {}),
    "held-watch": ("watch held for 1,000 events", held_watch, {}),
    "expired-session": ("lease of a held lock expired (TTL 9 s)", expired_session, {}),
    "lost-keep-alives": ("keep-alives of a held lock lost (TTL 4 s)", lost_keep_alives, {}),
    "auth-revision-read": (
        "old auth revision: Range",
        with_token(call("get", "Range", preset="auth-revision")),
        USERS,
    ),
    "auth-revision-write": (
        "old auth revision: Put",
        with_token(call("put", "Put", preset="auth-revision")),
        USERS,
    ),
    "expired-token": ("expired token of auth: Put", expired_token, {**USERS, "flags": ("--control-clock=manual",)}),
}
