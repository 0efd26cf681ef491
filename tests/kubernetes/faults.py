#!/usr/bin/env python3
"""Runs a server over an etcd that fails in many ways, and checks what clients get.

usage: faults.py BINARY ETCD [TEST...]
"""
import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

from processes import Etcd, Front, Member, free_port, free_url, version, wait_for

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Seconds in which a process ends by a signal.
STOP_LIMIT = 2
# Seconds in which a start gives up, with those of a slow machine.
START_LIMIT = 40
MAGIC = b"k8s\x00"
failures = []


def check(what, condition, shown=""):
    if not condition:
        failures.append(what)
    print("ok  " if condition else "FAIL", what, "" if condition else str(shown)[:600], flush=True)


def config_map(name, **data):
    return {"metadata": {"name": name}, "data": data}


def errors_of(front):
    return front.child.communicate(timeout=START_LIMIT)[1]


def test_a_start_waits_for_etcd(binary, etcd_binary, directory):
    url, late = free_url(), free_url()
    refused = Front(binary, url, directory, wait=False)
    stopped = Front(binary, url, directory, wait=False)
    waiting = Front(binary, late, directory, wait=False)
    try:
        time.sleep(1)
        begun = time.monotonic()
        stopped.send(signal.SIGTERM)
        status = stopped.child.wait(timeout=START_LIMIT)
        check("SIGTERM ends a start that waits", status == 0 and time.monotonic() - begun < STOP_LIMIT, status)
        peer = free_url()
        member = Member(etcd_binary, directory, "late", late, peer, "late=" + peer, ())
        waiting.wait()
        check("a start goes on when etcd comes", waiting.call("GET", CONFIG_MAPS)[0] == 200)
        member.stop()
        text = errors_of(refused)
        check("a start without etcd fails with the reason",
              refused.child.returncode == 1 and url in text and "not available" in text, text)
    finally:
        for front in (refused, stopped, waiting):
            front.stop()


def test_etcd_restarts(binary, etcd_binary, directory):
    etcd = Etcd(etcd_binary, directory)
    front = Front(binary, etcd.urls(), directory)
    try:
        check("an object is created", front.call("POST", CONFIG_MAPS, config_map("a"))[0] == 201)
        listed = front.call("GET", CONFIG_MAPS)[1]
        path = CONFIG_MAPS + "?watch=1&resourceVersion=%d" % version(listed)
        with front.open("GET", path, limit=60) as watch:
            etcd.members[0].kill()
            status, answer = front.call("POST", CONFIG_MAPS, config_map("b"))
            check("a write without etcd is an error", status == 500 and answer["kind"] == "Status", answer)
            status, answer = front.call("GET", CONFIG_MAPS)
            check("a consistent list without etcd is an error", status == 500, answer)
            check("a list of the cache is not", front.call("GET", CONFIG_MAPS + "?resourceVersion=0")[0] == 200)
            check("the server is not ready", front.call("GET", "/readyz")[0] == 500)
            etcd.members[0].restart()
            etcd.wait()
            wait_for("readiness", lambda: front.call("GET", "/readyz")[0] == 200)
            status, answer = front.call("POST", CONFIG_MAPS, config_map("c"))
            check("a write after the restart succeeds", status == 201, answer)
            check("the watch goes on", b'"name":"c"' in watch.readline())
    finally:
        front.stop()
        etcd.stop()


def test_etcd_is_slow(binary, etcd_binary, directory):
    etcd = Etcd(etcd_binary, directory)
    front = Front(binary, etcd.urls(), directory)
    try:
        answers = []
        etcd.members[0].pause()
        writer = threading.Thread(target=lambda: answers.append(front.call("POST", CONFIG_MAPS, config_map("a"))))
        writer.start()
        begun = time.monotonic()
        status = front.call("GET", "/livez")[0]
        check("the health check fails in time", status == 500 and time.monotonic() - begun < 4, status)
        check("the cache is read meanwhile", front.call("GET", CONFIG_MAPS + "?resourceVersion=0")[0] == 200)
        etcd.members[0].resume()
        writer.join()
        check("a write waits", answers[0][0] == 201, answers)
        etcd.members[0].pause()
        begun = time.monotonic()
        status, answer = front.call("POST", CONFIG_MAPS, config_map("b"))
        check("but not for ever", status == 500 and 9 < time.monotonic() - begun < 15, (status, answer))
        etcd.members[0].resume()
        wait_for("readiness", lambda: front.call("GET", "/readyz")[0] == 200)
        etcd.members[0].pause()
        writer = threading.Thread(target=lambda: front.call("POST", CONFIG_MAPS, config_map("c")))
        writer.start()
        time.sleep(0.5)
        begun = time.monotonic()
        front.send(signal.SIGTERM)
        status = front.child.wait(timeout=START_LIMIT)
        took = time.monotonic() - begun
        check("SIGTERM ends a server that waits for etcd", status == 0 and took < STOP_LIMIT, (status, took))
        writer.join()
    finally:
        front.stop()
        etcd.stop()


