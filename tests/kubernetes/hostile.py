#!/usr/bin/env python3
"""Sends hostile requests to a server and compares its answers with those of a real kube-apiserver.

usage: hostile.py URL             compares with hostile.json; tokens are testtoken and usertoken, as in run.py
       hostile.py URL --record    writes it, from a real kube-apiserver with --authorization-mode=RBAC
       hostile.py URL REGEX       compares the requests whose ids match, and prints both answers

The requests are in hostile_requests.py. Each is sent on a connection of its own. Of an answer, the status, the reason,
the fields of the causes and the number of items are compared. DIFFERENT has the requests that this server answers in
another way; it answers them all, and none with a server error.
"""
import concurrent.futures
import http.client
import json
import os
import re
import socket
import ssl
import sys
import time
import urllib.parse

import hostile_requests

HERE = os.path.dirname(os.path.abspath(__file__))
FILE = os.path.join(HERE, "hostile.json")
# Seconds for one answer.
TIME_LIMIT = 60
# Seconds until the objects can be created.
PATIENCE = 20
THREADS = 12
NAMESPACE = "hostile"
JSON = [("Content-Type", "application/json")]

# Requests that are answered in another way than by a real server, and why.
DIFFERENT = [
    (r"^json-dup-null$", "of a field that occurs twice, the last value counts; Go merges the two"),
    (r"^(yaml-deep|pb-crd-not-deep|db(-cr|-all)?-34|jp(-cr)?-bomb-deep)", "objects are nested at most 120 levels"),
    (r"^yaml-dots$", "a document that ends before it begins is empty"),
    (r"^pb-(encoding|time-huge)$", "what the server cannot read is refused, and not ignored"),
    (r"^(crpb|ctype-cr-19|spd-list-keyobj)$", "the real server panics"),
    (r"^accept-(cr)?watch-32$", "the real server answers a watch with errors"),
    (r"^accept-(apis|group|resources)-38$", "discovery has no protobuf"),
    (r"^head-(te|expect)", "the HTTP library decides"),
    (r"^q-[a-z]+-(69|70|71|72)$", "the characters < and > in a URL are refused if they are not escaped"),
    (r"^q-[a-z]+-(108|109|140|187)$", "a URL has at most 64 KiB"),
    (r"^q-[a-z]+-19$", "a token of version 0 is refused"),
    (r"^q-[a-z]+-89$", "a selector with a control character is refused"),
    (r"^q-[a-z]+-154$", "the answer is there in time"),
    (r"^dq-all-16$", "a resource version in the query of a deletion is that of the list"),
    (r"^(name-(ns|get|cr|del)-(3|4|13|14|37|38)|bname-role-11)$", "names that are not segments of keys are refused"),
    (r"^path-(1|46|47|66|68|69)-", "paths that are not served"),
    (r"^path-16-", "the namespace of the request is checked first; the real server has another object"),
    (r"^path-84-GET$", "there are no components"),
    (r"^path-88-", "there are no aggregated API servers"),
    (r"^method-CONNECT-", "the answer to CONNECT has no body"),
    (r"^spd-so-nokey$", "an order of no items is no error"),
    (r"^spd-replicas-big$", "numbers do not overflow"),
    (r"^crtype-num-neg0$", "-0.0 is an integer for custom resources"),
    (r"^crd-pattern(-default)?-(18|49|52|53)$", "limits of regular expressions are not those of Go"),
    (r"^crd-(odd|root)-schema$", "$schema is not looked at"),
    (r"^crde-(versions-dup-version|conv-webhook-full)$", "one of two causes is not found"),
]


