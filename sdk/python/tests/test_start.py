"""Servers that are not found or do not start, and what tests leave behind."""

import os
import pathlib
import subprocess
import sys
from datetime import timedelta

import pytest
from pytest_revstore import Server, StartError, durations, launch


@pytest.fixture
def script(tmp_path):
    """Write programs."""

    def write(text, name="revstore"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o700)
        return path

    return write


def refused(**options):
    with pytest.raises(StartError) as error:
        Server(**options)
    return str(error.value)


def test_a_missing_binary_is_an_error_that_names_all_places(monkeypatch):
    monkeypatch.delenv("REVSTORE_BIN", raising=False)
    monkeypatch.setattr(launch, "PACKED", pathlib.Path("/none/bin"))
    monkeypatch.setenv("PATH", "/nowhere:/else")
    text = refused()
    for part in ("no binary is given", "REVSTORE_BIN", "(/none/bin/revstore)", "PATH (/nowhere, /else)"):
        assert part in text
    assert refused(binary="/none") == "binary: /none is not an executable file"
    monkeypatch.setenv("REVSTORE_BIN", "/etc/passwd")
    assert refused() == "REVSTORE_BIN: /etc/passwd is not an executable file"


def test_the_explicit_path_is_first_then_the_variable_then_the_package_then_path(monkeypatch, script):
    in_path = script("echo in PATH; exit 1", "path/revstore")
    monkeypatch.setenv("PATH", f"{in_path.parent}:{os.environ['PATH']}")
    monkeypatch.delenv("REVSTORE_BIN", raising=False)
    monkeypatch.setattr(launch, "PACKED", in_path.parent.parent / "bin")
    assert "in PATH" in refused()
    script("echo in the package; exit 1", "bin/revstore")
    assert "in the package" in refused()
    monkeypatch.setenv("REVSTORE_BIN", str(script("echo in the variable; exit 1", "variable")))
    assert "in the variable" in refused()
    assert "explicit" in refused(binary=script("echo explicit; exit 1", "explicit"))


def test_a_start_that_fails_shows_the_output():
    text = refused(flags=["--nonsense"])
    assert "ended before it was ready, with status 2" in text
    assert "-nonsense" in text


def test_a_server_that_is_never_ready_is_killed(script):
    path = script("echo started; sleep 20")
    text = refused(binary=path, start_timeout=0.3)
    assert "was not ready within 0.3 s" in text
    assert "started" in text


def test_the_server_ends_with_a_process_that_is_killed():
    program = """
import os, signal, pytest_revstore
server = pytest_revstore.Server()
print(server._process._child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    pid = int(killed.stdout)
    # Ends when no process has the number any more: bounded by the timeout of the command.
    subprocess.run(["sh", "-c", f"while kill -0 {pid} 2>/dev/null; do :; done"], timeout=60, check=True)


def test_a_failed_test_leaves_its_files(pytester, monkeypatch, tmp_path):
    monkeypatch.setenv("REVSTORE_ARTIFACTS", str(tmp_path))
    pytester.makepyfile(
        """
        import urllib.request

        def test_fails(revstore):
            urllib.request.urlopen(revstore.endpoint + "/v3/kv/put", b'{"key": "a2V5", "value": "dg=="}').close()
            assert False

        def test_passes(revstore):
            pass
        """
    )
    result = pytester.runpytest_subprocess()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines([f"*are in {tmp_path}/test_fails-*"])
    (directory,) = tmp_path.glob("test_*")
    assert "ready to serve" in (directory / "server.log").read_text()
    assert '"request":{"body":"CgNrZXkSAXY="' in (directory / "journal.jsonl").read_text()
    assert '{"put":{"key":"key","value":"v"' in (directory / "dump.txt").read_text()


@pytest.mark.parametrize(
    ("text", "seconds"), [("1m30s", 90), ("1h0m0.5s", 3600.5), ("250ms", 0.25), ("2µs", 2e-6), ("0s", 0)]
)
def test_durations_are_those_of_go(text, seconds):
    assert durations.from_text(text) == timedelta(seconds=seconds)


def test_durations_are_given_as_timedeltas_numbers_or_texts():
    assert durations.to_text(timedelta(seconds=90)) == "90000000us"
    assert durations.to_text(1.5) == "1500000000ns"
    assert durations.to_text("1m30s") == "1m30s"
