"""Checks what shared informers of client-go see: tests/clients/kubernetes/go/informers prints it."""
import collections
import json
import subprocess
import threading

from processes import wait_for


class StockInformers(threading.Thread):
    """Informers of config maps and services over one server, as a process.

    Without a list, they see each version of an object once: a config map whose owner counts up `n` shows all numbers, and
    no version comes again. Each list may leave out versions of each object, or show its version again, once.
    """

    def __init__(self, binary, url, token):
        super().__init__(daemon=True)
        self.process = subprocess.Popen([binary, url, token], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.versions = {"configmaps": {}, "services": {}}
        self.stores, self.errors, self.synced = {}, [], set()
        self.lists, self.events, self.again, self.gaps = (collections.Counter() for _ in range(4))
        # What the counters said last.
        self.numbers = {}
        self.start()

    def run(self):
        for text in self.process.stdout:
            line = json.loads(text)
            kind, resource = line["kind"], line["resource"]
            if kind == "list":
                self.lists[resource] += 1
            elif kind == "synced":
                self.synced.add(resource)
            elif kind == "store":
                self.stores[resource] = {name: int(version) for name, version in line.get("objects", {}).items()}
            else:
                self.events[resource] += 1
                self.apply(kind, resource, line)

    def apply(self, kind, resource, line):
        name, versions, key = line["name"], self.versions[resource], (resource, line["name"])
        found, old, new = versions.get(name), int(line.get("old", 0)), int(line.get("new", 0))
        # The first list is that of the start.
        relists = self.lists[resource] - 1
        # The last version of an object is the one in the store, or that of its deletion.
        follows = {"added": found is None, "changed": found == old, "deleted": found is not None and old >= found}
        if not follows[kind]:
            self.errors.append(("an event is lost or doubled", found, line))
        if kind == "changed" and new == old:
            self.again[key] += 1
            if self.again[key] > relists:
                self.errors.append(("a version comes again without a list", relists, line))
        elif kind == "changed" and new < old:
            self.errors.append(("a version goes back", line))
        if "n" in line:
            before = self.numbers.get(name)
            number = self.numbers[name] = int(line["n"])
            if before is not None and new != old and number != before + 1:
                self.gaps[key] += 1
                if number <= before or self.gaps[key] > relists:
                    self.errors.append(("an update is lost without a list", before, relists, line))
        if kind == "deleted":
            del versions[name]
        else:
            versions[name] = new

    def wait_until_synced(self):
        wait_for("stock informers", lambda: len(self.synced) == len(self.versions))

    def wait_for(self, expected):
        """Waits until the stores and what the handlers were told are the objects of the server: the versions by name of
        each resource."""
        def has_all():
            self.process.stdin.write("store\n")
            self.process.stdin.flush()
            return self.stores == expected and self.versions == expected
        wait_for("the objects in stock informers", has_all)

    def stop(self):
        self.process.kill()
        self.process.wait()
