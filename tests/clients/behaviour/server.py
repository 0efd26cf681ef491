"""A server under control, and a driver: a process that executes commands with the client under test."""

import base64
import json
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

# The time limit of what must happen. It is long enough for busy machines.
LIMIT = 60

PORTS = (
    "--listen-client-urls=http://127.0.0.1:0",
    "--advertise-client-urls=http://127.0.0.1:0",
    "--listen-peer-urls=http://127.0.0.1:0",
    "--control-listen-url=http://127.0.0.1:0",
)


def post(url, fields, token=None):
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = token
    request = urllib.request.Request(url, json.dumps(fields).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        raise RuntimeError(f"{url}: {error.read().decode()}") from error


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class Server:
    """A revstore that runs from its construction until `close`."""

    def __init__(self, binary, *flags):
        self._process = subprocess.Popen(
            [binary, *PORTS, *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={},
        )
        addresses = {}
        log = []
        for line in self._process.stderr:
            log.append(line)
            served = re.search(r'"msg":"serving (\w+).*"address":"([^"]+)"', line)
            if served:
                addresses[served[1]] = served[2]
            if "ready to serve client requests" in line:
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(log))
        self.endpoint = addresses["client"]
        self._token = None
        self._control = f"http://{addresses['control']}/control/v1/"
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def close(self):
        self._process.kill()
        self._process.wait(LIMIT)

    def control(self, method, **fields):
        """Calls a method of control."""
        return json.loads(post(self._control + method, fields))

    def journal(self, *methods):
        """The records of the journal about some methods."""
        lines = post(self._control + "JournalRead", {"methods": methods})
        return [json.loads(line) for line in lines.splitlines()]

    def gateway(self, path, **fields):
        """Sends a request beside the client under test."""
        return json.loads(post(f"http://{self.endpoint}/v3/{path}", fields, self._token))

    def authorize(self, token):
        """Sets the token of requests beside the client under test."""
        self._token = token

    def put(self, key, value=""):
        self.gateway("kv/put", key=encoded(key), value=encoded(value))

    def version(self, key):
        """The number of writes of a key."""
        found = self.gateway("kv/range", key=encoded(key)).get("kvs", [])
        return int(found[0]["version"]) if found else 0


class Driver:
    """A process with the client under test, from its construction until `close`."""

    def __init__(self, arguments, directory):
        self._process = subprocess.Popen(
            arguments,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._changed = threading.Condition()
        self._events = []
        self._last = 0
        threading.Thread(target=self._read, daemon=True).start()

    def close(self):
        self._process.kill()
        self._process.wait(LIMIT)

    def send(self, operation, **fields):
        """Sends a command, and returns its id."""
        self._last += 1
        self._process.stdin.write(json.dumps({"id": self._last, "op": operation, **fields}) + "\n")
        self._process.stdin.flush()
        return self._last

    def events(self, number, *kinds):
        """The events of a command until now, or those of some kinds."""
        with self._changed:
            return [e for e in self._events if e["id"] == number and (not kinds or e["event"] in kinds)]

    def wait(self, number, *kinds, count=1, timeout=LIMIT):
        """Waits for `count` events of some kinds, and returns whether they came."""
        ends = time.monotonic() + timeout
        with self._changed:
            return self._changed.wait_for(
                lambda: sum(e["id"] == number and e["event"] in kinds for e in self._events) >= count,
                ends - time.monotonic(),
            )

    def call(self, operation, timeout=LIMIT, **fields):
        """Executes a call. Returns its last event, or None if it has not ended within the timeout."""
        number = self.send(operation, **fields)
        self.wait(number, "returned", "failed", timeout=timeout)
        ended = self.events(number, "returned", "failed")
        return ended[0] if ended else None

    def _read(self):
        for line in self._process.stdout:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "event" in event:
                with self._changed:
                    self._events.append({**event, "at": time.monotonic()})
                    self._changed.notify_all()
