#!/usr/bin/env python3
"""Plays the recordings of a real kube-apiserver against revstore-apiserver.

usage: run.py BINARY            plays all scenarios: each must pass
       run.py BINARY ID...      plays some scenarios
       run.py BINARY --etcd ETCD [ID...]
                                stores the objects in an etcd, which it starts, or in another server of etcd's API

Without arguments, it also compares decisions about requests (authorization.py), the answers to hostile ones
(hostile.py), those of admission policies (policies.py) and webhooks (webhooks.py) and, from a server with all plugins, those of the built-in plugins
(plugins.py).

Starts the server on a free port.
"""
import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile

from processes import free_url

HERE = os.path.dirname(os.path.abspath(__file__))
TOKENS = 'testtoken,admin,1,"system:masters"\nusertoken,dev,2,devs\n'
# Seconds for a run of all scenarios.
TIME_LIMIT = 900
# Seconds after which a server over an etcd has noticed a compaction: it asks after 15.
NOTICE_TIME = 16


def play(url, compact, files):
    """Returns the output, and the result of each scenario by its id."""
    command = [sys.executable, os.path.join(HERE, "replay.py"), "--server", url, "--insecure", "-v",
               "--token", "testtoken", "--user-token", "usertoken", "--compact-cmd", shlex.join(compact), *files]
    output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                            timeout=TIME_LIMIT).stdout
    found = re.findall(r"^(PASS|FAIL|SKIP) (\S+)", output, re.M)
    return output, {scenario: result for result, scenario in found}


def scenarios():
    """Returns the files of all scenarios by their ids."""
    files = glob.glob(os.path.join(HERE, "recordings", "*", "*.json"))
    return {os.path.basename(file)[:-len(".json")]: file for file in sorted(files)}


def plugins(binary, tokens):
    """Compares the answers of a server with all plugins. Returns the exit status."""
    server = subprocess.Popen([binary, "--secure-port=0", "--authorization-mode=RBAC", "--controllers=none",
                               "--enable-admission-plugins=ServiceAccount", "--token-auth-file=" + tokens],
                              stdout=subprocess.PIPE, text=True)
    try:
        url = server.stdout.readline().split()[2]
        command = [sys.executable, os.path.join(HERE, "plugins.py"), url, "testtoken", "usertoken"]
        return subprocess.run(command, timeout=TIME_LIMIT).returncode
    finally:
        server.terminate()
        server.wait(timeout=20)


def main():
    binary, asked = sys.argv[1], sys.argv[2:]
    etcd_binary = None
    if asked[:1] == ["--etcd"]:
        etcd_binary, asked = asked[1], asked[2:]
    files = scenarios()
    asked = asked or list(files)
    unknown = set(asked) - set(files)
    if unknown:
        sys.exit(f"unknown scenarios: {sorted(unknown)}")
    played = [files[scenario] for scenario in asked]
    with tempfile.TemporaryDirectory() as directory:
        tokens = os.path.join(directory, "tokens.csv")
        with open(tokens, "w") as file:
            file.write(TOKENS)
        etcd, store = free_url(), None
        if etcd_binary:
            storage = "--etcd-servers=" + etcd
            store = subprocess.Popen([etcd_binary, "--data-dir", os.path.join(directory, "etcd"), "--log-level=error",
                                      "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
                                      "--listen-peer-urls", "http://127.0.0.1:0"])
        else:
            storage = "--etcd-listen-url=" + etcd
        server = subprocess.Popen([binary, "--secure-port=0", "--authorization-mode=RBAC", storage,
                                   # The recordings are those of a server without controllers.
                                   "--controllers=none", "--token-auth-file=" + tokens], stdout=subprocess.PIPE, text=True)
        try:
            ready = server.stdout.readline().split()
            if ready[:2] != ["revstore-apiserver", "ready"]:
                sys.exit("the server did not start")
            compact = [sys.executable, os.path.join(HERE, "compact.py"), etcd, str(NOTICE_TIME if store else 0)]
            output, results = play(ready[2], compact, played)
            others = []
            if not sys.argv[2:]:
                token = "testtoken"
                for program in (["authorization.py", ready[2], token], ["hostile.py", ready[2]],
                                ["policies.py", ready[2], token], ["webhooks.py", ready[2], token]):
                    command = [sys.executable, os.path.join(HERE, program[0]), *program[1:]]
                    others.append(subprocess.run(command, timeout=TIME_LIMIT).returncode)
        finally:
            server.terminate()
            server.wait(timeout=20)
            if store:
                store.terminate()
                store.wait(timeout=20)
        if not sys.argv[2:]:
            others.append(plugins(binary, tokens))
    passed = {scenario for scenario, result in results.items() if result == "PASS"}
    missing = sorted(set(asked) - passed)
    print(output if missing else "\n".join(output.splitlines()[-25:]))
    for scenario in missing:
        print("does not pass:", scenario)
    if server.returncode != 0:
        sys.exit(f"the server ended with status {server.returncode}")
    sys.exit(1 if missing or not results or any(others) else 0)


if __name__ == "__main__":
    main()