def test_a_compaction_that_a_server_misses(binary, etcd_binary, directory):
    etcd = Etcd(etcd_binary, directory)
    front = Front(binary, etcd.urls(), directory)
    other = Front(binary, etcd.urls(), directory)
    try:
        for number in range(5):
            other.call("POST", CONFIG_MAPS, config_map("m%d" % number, k="1"))
        old = version(front.call("GET", CONFIG_MAPS)[1])
        # Its watch of etcd breaks off, and what follows it is compacted.
        front.pause()
        etcd.members[0].kill()
        etcd.members[0].restart()
        etcd.wait()
        wait_for("readiness", lambda: other.call("GET", "/readyz")[0] == 200)
        other.call("DELETE", CONFIG_MAPS + "/m0")
        other.call("PATCH", CONFIG_MAPS + "/m1", {"data": {"k": "2"}})
        other.call("POST", CONFIG_MAPS, config_map("n", k="1"))
        etcd.compact()
        front.resume()
        wait_for("readiness", lambda: front.call("GET", "/readyz")[0] == 200)
        listed = wait_for("a list", lambda: front.call("GET", CONFIG_MAPS)[1].get("items"))
        shown = [(item["metadata"]["name"], item["data"]["k"]) for item in listed
                 if "data" in item and "k" in item["data"]]
        check("the list is right", shown == [("m1", "2"), ("m2", "1"), ("m3", "1"), ("m4", "1"), ("n", "1")], shown)
        # It says 429 while it loads.
        cached = wait_for("the cache", lambda: front.call("GET", CONFIG_MAPS + "?resourceVersion=0")[1].get("items"))
        check("the cache is right", "m0" not in [item["metadata"]["name"] for item in cached])
        with front.open("GET", CONFIG_MAPS + "?watch=1&timeoutSeconds=5&resourceVersion=%d" % old) as watch:
            line = watch.readline()
            check("a watch from before is 410", b'"code":410' in line, line)
    finally:
        front.stop()
        other.stop()
        etcd.stop()


def test_values_that_are_no_objects(binary, etcd_binary, directory):
    etcd = Etcd(etcd_binary, directory)
    front = Front(binary, etcd.urls(), directory, "--authorization-mode=RBAC")
    unknown = MAGIC + b"\x0a\x12\x0a\x07what/v1\x12\x07Unknown\x12\x00\x1a\x00\x22\x00"
    values = [b"", b"{", b"null", b"[1]", b"\xff\xfe", b'{"kind":"Pod"}', b'{"kind":"ConfigMap","apiVersion":"v1","metadata":7}',
              MAGIC, MAGIC + b"\x0a\xff\xff", unknown]
    places = ["configmaps/default", "apiextensions.k8s.io/customresourcedefinitions", "clusterroles",
              "clusterrolebindings", "roles/default", "rolebindings/default", "services/specs/default", "servicecidrs",
              "ipaddresses", "namespaces", "serviceaccounts/default", "secrets/default", "pods/default"]
    try:
        for place in places:
            for number, value in enumerate(values):
                etcd.put("/registry/%s/bad%d" % (place, number), value)
        # Another place for objects, and none at all.
        etcd.put("/registry/configmaps/stray", b"{}")
        etcd.put("/registry/", b"x")
        for number in range(len(values)):
            status, answer = front.call("GET", CONFIG_MAPS + "/bad%d" % number)
            check("value %d is an error of its object" % number, status == 500 and answer["kind"] == "Status", answer)
        use(front, "a server that was running")
        again = Front(binary, etcd.urls(), directory, "--authorization-mode=RBAC")
        use(again, "a server that has started")
        again.stop()
        status, answer = front.call("DELETE", CONFIG_MAPS + "/bad1")
        check("such an object is not deleted by accident", status == 500, answer)
    finally:
        front.stop()
        etcd.stop()


