"""Servers as child processes."""

import collections
import os
import pathlib
import shutil
import subprocess
import threading

# The servers in the wheel.
PACKED = pathlib.Path(__file__).parent / "bin"

# The number of lines of a server's output that are kept, the last ones.
OUTPUT_LINES = 2_000

# The time for which a server may finish after its standard input has ended. Then it is killed.
STOP_SECONDS = 5

# The time to wait for the rest of the output of a server that has ended. A child of it may hold the pipes.
OUTPUT_SECONDS = 1


class StartError(Exception):
    """A server was not found, or did not start."""


def find(name, variable, explicit=None):
    """Return the path of a server: the explicit one, that of the variable, that in this package, or the first in PATH."""
    for source, path in (("binary", explicit), (variable, os.environ.get(variable))):
        if path:
            if not os.path.isfile(path) or not os.access(path, os.X_OK):
                raise StartError(f"{source}: {path} is not an executable file")
            return str(path)
    packed = PACKED / name
    if packed.is_file():
        return str(packed)
    found = shutil.which(name)
    if found:
        return found
    places = os.environ.get("PATH", "").replace(os.pathsep, ", ")
    raise StartError(
        f"{name} was not found: no binary is given, {variable} is not set, this package was built without it "
        f"({packed}), and it is not in PATH ({places})"
    )


class Process:
    """A running server. It ends with this process, whose pipe is its standard input."""

    def __init__(self, name, path, flags, start_timeout):
        try:
            self._child = subprocess.Popen(
                [path, *flags, "--exit-with-stdin"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise StartError(f"{path}: {error}") from error
        self.ready = None
        self._lines = collections.deque(maxlen=OUTPUT_LINES)
        self._settled = threading.Event()
        self._readers = [
            threading.Thread(target=self._read, args=(pipe, prefix), daemon=True)
            for pipe, prefix in ((self._child.stdout, f"{name} ready "), (self._child.stderr, None))
        ]
        for reader in self._readers:
            reader.start()
        settled = self._settled.wait(start_timeout)
        if self.ready is None:
            if not settled:
                self._child.kill()
            self.stop()
            reason = f"ended before it was ready, with status {self._child.returncode}"
            raise StartError(f"{path} {reason if settled else f'was not ready within {start_timeout} s'}:\n{self.output}")

    @property
    def output(self):
        """The last lines that the server has written."""
        return "".join(self._lines.copy())

    def stop(self):
        """Stop the server and wait for its end."""
        self._child.stdin.close()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        for reader in self._readers:
            reader.join(OUTPUT_SECONDS)

    def _read(self, pipe, prefix):
        with pipe:
            for line in pipe:
                if prefix and self.ready is None and line.startswith(prefix):
                    self.ready = line[len(prefix) :].rstrip("\n")
                    self._settled.set()
                else:
                    self._lines.append(line)
        if prefix:
            # The end of standard output is the end of the server.
            self._settled.set()
