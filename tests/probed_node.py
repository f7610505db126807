"""A work node for the probe: a home, and a PATH with the usual tools, with stand-ins for Pythons."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from runtimes import RUNTIME

from jupyter_gpu_kernel.hub.node.check.find_python import FoundPythons, find_pythons

TOOLS = "cat date dd find getconf grep head hostname ls mktemp readlink rm sed setsid sh sleep tail tr uname"


class Node:
    """A work node: a home, and a PATH with the usual tools but no Python. Also the `CommandRunner`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / "home"
        self.programs = root / "programs"
        self.tmp = root / "tmp"
        self.started = root / "started"
        self.sh = "/bin/sh"
        for folder in (self.home, self.programs, self.tmp):
            folder.mkdir(parents=True)
        for tool in TOOLS.split():
            if where := shutil.which(tool):
                (self.programs / tool).symlink_to(where)
        self.shell = self.program("login-shell", 'eval "$2"')

    def program(self, name: str, script: str, folder: Path | None = None) -> Path:
        """An executable shell script."""
        path = (folder or self.programs) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def python(
        self,
        prefix: Path,
        version: str = "3.11.7",
        ipykernel: str | None = "6.29.5",
        before: str = "",
        name: str = "",
    ) -> Path:
        """A program that answers as a Python of that prefix would, and notes that it was started."""
        facts = {"version": version, "prefix": str(prefix), "ipykernel": ipykernel, "pyzmq": "26.0.3"}
        path = prefix / "bin" / (name or "python")
        answer = "facts " + json.dumps({"executable": str(path), **facts})
        notes = f"echo {shlex.quote(str(path))} >>{shlex.quote(str(self.started))}"
        return self.program(
            path.name, f"{notes}\n{before}\nprintf '%s\\n' {shlex.quote(answer)}", path.parent
        )

    def conda(self, prefix: Path, version: str = "3.11.7", ipykernel: str | None = "6.29.5") -> Path:
        """A conda environment, as its files tell it."""
        (prefix / "conda-meta").mkdir(parents=True)
        (prefix / "conda-meta" / f"python-{version}-h955ad1f_0.json").write_text("{}")
        install(site_packages(prefix, version), ipykernel)
        return self.python(prefix, version, ipykernel)

    def run(
        self, command: str, *, stdin: bytes = b"", timeout: float = 30.0
    ) -> subprocess.CompletedProcess[bytes]:
        shell = command if command != "/bin/sh" else self.sh
        env = {
            "HOME": str(self.home),
            "PATH": str(self.programs),
            "SHELL": str(self.shell),
            "TMPDIR": str(self.tmp),
        }
        words = [self.programs / "sh", "-c", shell]
        return subprocess.run(
            words, input=stdin, capture_output=True, timeout=timeout, env=env, cwd=self.home
        )

    def find(self, wanted: str | None = None, setup: list[str] | None = None) -> FoundPythons:
        return find_pythons(self, "gpu2", wanted, RUNTIME.monotonic, setup or [])

    def starts(self) -> list[str]:
        return self.started.read_text().splitlines() if self.started.exists() else []


def site_packages(prefix: Path, version: str) -> Path:
    minor = ".".join(version.split(".")[:2])
    folder = prefix / "lib" / f"python{minor}" / "site-packages"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def install(folder: Path, ipykernel: str | None) -> None:
    """Leave in site-packages what the installation of a package leaves."""
    packages = {"ipykernel": ipykernel, "pyzmq": "26.0.3"} if ipykernel else {}
    for name, version in packages.items():
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def real_venv(prefix: Path, ipykernel: str | None) -> Path:
    """A virtual environment of the Python that runs the tests, without the second that ensurepip takes."""
    base = Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"
    version = ".".join(map(str, sys.version_info[:3]))
    (prefix / "bin").mkdir(parents=True)
    (prefix / "bin" / "python").symlink_to(base)
    (prefix / "pyvenv.cfg").write_text(
        f"home = {base.parent}\ninclude-system-site-packages = false\nversion = {version}\n"
    )
    install(site_packages(prefix, version), ipykernel)
    return prefix / "bin" / "python"


def why_not(found: FoundPythons, path: Path) -> str:
    (python,) = [python for python in found.others if python.path == str(path)]
    return python.why_not
