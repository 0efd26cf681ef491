#!/usr/bin/env python3
"""Records the terminal session of the README as an SVG image.

    scripts/record-session.py [--server PATH] [--etcdctl PATH] [--out FILE]

Starts the server on a free port, runs the commands of SESSION against it with the real etcdctl, and
draws the commands with their output. Only the commands are written by hand; the port in the output is
replaced by etcd's usual 2379. Needs a release build and
scripts/install-etcd.sh; no packages beyond Python's standard library.
"""

import argparse
import html
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent

# The commands of the session.
SESSION = [
    "etcdctl put job/1 queued",
    "etcdctl put job/1 done",
    "etcdctl get job/1 --rev 2",
    "etcdctl watch --prefix job/ --rev 1",
    "etcdctl compact 3",
    "etcdctl get job/1 --rev 2",
    "etcdctl endpoint health",
]

CELL_WIDTH, LINE_HEIGHT, MARGIN, COLUMNS = 8.0, 18, 16, 100
BACKGROUND, TEXT, PROMPT, COMMAND = "#1e2127", "#c8ccd4", "#7ec699", "#ffffff"


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def run(command, environment, endpoint):
    """Runs one command; returns its output. A watch ends when its history has been printed."""
    arguments = [environment["ETCDCTL"], "--endpoints", endpoint, *command.split()[1:]]
    process = subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    if " watch " not in command:
        return process.communicate(timeout=30)[0]
    # Three lines for each of the two events.
    lines = [process.stdout.readline() for _ in range(6)]
    process.terminate()
    process.wait(timeout=30)
    return "".join(lines) + "^C\n"


def visible(text, port):
    """Returns the lines to show: with etcd's usual port, without the client's log lines."""
    text = text.replace(str(port), "2379")
    text = re.sub(r'\{"level":"warn".*\}\n', "", text)
    return [line[:COLUMNS] for line in text.rstrip("\n").split("\n")]


def draw(lines):
    height = 2 * MARGIN + LINE_HEIGHT * len(lines)
    width = 2 * MARGIN + CELL_WIDTH * max(len(text) + (2 if is_command else 0) for is_command, text in lines)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" aria-label="A session of etcdctl with revstore">',
        f'<rect width="100%" height="100%" rx="8" fill="{BACKGROUND}"/>',
        '<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" '
        'font-size="13" xml:space="preserve">',
    ]
    for number, (is_command, text) in enumerate(lines):
        y = MARGIN + LINE_HEIGHT * number + 13
        # `textLength` keeps columns aligned with every font.
        length = f'textLength="{CELL_WIDTH * len(text):.0f}"' if text else ""
        if is_command:
            out.append(f'<text x="{MARGIN}" y="{y}" fill="{PROMPT}">$</text>')
            out.append(
                f'<text x="{MARGIN + 2 * CELL_WIDTH:.0f}" y="{y}" {length} fill="{COMMAND}" '
                f'font-weight="bold">{html.escape(text)}</text>'
            )
        elif text:
            out.append(f'<text x="{MARGIN}" y="{y}" {length} fill="{TEXT}">{html.escape(text)}</text>')
    out += ["</g>", "</svg>", ""]
    return "\n".join(out)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default=ROOT / "target/release/revstore")
    parser.add_argument("--etcdctl", default=os.environ.get("ETCDCTL") or ROOT / "tests/.tools/bin/etcdctl")
    parser.add_argument("--out", default=ROOT / "docs/session.svg", type=pathlib.Path)
    arguments = parser.parse_args()

    port = free_port()
    endpoint = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "ETCDCTL": str(arguments.etcdctl)}
    lines = [(True, "revstore 2> revstore.log &")]
    with tempfile.TemporaryFile("w+") as log:
        server = subprocess.Popen(
            [
                str(arguments.server),
                f"--listen-client-urls={endpoint}",
                f"--advertise-client-urls={endpoint}",
                "--listen-peer-urls=http://127.0.0.1:0",
            ],
            stdout=log,
            stderr=log,
        )
        try:
            for _ in range(1000):
                try:
                    urllib.request.urlopen(f"{endpoint}/health", timeout=1).read()
                    break
                except OSError:
                    if server.poll() is not None:
                        sys.exit(f"the server ended with status {server.returncode}")
            for command in SESSION:
                lines.append((True, command))
                output = run(command, environment, f"127.0.0.1:{port}")
                lines += [(False, line) for line in visible(output, port)]
        finally:
            server.terminate()
            server.wait(timeout=30)
    arguments.out.parent.mkdir(exist_ok=True)
    arguments.out.write_text(draw(lines), encoding="utf-8")
    print(f"{arguments.out}: {len(lines)} lines")


if __name__ == "__main__":
    main()
