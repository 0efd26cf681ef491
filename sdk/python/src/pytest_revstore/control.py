"""Control of a server: time, faults, watches, store, journal."""

import base64
import http.client
import json
from types import SimpleNamespace
from urllib.parse import urlsplit

from . import durations

_TIMES = {"time", "now", "due", "ttl", "remaining", "since", "duration"}
_KEYS = {"key", "range_end"}


class ControlError(Exception):
    """A request that the server refused, with the code of gRPC and the text."""

    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12

    def __init__(self, method, code, text):
        super().__init__(f"{method}: {text} (code {code})")
        self.method = method
        self.code = code
        self.text = text


class Control:
    """A client of the control port with a URL. It can be used by several threads.

    Durations are timedeltas, numbers of seconds, or texts such as "1m30s". Answers have the fields of
    docs/control.md as attributes, durations and times as timedeltas and keys as bytes.
    """

    def __init__(self, url):
        self.url = url

    # Time

    def set_clock(self, mode):
        """Change the mode of the clock: "system", "manual" or "auto"."""
        return self.call("ClockSet", mode=mode)

    def advance(self, by):
        """Move the time. Everything that became due is done when this returns."""
        return self.call("ClockAdvance", by=durations.to_text(by))

    def advance_to_next(self):
        """Move the time to the next due work."""
        return self.call("ClockAdvance", to_next=True)

    def pending(self):
        """List what is due, at most 1,000 entries."""
        return self.call("ClockPending").pending

    # Faults

    def add_fault(self, *methods, prefix=None, range=None, delay=None, delay_wall=False, **rule):
        """Add a rule, and return its number.

        `methods`, `prefix`, `range` (two keys) and other conditions select requests; `next`, `every`, `probability`
        with `seed`, `from_revision` and `to_revision` say when the rule fires. The action is one of `error`,
        `error_after`, `preset`, `delay`, `reset=True` and the others of docs/control.md.
        """
        if methods:
            rule["methods"] = methods
        if prefix is not None:
            rule["prefix"] = _encode(prefix)
        if range is not None:
            rule["range"] = {"key": _encode(range[0]), "range_end": _encode(range[1])}
        if delay is not None:
            rule["delay"] = {"time": durations.to_text(delay), "wall": delay_wall}
        return self.call("FaultAdd", **rule).id

    def faults(self):
        """List the rules, with the number of requests for which each has fired."""
        return self.call("FaultList").faults

    def clear_faults(self, fault=None):
        """Remove a rule or all rules, and return how many."""
        return self.call("FaultClear", **_id(fault)).cleared

    # Watches

    def hold_watches(self, watch=None):
        """Hold the events of a watch or of all watches."""
        return self.call("WatchHold", **_id(watch)).watches

    def release_watches(self, watch=None):
        """Send the events of held watches."""
        return self.call("WatchRelease", **_id(watch)).watches

    def cut_watches(self, watch=None):
        """End the streams of watches with an error."""
        return self.call("WatchCut", **_id(watch)).watches

    def cancel_watches_compacted(self, watch=None):
        """Cancel watches as compacted."""
        return self.call("WatchCancelCompacted", **_id(watch)).watches

    def bookmark_watches(self, watch=None):
        """Send progress notifications to watches now."""
        return self.call("WatchBookmark", **_id(watch)).watches

    def watches(self):
        """List the open watches."""
        return self.call("Watches").watches

    def connections(self):
        """List the open connections."""
        return self.call("Connections").connections

    # Store

    def checkpoint(self, name):
        """Keep the store under a name."""
        return self.call("StoreCheckpoint", name=name)

    def restore(self, name, bump_revision=0, mark_compacted=False):
        """Replace the store by a checkpoint."""
        return self.call("StoreRestore", name=name, bump_revision=bump_revision, mark_compacted=mark_compacted)

    def reset(self, keep_revision=False):
        """Replace the store by an empty one."""
        return self.call("StoreReset", keep_revision=keep_revision)

    def jump(self, revision):
        """Make the next write get a revision."""
        return self.call("StoreJump", revision=revision)

    def compact(self, revision=0):
        """Compact at a revision, or at the current one."""
        return self.call("StoreCompact", revision=revision)

    def fork(self):
        """Start an independent server with the same history; the answer has `id`, `endpoint` and `control`."""
        return self.call("StoreFork")

    def forks(self):
        """List the forks."""
        return self.call("StoreForks").forks

    def drop(self, name):
        """End a fork, or remove a checkpoint."""
        return self.call("StoreDrop", id=name)

    def dump(self, file):
        """Write the store as text to a binary file."""
        with _Answer(self.url, "StoreDump", b"{}") as answer:
            while part := answer.read(1 << 16):
                file.write(part)

    def load(self, file):
        """Replace the store by a dump, from a binary file or bytes."""
        return self._send("StoreLoad", file)

    def import_snapshot(self, file):
        """Replace the store by a file of `etcdctl snapshot save`."""
        return self._send("StoreImport", file)

    def leases(self):
        """List the leases in the order of their expiry, at most 1,000."""
        return self.call("Leases").leases

    def expire(self, lease):
        """End a lease now: a number, or its hexadecimal text."""
        return self.call("Expire", **({"id": lease} if isinstance(lease, str) else {"number": lease}))

    def raise_alarm(self, name):
        """Raise an alarm, "nospace" or "corrupt"."""
        return self.call("Alarm", action="raise", name=name)

    def clear_alarm(self, name):
        """Clear an alarm."""
        return self.call("Alarm", action="clear", name=name)

    def new_term(self):
        """Begin the next Raft term; the answer has `term`."""
        return self.call("TermNew")

    # History

    def journal(self, *methods, **conditions):
        """Yield the records of requests and streams, with `follow=True` also new ones, without an end."""
        if methods:
            conditions["methods"] = methods
        with _Answer(self.url, "JournalRead", json.dumps(conditions).encode()) as answer:
            while line := answer.readline():
                yield _decode(line)

    def journal_lines(self, file):
        """Write the records with their requests as JSON, one in each line, to a binary file, for `revstore ctl journal replay`."""
        with _Answer(self.url, "JournalRead", b'{"requests": true}') as answer:
            while line := answer.readline():
                file.write(line)

    def wait_revision(self, revision, timeout=None):
        """Wait until the store has a revision."""
        return self._wait(timeout, min_revision=revision)

    def wait_key(self, key, timeout=None):
        """Wait until a key is live."""
        return self._wait(timeout, key=_encode(key))

    def wait_watchers(self, count, timeout=None):
        """Wait until at least this many watches are open."""
        return self._wait(timeout, watchers=count)

    # Any

    def call(self, method, **request):
        """Send a request of any method and return the answer."""
        return self._send(method, json.dumps(request).encode())

    def _wait(self, timeout, **condition):
        if timeout is not None:
            condition["timeout"] = durations.to_text(timeout)
        return self.call("Wait", **condition)

    def _send(self, method, body):
        with _Answer(self.url, method, body) as answer:
            return _decode(answer.read())


