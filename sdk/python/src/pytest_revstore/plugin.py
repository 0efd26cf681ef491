"""The fixtures.

`revstore` is a server for one test, `revstore_fork` a fork of a server for all tests of the session, `revstore_session`,
and `revstore_apiserver` a Kubernetes API server for one test. The marker `revstore` has the options of the server.
"""

import pytest

from .server import ApiServer, Server

_FAILED = pytest.StashKey[bool]()


def pytest_configure(config):
    config.addinivalue_line("markers", "revstore(clock=, flags=, control=, binary=): the options of the server of a test")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item):
    outcome = yield
    if outcome.get_result().failed:
        item.stash[_FAILED] = True


@pytest.fixture
def revstore(request):
    """A server for this test."""
    with Server(**_options(request)) as server:
        yield server
        _save(request, server)


@pytest.fixture(scope="session")
def revstore_session():
    """A server for all tests of the session, or of a worker of pytest-xdist."""
    with Server() as server:
        yield server


@pytest.fixture
def revstore_fork(request, revstore_session):
    """A fork of `revstore_session` for this test."""
    with revstore_session.fork() as fork:
        yield fork
        _save(request, fork)


@pytest.fixture
def revstore_apiserver(request):
    """A Kubernetes API server for this test."""
    with ApiServer(**_options(request)) as server:
        yield server
        _save(request, server)


def _options(request):
    marker = request.node.get_closest_marker("revstore")
    return marker.kwargs if marker else {}


def _save(request, server):
    if request.node.stash.get(_FAILED, False):
        path = server.save(request.node.name)
        # Shown with the failure, after the report of the call.
        request.node.add_report_section("teardown", "revstore", f"the store, the journal and the log are in {path}")
        print(f"\nrevstore: the store, the journal and the log are in {path}")
