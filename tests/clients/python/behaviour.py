"""The driver of etcd3 (python-etcd3) for docs/client-behaviour.md: it executes the commands that it reads from
standard input, and prints what the client does. ../behaviour/README.md has both forms."""

import json
import sys
import threading
import time

import etcd3

LOCK = threading.Lock()


def tell(number, event, **fields):
    with LOCK:
        print(json.dumps({"id": number, "event": event, **fields}), flush=True)


def text(error):
    """What a caller sees of an error: its class, and the gRPC status that it hides."""
    name = type(error).__name__
    status = error if hasattr(error, "code") else error.__cause__ or error.__context__
    if name == "RevisionCompactedError":
        return f"{name}, compacted revision {error.compacted_revision}"
    if hasattr(status, "code") and hasattr(status, "details"):
        details = f"{status.code().name}: {status.details()}"
        return details if error is status else f"{name} ({details})"
    return f"{name}: {error}" if str(error) else name


def connect(command):
    host, port = command["endpoint"].split(":")
    options = {}
    if command.get("user"):
        options = {"user": command["user"], "password": command["password"]}
    if command.get("keepalive"):
        options["grpc_options"] = [
            ("grpc.keepalive_time_ms", 10_000),
            ("grpc.keepalive_timeout_ms", 1_000),
        ]
    return etcd3.client(host, int(port), **options)


def watch(client, command):
    number = command["id"]

    def seen(response):
        if isinstance(response, Exception):
            tell(number, "failed", text=text(response))
            return
        for event in response.events:
            tell(
                number,
                "item",
                key=event.key.decode(),
                value=event.value.decode(),
                revision=event.mod_revision,
            )

    options = {"start_revision": command["revision"]} if command.get("revision") else {}
    client.add_watch_prefix_callback(command["key"], seen, **options)
    tell(number, "created")


def lock(client, command):
    """The client renews nothing by itself, so the driver renews as its documentation says."""
    held = client.lock(command["key"], ttl=command["ttl"])
    if not held.acquire():
        raise RuntimeError("acquire() is False")
    tell(command["id"], "returned", value="")
    while True:
        time.sleep(command["ttl"] / 3)
        try:
            answers = held.refresh()
        except Exception as error:
            tell(command["id"], "lost", text="refresh() raises " + text(error))
            return
        if any(answer.TTL == 0 for answer in answers):
            tell(command["id"], "lost", text="refresh() returns TTL 0 and no error")
            return


def execute(client, command):
    operation = command["op"]
    try:
        if operation == "watch":
            watch(client, command)
        elif operation == "lock":
            lock(client, command)
        else:
            value = ""
            if operation == "put":
                client.put(command["key"], command["value"])
            elif operation == "get":
                value = (client.get(command["key"])[0] or b"").decode()
            elif operation == "create":
                if client.put_if_not_exists(command["key"], command["value"]):
                    value = "succeeded"
            else:
                raise ValueError("unknown op " + operation)
            tell(command["id"], "returned", value=value)
    except Exception as error:
        tell(command["id"], "failed", text=text(error))


def main():
    client = None
    for line in sys.stdin:
        command = json.loads(line)
        if command["op"] == "connect":
            client = connect(command)
            tell(command["id"], "returned", value="")
        else:
            threading.Thread(target=execute, args=(client, command), daemon=True).start()


main()
