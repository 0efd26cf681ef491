#!/usr/bin/env python3
"""Compacts a store at its current revision, as a kube-apiserver does, over the JSON gateway of etcd's API.

usage: compact.py URL [SECONDS]   SECONDS is the pause after it, in which servers notice the compaction
"""
import base64
import json
import sys
import time
import urllib.request


def call(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def text(value):
    return base64.b64encode(value.encode()).decode()


def main():
    url = sys.argv[1].rstrip("/")
    key = text("compact_rev_key")
    revision = call(url, "/v3/kv/range", {"key": key})["header"]["revision"]
    call(url, "/v3/kv/put", {"key": key, "value": text(revision)})
    call(url, "/v3/kv/compaction", {"revision": revision})
    time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)


if __name__ == "__main__":
    main()
