"""A server under control, and a driver: a process that executes commands with the client under test."""

import base64
import http.client
import json
import re
import socket
import ssl
import struct
import subprocess
import tempfile
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


class Unable(Exception):
    """A client cannot be used as a cell needs it."""


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


class Controlled:
    """The control of a server."""

    def __init__(self, url):
        self._control = f"{url}/control/v1/"

    def control(self, method, **fields):
        """Calls a method of control."""
        return json.loads(post(self._control + method, fields))

    def journal(self, *methods):
        """The records of the journal about some methods."""
        lines = post(self._control + "JournalRead", {"methods": methods})
        return [json.loads(line) for line in lines.splitlines()]


class Server(Controlled):
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
        super().__init__(f"http://{addresses['control']}")
        threading.Thread(target=self._process.stderr.read, daemon=True).start()

    def close(self):
        self._process.kill()
        self._process.wait(LIMIT)

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


class ApiServer(Controlled):
    """A revstore-apiserver that runs from its construction until `close`, and requests beside the client under test."""

    # The client of these requests in the journal.
    NAME = "runner"

    def __init__(self, binary, *flags):
        self._directory = tempfile.TemporaryDirectory(prefix="revstore-behaviour-")
        self.kubeconfig = f"{self._directory.name}/kubeconfig"
        self._process = subprocess.Popen(
            [
                binary,
                "--secure-port=0",
                "--controllers=none",
                "--control-listen-url=http://127.0.0.1:0",
                f"--kubeconfig-out={self.kubeconfig}",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        words = self._process.stdout.readline().split()
        if words[:2] != ["revstore-apiserver", "ready"]:
            raise RuntimeError("the server did not start")
        super().__init__(words[4])
        self.address = words[2].removeprefix("https://")
        with open(self.kubeconfig) as file:
            self._config = file.read()
        authority = re.search(r"certificate-authority-data: (\S+)", self._config)[1]
        self._tls = ssl.create_default_context(cadata=base64.b64decode(authority).decode())
        self._token = re.search(r"token: (\S+)", self._config)[1]
        self._connection = None

    def close(self):
        self._process.kill()
        self._process.wait(LIMIT)
        self._directory.cleanup()

    def kubeconfig_at(self, address):
        """A kubeconfig with another address of the server."""
        path = f"{self._directory.name}/kubeconfig-of-relay"
        with open(path, "w") as file:
            file.write(self._config.replace(self.address, address))
        return path

    def request(self, method, path, body=None):
        """Sends a request."""
        if self._connection is None:
            host, port = self.address.split(":")
            self._connection = http.client.HTTPSConnection(host, int(port), timeout=LIMIT, context=self._tls)
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self._token}",
            "Revstore-Client": self.NAME,
        }
        self._connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = self._connection.getresponse()
        text = answer.read().decode()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text}")
        return json.loads(text)

    def disconnect(self):
        """Ends the connection of `request`, which opens another one."""
        self._connection.close()
        self._connection = None


class Relay:
    """A relay of connections to an address, which resets or freezes them. Rules of faults act on requests, and a
    connection of HTTP/1.1 that has a watch gets no other request."""

    def __init__(self, address):
        host, port = address.split(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._pairs = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def freeze(self):
        """Lets the open connections neither read nor write. They stay open for the clients. New ones are relayed."""
        for pair in self._stop():
            pair["server"].shutdown(socket.SHUT_RDWR)

    def reset(self):
        """Resets the open connections."""
        for pair in self._stop():
            # Without data that lingers, a close sends a reset. No thread may read meanwhile.
            pair["client"].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            for end in ("client", "server"):
                pair[end].shutdown(socket.SHUT_RD)
                pair[end].close()

    def _stop(self):
        with self._lock:
            stopped = [pair for pair in self._pairs if not pair["is_stopped"]]
            for pair in stopped:
                pair["is_stopped"] = True
        return stopped

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            pair = {"client": client, "server": socket.create_connection(self._target), "is_stopped": False}
            with self._lock:
                self._pairs.append(pair)
            for ends in (("client", "server"), ("server", "client")):
                threading.Thread(target=self._relay, args=(pair, *ends), daemon=True).start()

    @staticmethod
    def _relay(pair, source, target):
        try:
            while data := pair[source].recv(65536):
                if pair["is_stopped"]:
                    return
                pair[target].sendall(data)
            if not pair["is_stopped"]:
                pair[target].shutdown(socket.SHUT_WR)
        except OSError:
            pass


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

    def wait_more(self, number, seen, timeout):
        """Waits until a command has more events than those, and returns whether they came."""
        with self._changed:
            return self._changed.wait_for(lambda: sum(e["id"] == number for e in self._events) > seen, timeout)

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