class Client:
    def __init__(self, url):
        parts = urllib.parse.urlsplit(url)
        self.address = (parts.hostname, parts.port)
        self.context = ssl._create_unverified_context() if parts.scheme == "https" else None

    def send(self, method, path, headers=(), body=None, auth=True):
        """Returns the status and the body of the answer. The status is a word if there is none."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close"]
        lines += ["Authorization: Bearer testtoken"] if auth else []
        lines = [line.encode("latin-1") for line in lines]
        for name, value in headers:
            lines.append(name.encode("latin-1") + b": " + (value if isinstance(value, bytes) else value.encode("latin-1")))
        names = {name.lower() for name, _ in headers}
        if body is not None and not names & {"content-length", "transfer-encoding"}:
            lines.append(b"Content-Length: %d" % len(body))
        request = b"\r\n".join(lines) + b"\r\n\r\n" + (body or b"")
        with socket.create_connection(self.address, timeout=TIME_LIMIT) as connection:
            if self.context:
                connection = self.context.wrap_socket(connection)
            try:
                connection.sendall(request)
            except (ConnectionError, ssl.SSLError):
                # The answer may come before the end of the request.
                pass
            response = http.client.HTTPResponse(connection, method=method)
            try:
                response.begin()
                return response.status, response.read()
            except http.client.IncompleteRead as error:
                return response.status, error.partial
            except TimeoutError:
                return "timeout", b""
            except (http.client.HTTPException, ConnectionError, ssl.SSLError):
                return "closed", b""


def summary(path, status, body):
    """Returns what is compared of an answer. Items of other namespaces are not counted."""
    try:
        body = json.loads(body)
    except ValueError:
        return str(status)
    if not isinstance(body, dict):
        return str(status)
    if body.get("kind") != "Status":
        items = body.get("items") if NAMESPACE in path else None
        return f"{status} {body.get('kind')}" + (f" {len(items)}" if isinstance(items, list) else "")
    causes = (body.get("details") or {}).get("causes") or []
    causes = sorted({f"{cause.get('reason', '')} {cause.get('field', '')}" for cause in causes})
    return " | ".join([f"{status} {body.get('reason', '')}", *causes])


def set_up(client):
    """Creates the objects that the requests are about."""
    for path, body in hostile_requests.SETUP:
        deadline = time.monotonic() + PATIENCE
        while True:
            status, answer = client.send("POST", path, JSON, body)
            if status in (201, 409):
                break
            if time.monotonic() > deadline:
                sys.exit(f"POST {path}: {status} {answer[:300]}")
            time.sleep(0.1)


def state(client):
    """Returns the objects that requests might have changed, without what the server sets."""
    found = {}
    for path in hostile_requests.UNCHANGED:
        items = json.loads(client.send("GET", path)[1]).get("items") or []
        for item in items:
            item["metadata"] = {name: item["metadata"].get(name) for name in ("name", "labels", "annotations", "finalizers")}
            item.pop("status", None)
        found[path] = items
    return found


def answer(client, request):
    id, method, path, headers, body = request
    has_token = any(name == "Authorization" for name, _ in headers) or id.startswith("noauth")
    return client.send(method, path, headers, body, not has_token)


def why_different(id):
    return next((why for pattern, why in DIFFERENT if re.search(pattern, id)), None)


def compare(requests, found, expected):
    """Prints the answers that differ. Returns how many they are."""
    count = 0
    for id, *_ in requests:
        one, other = expected.get(id), found[id]
        is_answered = not other.startswith(("timeout", "closed", "5")) or one == other
        if one == other or is_answered and why_different(id):
            continue
        count += 1
        print(f"{id}:\n  expected {one}\n  found    {other}")
    return count


def main():
    client, rest = Client(sys.argv[1]), sys.argv[2:]
    set_up(client)
    requests = list(hostile_requests.requests())
    ids = [id for id, *_ in requests]
    if len(ids) != len(set(ids)):
        sys.exit(f"ids occur twice: {sorted({id for id in ids if ids.count(id) > 1})}")
    before = state(client)
    is_chosen = rest and rest != ["--record"]
    if is_chosen:
        requests = [request for request in requests if re.search(rest[0], request[0])]
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        answers = list(pool.map(lambda request: answer(client, request), requests))
    found = {request[0]: summary(request[2], *answer) for request, answer in zip(requests, answers)}
    if state(client) != before:
        sys.exit("a request has changed objects")
    if rest == ["--record"]:
        by_answer = {}
        for id, text in sorted(found.items()):
            by_answer.setdefault(text, []).append(id)
        with open(FILE, "w") as file:
            file.write(json.dumps(by_answer, indent=0, sort_keys=True) + "\n")
        return
    with open(FILE) as file:
        expected = {id: text for text, ids in json.load(file).items() for id in ids}
    if is_chosen:
        for request, (status, body) in zip(requests, answers):
            print(f"{request[0]}: {status} {body[:1000].decode('latin-1')}")
    different = compare(requests, found, expected)
    print(f"{len(requests)} hostile requests, {different} answers differ")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
