"""Puts the server into the wheel: the one that REVSTORE_BIN names, or the release build of this repository."""

import os
import pathlib
import shutil

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

TARGET = pathlib.Path(__file__).resolve().parents[2] / "target" / "release"


def program(name, variable):
    return pathlib.Path(os.environ.get(variable) or TARGET / name)


class BuildWithServer(build_py):
    def run(self):
        super().run()
        server = program("revstore", "REVSTORE_BIN")
        if not server.is_file():
            raise SystemExit(f"{server} is missing: build it with cargo build --release, or set REVSTORE_BIN")
        directory = pathlib.Path(self.build_lib) / "pytest_revstore" / "bin"
        directory.mkdir(parents=True, exist_ok=True)
        shutil.copy(server, directory / "revstore")
        front = program("revstore-apiserver", "REVSTORE_APISERVER_BIN")
        if front.is_file():
            shutil.copy(front, directory / "revstore-apiserver")


class PlatformWheel(bdist_wheel):
    """A wheel for this platform and any Python 3."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


setup(cmdclass={"build_py": BuildWithServer, "bdist_wheel": PlatformWheel})