class NoControl:
    """In place of the control of a server that has none."""

    def __getattr__(self, name):
        raise RuntimeError(f"control.{name}: the server was started without control")


class _Answer:
    """The body of an answer, whose connection is closed at the end."""

    def __init__(self, url, method, body):
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc)
        self._method, self._body = method, body

    def __enter__(self):
        try:
            self._connection.request("POST", f"/control/v1/{self._method}", self._body)
            answer = self._connection.getresponse()
            if answer.status == 200:
                return answer
            text = answer.read()
            try:
                refused = json.loads(text)
            except ValueError:
                refused = {"code": 2, "error": f"status {answer.status}"}
            raise ControlError(self._method, refused["code"], refused["error"])
        except BaseException:
            self._connection.close()
            raise

    def __exit__(self, *_):
        self._connection.close()


def _id(number):
    return {} if number is None else {"id": number}


def _encode(key):
    return base64.b64encode(key.encode() if isinstance(key, str) else key).decode()


def _decode(text):
    return json.loads(text, object_hook=_object)


def _object(fields):
    for name, value in fields.items():
        if isinstance(value, str) and name in _TIMES:
            fields[name] = durations.from_text(value)
        elif isinstance(value, str) and name in _KEYS:
            fields[name] = base64.b64decode(value)
    return SimpleNamespace(**fields)
