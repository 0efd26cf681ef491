"""Servers for tests."""

import os
import pathlib
import re
import tempfile
from contextlib import contextmanager
from urllib.parse import urlsplit

from .control import Control, NoControl
from .launch import Process, find

START_SECONDS = 30


class _Running:
    """A server with control, or a fork without a process of its own."""

    def __init__(self, process, control):
        self._process = process
        self.control = control

    def close(self):
        """Stop the server."""
        if self._process:
            self._process.stop()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def save(self, name, directory=None):
        """Write the store, the journal and the log to files of a new directory, and return its path.

        The directory is in the given one, or in that of REVSTORE_ARTIFACTS, or in that for temporary files.
        """
        base = pathlib.Path(
            directory or os.environ.get("REVSTORE_ARTIFACTS") or pathlib.Path(tempfile.gettempdir(), "revstore-artifacts")
        )
        base.mkdir(parents=True, exist_ok=True)
        path = pathlib.Path(tempfile.mkdtemp(dir=base, prefix=re.sub(r"[^\w.-]", "_", name)[:100] + "-"))
        if self._process:
            (path / "server.log").write_text(self._process.output, encoding="utf-8")
        if isinstance(self.control, Control):
            self._save(path / "journal.jsonl", self.control.journal_lines)
            self._save(path / "dump.txt", self.control.dump)
        return path

    def _save(self, path, write):
        """Write a file, or the reason why that is not possible, which must not hide the failure of the test."""
        with path.open("wb") as file:
            try:
                write(file)
            except Exception as error:
                path.with_name(path.name + ".error").write_text(str(error), encoding="utf-8")


class Server(_Running):
    """An etcd, with `endpoint`, `host`, `port` and `control`."""

    def __init__(self, *, binary=None, clock=None, flags=(), control=True, start_timeout=START_SECONDS):
        process = Process(
            "revstore",
            find("revstore", "REVSTORE_BIN", binary),
            [
                "--listen-client-urls=http://127.0.0.1:0",
                "--advertise-client-urls=http://127.0.0.1:0",
                "--listen-peer-urls=http://127.0.0.1:0",
                *_control_flags(control, clock),
                *flags,
            ],
            start_timeout,
        )
        endpoint, _, url = process.ready.partition(" ")
        self._set(process, endpoint, Control(url) if url else NoControl())

    def _set(self, process, endpoint, control):
        super().__init__(process, control)
        self.endpoint = endpoint
        self.host, self.port = urlsplit(endpoint).hostname, urlsplit(endpoint).port

    @contextmanager
    def fork(self):
        """Run an independent server with the same history, within milliseconds. Its clock is its own."""
        answer = self.control.fork()
        fork = Server.__new__(Server)
        fork._set(None, answer.endpoint, Control(answer.control))
        try:
            yield fork
        finally:
            self.control.drop(answer.id)


class ApiServer(_Running):
    """A Kubernetes API server, with `url` for plain HTTP and the path `kubeconfig` and `control`."""

    def __init__(self, *, binary=None, clock=None, flags=(), control=True, start_timeout=START_SECONDS):
        process = Process(
            "revstore-apiserver",
            find("revstore-apiserver", "REVSTORE_APISERVER_BIN", binary),
            ["--secure-port=0", "--listen-http=127.0.0.1:0", *_control_flags(control, clock), *flags],
            start_timeout,
        )
        self.url, _, self.kubeconfig = process.ready.partition(" ")
        url = None
        if control:
            self.kubeconfig, _, url = self.kubeconfig.rpartition(" ")
        super().__init__(process, Control(url) if url else NoControl())


def _control_flags(control, clock):
    listen = ["--control-listen-url=http://127.0.0.1:0"] if control else []
    return listen + ([f"--control-clock={clock}"] if clock else [])
