"""Members of an etcd cluster and servers over it, as processes, and requests to them."""
import base64
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

# Seconds for a start, and for what follows a failure.
TIME_LIMIT = 60
# Seconds for one request.
REQUEST_LIMIT = 30
# Seconds between two looks at a state.
PAUSE = 0.05
PORTS = (20000, 32000)
TOKENS = 'testtoken,admin,1,"system:masters"\n'
ANY_CERTIFICATE = ssl._create_unverified_context()


def free_port():
    """Returns a port on which nothing listens, below those that the system gives to connections."""
    while True:
        port = random.randrange(*PORTS)
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
                return port
            except OSError:
                pass


def free_url():
    """Returns a URL on which nothing listens."""
    return "http://127.0.0.1:%d" % free_port()


def wait_for(what, condition, limit=TIME_LIMIT):
    """Waits until `condition` returns something, and returns it."""
    due = time.monotonic() + limit
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > due:
            sys.exit("%s: not within %d s" % (what, limit))
        time.sleep(PAUSE)


class Process:
    """A process that ends with the test."""

    def __init__(self, command, **options):
        self.command, self.options = command, options
        self.child = subprocess.Popen(command, **options)

    def send(self, number):
        self.child.send_signal(number)

    def pause(self):
        self.send(signal.SIGSTOP)

    def resume(self):
        self.send(signal.SIGCONT)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def restart(self):
        self.child = subprocess.Popen(self.command, **self.options)

    def stop(self):
        if self.child.poll() is None:
            self.send(signal.SIGCONT)
            self.child.terminate()
            try:
                self.child.wait(timeout=20)
            except subprocess.TimeoutExpired:
                self.kill()


class Member(Process):
    """A member of an etcd cluster."""

    def __init__(self, binary, directory, name, url, peer, cluster, flags):
        self.url = url
        environment = {key: value for key, value in os.environ.items() if not key.startswith("ETCD")}
        super().__init__([
            binary, "--name", name, "--data-dir", os.path.join(directory, name), "--log-level=error",
            "--listen-client-urls", url, "--advertise-client-urls", url,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster,
            "--heartbeat-interval=50", "--election-timeout=500", "--unsafe-no-fsync=true", *flags], env=environment,
            stderr=subprocess.DEVNULL)

    def call(self, path, body, limit=REQUEST_LIMIT):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=limit) as answer:
            return json.load(answer)

    def is_healthy(self):
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=2) as answer:
                return json.load(answer)["health"] == "true"
        except (OSError, ValueError):
            return False

    def is_leader(self):
        status = self.call("/v3/maintenance/status", {})
        return status["leader"] == status["header"]["member_id"]


class Etcd:
    """A cluster of members."""

    def __init__(self, binary, directory, members=1, flags=()):
        urls = [(free_url(), free_url()) for _ in range(members)]
        cluster = ",".join("m%d=%s" % (number, peer) for number, (_, peer) in enumerate(urls))
        self.members = [Member(binary, directory, "m%d" % number, url, peer, cluster, flags)
                        for number, (url, peer) in enumerate(urls)]
        self.wait()

    def wait(self):
        for member in self.members:
            wait_for("etcd", member.is_healthy)

    def urls(self):
        return ",".join(member.url for member in self.members)

    def leader(self):
        return wait_for("a leader", lambda: next((member for member in self.members if member.is_leader()), None))

    def first(self):
        return next(member for member in self.members if member.child.poll() is None)

    def put(self, key, value):
        text = base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()
        self.first().call("/v3/kv/put", {"key": encoded(key), "value": text})

    def delete(self, key):
        self.first().call("/v3/kv/deleterange", {"key": encoded(key)})

    def keys(self, prefix, values=False):
        """Returns the keys with a prefix, with their values as bytes if asked for."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        body = {"key": encoded(prefix), "range_end": encoded(end), "keys_only": not values}
        found = self.first().call("/v3/kv/range", body).get("kvs", [])
        return {base64.b64decode(kv["key"]).decode(): base64.b64decode(kv.get("value", "")) for kv in found}

    def get(self, key):
        found = self.first().call("/v3/kv/range", {"key": encoded(key)}).get("kvs", [])
        return found[0] if found else None

    def revision(self):
        return int(self.first().call("/v3/kv/range", {"key": encoded("a"), "count_only": True})["header"]["revision"])

    def compact(self):
        self.first().call("/v3/kv/compaction", {"revision": self.revision()})

    def stop(self):
        for member in self.members:
            member.stop()


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class Front(Process):
    """A server of Kubernetes' API that accepts the token `testtoken`."""

    def __init__(self, binary, urls, directory, *flags, wait=True):
        tokens = os.path.join(directory, "tokens.csv")
        # Replaced as a whole, because a server that starts beside this one reads it.
        with open(tokens + ".new", "w") as file:
            file.write(TOKENS)
        os.replace(tokens + ".new", tokens)
        super().__init__([binary, "--secure-port=0", "--controllers=none", "--etcd-servers=" + urls, "--token-auth-file=" + tokens, *flags],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url = None
        if wait:
            self.wait()

    def wait(self):
        ready = self.child.stdout.readline().split()
        if ready[:2] != ["revstore-apiserver", "ready"]:
            sys.exit("the server did not start: " + self.child.stderr.read())
        self.url = ready[2]

    def restart(self):
        super().restart()
        self.wait()

    def open(self, method, path, body=None, kind=None, limit=REQUEST_LIMIT):
        return open_url(self.url, method, path, body, kind, limit)

    def call(self, method, path, body=None, kind=None, limit=REQUEST_LIMIT):
        """Returns the status and the object of an answer; 0 for none."""
        return call(self.url, method, path, body, kind, limit)


def open_url(url, method, path, body=None, kind=None, limit=REQUEST_LIMIT):
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "Bearer testtoken", "Accept": "application/json"}
    if data is not None:
        default = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers["Content-Type"] = kind or default
    request = urllib.request.Request(url + path, data, headers, method=method)
    return urllib.request.urlopen(request, timeout=limit, context=ANY_CERTIFICATE)


def call(url, method, path, body=None, kind=None, limit=REQUEST_LIMIT):
    try:
        with open_url(url, method, path, body, kind, limit) as answer:
            return answer.status, parsed(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, parsed(error.read())
    except (OSError, ValueError, EOFError) as error:
        return 0, {"message": repr(error)}
    except Exception as error:
        # An answer that breaks off is an error of http.client.
        if type(error).__module__ != "http.client":
            raise
        return 0, {"message": repr(error)}


def parsed(data):
    try:
        return json.loads(data)
    except ValueError:
        return {"message": data.decode(errors="replace")}


def version(obj):
    return int(obj["metadata"]["resourceVersion"])


def metric(text, name):
    return sum(float(value) for value in re.findall(r"^%s(?:\{[^}]*\})? (\S+)$" % re.escape(name), text, re.M))
