#!/usr/bin/env python3
"""Runs two servers over an etcd of three members, disturbs all of them under load, and checks what clients saw.

usage: fronts.py BINARY ETCD [INFORMERS]

INFORMERS is the command of tests/clients/kubernetes/go/informers; without it, only informers of this program run.

- The leader is killed, a member is paused, and a server is killed; each comes back.
- Writers count up the objects that they own, so an informer sees whether an event is lost or doubled.
- So do shared informers of client-go, of config maps and of services, on each server.
- Services are created and deleted: no address and no port is given twice, and none is lost.
- What one server has written is in the next list of the other one.
- One server at a time compacts. At rest nothing is written.
"""
import base64
import http.client
import json
import os
import random
import sys
import tempfile
import threading
import time

from processes import Etcd, Front, call, free_port, open_url, version, wait_for
from stock_informers import StockInformers

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SERVICES = "/api/v1/namespaces/default/services"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
ADDRESSES = "/apis/networking.k8s.io/v1/ipaddresses"
# Seconds of load before, between and after the disturbances.
LOAD = 3
# Seconds for which a member does not run.
DISTURBANCE = 4
# Seconds between two compactions. Informers that are cut off for a shorter time need no list.
INTERVAL = 10
# Seconds without requests.
REST = 3
COUNTERS = 4
# Lists of a stock informer: at its start, when its server has started anew, and what is cut off meanwhile.
MAX_LISTS = 10
# Objects that exist before, so that lists take some time.
BALLAST = 300
failures = []


def check(what, condition, shown=""):
    if not condition:
        failures.append(what)
    print("ok  " if condition else "FAIL", what, "" if condition else str(shown)[:600], flush=True)


class Client(threading.Thread):
    """A thread that works until it is stopped."""
    stopping = threading.Event()

    def __init__(self, url, *arguments):
        super().__init__(daemon=True)
        self.url, self.arguments, self.done, self.failed = url, arguments, 0, 0
        self.start()

    def run(self):
        while not self.stopping.is_set():
            if self.step(*self.arguments):
                self.done += 1
            else:
                self.failed += 1
                time.sleep(0.1)

    def call(self, method, path, body=None):
        return call(self.url, method, path, body)


