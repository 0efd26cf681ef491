"""Processes of revstore-apiserver, each with its own ports and directory."""

import os
import pathlib
import socket
import subprocess
import tempfile
import threading

# The time limit of a wait, after which the test fails. It is long enough for busy machines.
LIMIT_SECONDS = 120

# The maximum number of starts. A start fails if another process takes the chosen port first.
PORT_ATTEMPTS = 5


class Server:
    """A server that runs from its construction until `close`.

    `kubeconfig` is the file that the server wrote, for HTTPS; `url` is the address for plain HTTP.
    """

    def __init__(self, *flags):
        for _ in range(PORT_ATTEMPTS):
            if self._start(flags):
                return
            self.close()
            if "address already in use" not in self.log().lower():
                break
        raise RuntimeError("the server did not start:\n" + self.log())

    def log(self):
        return "".join(self._lines)

    def close(self):
        self._process.kill()
        self._process.wait(LIMIT_SECONDS)
        self._reader.join(LIMIT_SECONDS)
        self._process.stdout.close()
        self._process.stderr.close()
        self.directory.cleanup()

    def _start(self, flags):
        self.directory = tempfile.TemporaryDirectory(prefix="revstore-kubernetes-")
        self.path = pathlib.Path(self.directory.name)
        self.kubeconfig = str(self.path / "kubeconfig")
        self.port = free_port()
        http = free_port()
        self.url = f"http://127.0.0.1:{http}"
        self._process = subprocess.Popen(
            [
                os.environ["APISERVER"],
                "--controllers=none",
                f"--secure-port={self.port}",
                f"--listen-http=127.0.0.1:{http}",
                f"--kubeconfig-out={self.kubeconfig}",
                *flags,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._lines = []
        self._reader = threading.Thread(
            target=lambda: self._lines.extend(self._process.stderr), daemon=True
        )
        self._reader.start()
        # A line when the server is ready, or the end of the output when it failed.
        ready = self._process.stdout.readline()
        if not ready:
            self._reader.join(LIMIT_SECONDS)
        return ready.startswith("revstore-apiserver ready ")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
