"""Processes of the server under test, each with its own port and data directory."""

import pathlib
import socket
import subprocess
import tempfile
import threading

# The time limit of a wait, after which the test fails. It is long enough for busy machines.
LIMIT_SECONDS = 60

# Text in the log line of a server that accepts requests (FL-13).
READY = "ready to serve client requests"

# The maximum number of starts. A start fails if another process takes the chosen port first.
PORT_ATTEMPTS = 5

SERVE = pathlib.Path(__file__).parent.parent / "serve"


class Server:
    """A server that runs from its construction until `close`."""

    def __init__(self, *flags):
        for _ in range(PORT_ATTEMPTS):
            if self._start(flags):
                return
            self.close()
            if "address already in use" not in self.log():
                break
        raise RuntimeError("the server did not start:\n" + self.log())

    def log(self):
        return "".join(self._lines)

    def close(self):
        self._process.kill()
        self._process.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        self._process.stderr.close()
        self._directory.cleanup()

    def _start(self, flags):
        self.port = free_port()
        self._directory = tempfile.TemporaryDirectory(prefix="revstore-clients-python-")
        self._process = subprocess.Popen(
            [SERVE, str(self.port), self._directory.name + "/data", *flags],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines = []
        self._ready = False
        self._settled = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._settled.wait(LIMIT_SECONDS)
        return self._ready

    def _read(self):
        for line in self._process.stderr:
            self._lines.append(line)
            if READY in line:
                self._ready = True
                self._settled.set()
        self._settled.set()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