def use(front, which):
    name = which.split()[-1]
    status, answer = front.call("POST", CONFIG_MAPS, config_map(name))
    check(which + " creates an object", status == 201, answer)
    check(which + " reads it", front.call("GET", CONFIG_MAPS + "/" + name)[0] == 200)
    status, answer = front.call("POST", SERVICES, {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [{"port": 1}]}})
    check(which + " allocates", status == 201, answer)
    group = name + ".com"
    status, answer = front.call("POST", DEFINITIONS, {
        "metadata": {"name": "things." + group},
        "spec": {"group": group, "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"}, "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})
    check(which + " creates a definition", status == 201, answer)
    wait_for(which + " serves it", lambda: front.call("GET", "/apis/%s/v1/things" % group)[0] == 200, 10)


def test_a_full_etcd(binary, etcd_binary, directory):
    etcd = Etcd(etcd_binary, directory, flags=["--quota-backend-bytes=%d" % (4 << 20)])
    front = Front(binary, etcd.urls(), directory)
    try:
        text, number = "x" * 200000, 0
        while True:
            status, answer = front.call("POST", CONFIG_MAPS, config_map("n%d" % number, text=text))
            if status != 201 or number > 100:
                break
            number += 1
        check("a full etcd is an error with its text", status == 500 and "database space exceeded" in answer["message"],
              (number, status, answer))
        check("objects are read", front.call("GET", CONFIG_MAPS + "/n0")[0] == 200)
        status, answer = front.call("DELETE", CONFIG_MAPS + "/n0")
        check("objects are deleted", status == 200, answer)
        for number in range(1, number):
            front.call("DELETE", CONFIG_MAPS + "/n%d" % number)
        etcd.compact()
        etcd.members[0].call("/v3/maintenance/defragment", {})
        alarm = etcd.members[0].call("/v3/maintenance/alarm", {})["alarms"][0]
        etcd.members[0].call("/v3/maintenance/alarm", {"action": "DEACTIVATE", **alarm})
        status, answer = front.call("POST", CONFIG_MAPS, config_map("after"))
        check("with space again it goes on", status == 201, answer)
    finally:
        front.stop()
        etcd.stop()


class Link:
    """A port in front of an etcd, which can lose answers."""

    def __init__(self, url):
        self.key, self.loses, self.open = None, False, []
        self.target = int(url.rsplit(":", 1)[1])
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client = self.listener.accept()[0]
            server = socket.create_connection(("127.0.0.1", self.target))
            self.open.append((client, server))
            threading.Thread(target=self.copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.copy, args=(server, client, True), daemon=True).start()

    def copy(self, source, sink, is_answer):
        try:
            while True:
                data = source.recv(65536)
                if not data:
                    break
                # A transaction has the key in its compare, its change and its read; a read has it once.
                if not is_answer and self.key and data.count(self.key) > 1:
                    self.loses = True
                if not (is_answer and self.loses):
                    sink.sendall(data)
        except OSError:
            pass
        for side in (source, sink):
            try:
                side.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def lose(self, key):
        """Loses all answers from the next transaction with a key on."""
        self.key = key.encode()

    def restore(self):
        """Ends all connections, and forwards again."""
        for pair in self.open:
            for side in pair:
                try:
                    side.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.key, self.loses, self.open = None, False, []


def test_answers_that_are_lost(binary, etcd_binary, directory):
    etcd = Etcd(etcd_binary, directory)
    link = Link(etcd.urls())
    front = Front(binary, "http://127.0.0.1:%d" % link.port, directory)

    def lost(method, path, body, key, until):
        """Sends a request, waits for what it does to a key, and cuts the answer off."""
        answers = []
        link.lose(key)
        client = threading.Thread(target=lambda: answers.append(front.call(method, path, body)))
        client.start()
        wait_for("a write", lambda: until(etcd.get(key)))
        link.restore()
        client.join()
        wait_for("readiness", lambda: front.call("GET", "/readyz")[0] == 200)
        return answers[0]
    try:
        key = "/registry/configmaps/default/a"
        status, answer = lost("POST", CONFIG_MAPS, config_map("a", k="1"), key, lambda found: found)
        check("a create whose answer is lost is an error, not a conflict", status == 500, (status, answer))
        check("it has happened once", etcd.get(key)["version"] == "1", etcd.get(key))
        status, answer = front.call("POST", CONFIG_MAPS, config_map("a", k="1"))
        check("the next one is a conflict", status == 409 and answer["reason"] == "AlreadyExists", answer)
        obj = front.call("GET", CONFIG_MAPS + "/a")[1]
        obj["data"]["k"] = "2"
        status, answer = lost("PUT", CONFIG_MAPS + "/a", obj, key, lambda found: found["version"] == "2")
        check("so is an update", status == 500 and etcd.get(key)["version"] == "2", (status, answer, etcd.get(key)))
        check("repeated, it is a conflict", front.call("PUT", CONFIG_MAPS + "/a", obj)[0] == 409)
        status, answer = lost("DELETE", CONFIG_MAPS + "/a", None, key, lambda found: not found)
        check("so is a deletion", status == 500, (status, answer))
        check("repeated, there is nothing", front.call("DELETE", CONFIG_MAPS + "/a")[0] == 404)
    finally:
        front.stop()
        etcd.stop()


def openssl(directory, *arguments):
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def authority(directory, name):
    openssl(directory, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
            "-subj", "/CN=" + name, "-keyout", name + ".key", "-out", name + ".crt")


def certificate(directory, issuer, name):
    openssl(directory, "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=" + name,
            "-keyout", name + ".key", "-out", name + ".csr")
    with open(os.path.join(directory, name + ".ext"), "w") as file:
        file.write("subjectAltName=IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n")
    openssl(directory, "x509", "-req", "-in", name + ".csr", "-CA", issuer + ".crt", "-CAkey", issuer + ".key",
            "-CAcreateserial", "-days", "2", "-extfile", name + ".ext", "-out", name + ".crt")


def test_tls(binary, etcd_binary, directory):
    if not shutil.which("openssl"):
        print("NOT RUN: openssl is not installed")
        return
    for name in ("ca", "other"):
        authority(directory, name)
    certificate(directory, "ca", "etcd")
    certificate(directory, "ca", "front")
    at = lambda name: os.path.join(directory, name)
    url = "https://127.0.0.1:%d" % free_port()
    peer = free_url()
    member = Member(etcd_binary, directory, "tls", url, peer, "tls=" + peer, [
        "--cert-file", at("etcd.crt"), "--key-file", at("etcd.key"), "--client-cert-auth", "--trusted-ca-file", at("ca.crt")])
    client = ["--etcd-certfile=" + at("front.crt"), "--etcd-keyfile=" + at("front.key")]
    started = [
        Front(binary, url, directory, "--etcd-cafile=" + at("ca.crt"), *client, wait=False),
        Front(binary, url, directory, "--etcd-cafile=" + at("other.crt"), *client, wait=False),
        Front(binary, url, directory, "--etcd-cafile=" + at("ca.crt"), wait=False),
        Front(binary, url, directory, "--etcd-cafile=" + at("missing.crt"), wait=False),
        Front(binary, url, directory, "--etcd-cafile=" + at("etcd.key"), wait=False),
    ]
    try:
        started[0].wait()
        answer = started[0].call("POST", CONFIG_MAPS, config_map("a"))
        check("a server with a certificate is accepted: %s" % (answer,), answer[0] == 201)
        for front, what, expected in [(started[1], "another authority", "UnknownIssuer"),
                                      (started[2], "no certificate", "not available"),
                                      (started[3], "a file that is not there", "missing.crt"),
                                      (started[4], "a file without certificates", "ertificate")]:
            text = errors_of(front)
            check("a start with %s fails" % what, front.child.returncode == 1 and expected in text, text)
    finally:
        for front in started:
            front.stop()
        member.stop()


def main():
    binary, etcd_binary, asked = sys.argv[1], sys.argv[2], sys.argv[3:]
    tests = {name[len("test_"):]: test for name, test in globals().items() if name.startswith("test_")}

    def run(name):
        with tempfile.TemporaryDirectory() as directory:
            try:
                tests[name](binary, etcd_binary, directory)
            except BaseException as error:
                check(name, False, repr(error))
    # Most of the time they wait.
    threads = [threading.Thread(target=run, args=(name,)) for name in asked or tests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.exit("%d checks failed" % len(failures) if failures else 0)


if __name__ == "__main__":
    main()