class Counter(Client):
    """Counts up the object that it owns. Each version is one more than the last, also if an answer was lost."""

    def step(self, name):
        path = CONFIG_MAPS + "/" + name
        status, found = self.call("GET", path)
        if status == 404:
            return self.call("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"n": "0"}})[0] == 201
        if status != 200:
            return False
        found["data"]["n"] = str(int(found["data"]["n"]) + 1)
        return self.call("PUT", path, found)[0] == 200


class Publisher(Client):
    """Creates services and deletes some of them."""

    def step(self, prefix):
        name = "%s%d" % (prefix, self.done + self.failed)
        body = {"metadata": {"name": name}, "spec": {"type": "NodePort", "ports": [
            {"name": "a", "port": 80}, {"name": "b", "port": 81}]}}
        created = self.call("POST", SERVICES, body)[0] == 201
        if random.random() < 0.6:
            self.call("DELETE", SERVICES + "/" + name)
        return created


class Reader(Client):
    """Writes to one server, and lists the objects on another one at once."""
    stale = []

    def step(self, other, name):
        path = CONFIG_MAPS + "/" + name
        value = str(time.monotonic())
        status, written = self.call("PATCH", path, {"data": {"v": value}})
        if status == 404:
            status, written = self.call("POST", CONFIG_MAPS, {"metadata": {"name": name}, "data": {"v": value}})
        if status not in (200, 201):
            return False
        status, listed = call(other, "GET", CONFIG_MAPS)
        if status != 200:
            return False
        shown = [item for item in listed["items"] if item["metadata"]["name"] == name]
        if not shown or shown[0]["data"]["v"] != value or version(listed) < version(written):
            Reader.stale.append((name, value, shown, listed["metadata"]))
        return True


class Informer(threading.Thread):
    """Lists and watches the objects, as informers do."""

    def __init__(self, url):
        super().__init__(daemon=True)
        self.url, self.store, self.lists, self.events, self.errors, self.revision = url, {}, 0, 0, [], None
        self.start()

    def run(self):
        while True:
            try:
                if self.revision is None:
                    self.list()
                self.watch()
            except (OSError, ValueError, KeyError, http.client.HTTPException):
                time.sleep(0.1)

    def list(self):
        status, listed = call(self.url, "GET", CONFIG_MAPS)
        if status != 200:
            raise OSError(status)
        self.store = {item["metadata"]["name"]: item for item in listed["items"]}
        self.revision = version(listed)
        self.lists += 1

    def watch(self):
        path = "%s?watch=1&allowWatchBookmarks=true&resourceVersion=%d" % (CONFIG_MAPS, self.revision)
        with open_url(self.url, "GET", path, limit=20) as answer:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    if event["object"].get("code") == 410:
                        self.revision = None
                    return
                self.apply(event["type"], event["object"])

    def apply(self, kind, obj):
        revision = version(obj)
        if kind == "BOOKMARK":
            if revision < self.revision:
                self.errors.append(("a bookmark goes back", self.revision, revision))
            self.revision = revision
            return
        if revision <= self.revision:
            self.errors.append(("an event is doubled", self.revision, obj["metadata"]))
        name = obj["metadata"]["name"]
        old = self.store.get(name)
        if (kind == "ADDED") != (old is None):
            self.errors.append(("an event is lost or doubled", kind, obj["metadata"]))
        if old and "n" in obj["data"] and int(obj["data"]["n"]) != int(old["data"]["n"]) + 1:
            self.errors.append(("an update is lost", old["data"], obj["data"]))
        if kind == "DELETED":
            del self.store[name]
        else:
            self.store[name] = obj
        self.revision = revision
        self.events += 1


def disturb(etcd, fronts):
    time.sleep(LOAD)
    leader = etcd.leader()
    leader.kill()
    print("the leader is killed", flush=True)
    time.sleep(DISTURBANCE)
    leader.restart()
    etcd.wait()
    paused = etcd.leader()
    paused.pause()
    print("the leader is paused", flush=True)
    time.sleep(DISTURBANCE)
    paused.resume()
    etcd.wait()
    for front in fronts:
        time.sleep(LOAD)
        front.kill()
        print("a server is killed", flush=True)
        time.sleep(0.5)
        front.restart()
    time.sleep(LOAD)


def allocations(etcd, fronts):
    """Each address and port of a service is taken, and no others are."""
    items = fronts[0].call("GET", SERVICES)[1]["items"]
    ips = [ip for item in items for ip in item["spec"]["clusterIPs"]]
    ports = [port["nodePort"] for item in items for port in item["spec"]["ports"] if "nodePort" in port]
    check("no address is given twice", len(ips) == len(set(ips)), sorted(ips))
    check("no port is given twice", len(ports) == len(set(ports)), sorted(ports))
    taken = [item["metadata"]["name"] for item in fronts[1].call("GET", ADDRESSES)[1]["items"]]
    check("the addresses of services are taken", sorted(taken) == sorted(ips), set(taken) ^ set(ips))
    bitmap = taken_ports(base64.b64decode(etcd.get("/registry/ranges/servicenodeports")["value"]))
    check("the ports of services are taken", bitmap == sorted(ports), set(bitmap) ^ set(ports))
    check("there are services", len(items) > 10, len(items))


def taken_ports(value):
    """Returns the ports in a RangeAllocation: its last field in the protobuf of Kubernetes is the bitmap."""
    start, data = value.index(b"30000-32767") + len(b"30000-32767"), b""
    if value[start] == 0x1a:
        length, position, shift = 0, start + 1, 0
        while True:
            byte = value[position]
            length, position, shift = length | (byte & 127) << shift, position + 1, shift + 7
            if byte < 128:
                break
        data = value[position:position + length]
    number = int.from_bytes(data, "big")
    return [30000 + bit for bit in range(number.bit_length()) if number >> bit & 1]


def main():
    binary, etcd_binary = sys.argv[1:3]
    informers_binary = sys.argv[3] if len(sys.argv) > 3 else None
    with tempfile.TemporaryDirectory() as directory:
        running = []
        try:
            etcd = Etcd(etcd_binary, directory, members=3)
            running.append(etcd)
            begun = time.monotonic()
            urls = [member.url for member in etcd.members]
            fronts = []
            for number in range(2):
                at = urls[number:] + urls[:number]
                fronts.append(Front(binary, ",".join(at), directory, "--secure-port=%d" % free_port(),
                                    "--service-cluster-ip-range=10.0.0.0/22",
                                    "--etcd-compaction-interval=%ds" % INTERVAL))
                running.append(fronts[-1])
            first, second = (front.url for front in fronts)
            for number in range(BALLAST):
                body = {"metadata": {"name": "ballast%d" % number}, "data": {"text": "x" * 200}}
                if fronts[number % 2].call("POST", CONFIG_MAPS, body)[0] != 201:
                    sys.exit("an object cannot be created")
            definition = {"metadata": {"name": "things.example.com"}, "spec": {
                "group": "example.com", "scope": "Cluster", "names": {"plural": "things", "kind": "Thing"}, "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]}}
            fronts[0].call("POST", DEFINITIONS, definition)
            for front in fronts:
                wait_for("a custom resource", lambda: front.call("GET", "/apis/example.com/v1/things")[0] == 200)
            informers = [Informer(first), Informer(second)]
            stock = []
            for url in (first, second) if informers_binary else ():
                stock.append(StockInformers(informers_binary, url, "testtoken"))
                running.append(stock[-1])
            for informer in stock:
                informer.wait_until_synced()
            counters = [Counter((first, second)[number % 2], "counter%d" % number) for number in range(COUNTERS)]
            publishers = [Publisher(url, prefix) for url, prefix in [(first, "a"), (first, "b"), (second, "c"), (second, "d")]]
            readers = [Reader(first, second, "reader1"), Reader(second, first, "reader2")]
            disturb(etcd, fronts)
            Client.stopping.set()
            clients = counters + publishers + readers
            for client in clients:
                client.join(timeout=60)
            print("done and failed:", [(type(it).__name__, it.done, it.failed) for it in clients], flush=True)
            check("each client has worked", all(it.done > 10 for it in clients))
            check("a list has what the other server has written", not Reader.stale, Reader.stale[:3])
            listed = [front.call("GET", CONFIG_MAPS)[1] for front in fronts]
            check("both servers have the same objects", listed[0]["items"] == listed[1]["items"])
            expected = {item["metadata"]["name"]: item for item in listed[0]["items"]}
            for informer in informers:
                wait_for("an informer", lambda: informer.revision is not None and
                         {name: version(obj) for name, obj in informer.store.items()} ==
                         {name: version(obj) for name, obj in expected.items()})
                print("informer: %d events, %d lists" % (informer.events, informer.lists), flush=True)
                check("an informer misses and doubles nothing", not informer.errors, informer.errors[:3])
                check("an informer has the objects", all(
                    informer.store[name]["data"] == obj["data"] for name, obj in expected.items()))
            services = {item["metadata"]["name"]: version(item) for item in fronts[0].call("GET", SERVICES)[1]["items"]}
            versions = {name: version(obj) for name, obj in expected.items()}
            for informer in stock:
                informer.wait_for({"configmaps": versions, "services": services})
                print("stock informers: %s events, %s lists" % (dict(informer.events), dict(informer.lists)), flush=True)
                check("stock informers miss and double nothing", not informer.errors, informer.errors[:3])
                # Few lists, so that they hide few events.
                check("stock informers list at their start and when a server starts anew",
                      all(1 < count <= MAX_LISTS for count in informer.lists.values()), informer.lists)
            allocations(etcd, fronts)
            turns = int((etcd.get("compact_rev_key") or {"version": 0})["version"])
            intervals = (time.monotonic() - begun) / INTERVAL
            check("one server at a time compacts", 1 <= turns <= intervals + 1, (turns, intervals))
            before = etcd.revision()
            time.sleep(REST)
            written = etcd.revision() - before
            check("at rest nothing is written", written <= 1, written)
        finally:
            for process in reversed(running):
                process.stop()
    sys.exit("%d checks failed" % len(failures) if failures else 0)


if __name__ == "__main__":
    main()
