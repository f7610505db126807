"""Downloads wheels for another machine with this Python's pip: all that some packages need there.

pip selects by the other machine's tags, but evaluates environment markers (`sys_platform == "win32"`) for the machine
on which it runs. So it gets one level of requirements at a time, and the markers are evaluated here. This module knows
no node and no SSH.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ...errors import GpuKernelError

_MAX_ROUNDS = 25
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""The names that the tags manylinux_2_N had before; 5 is the oldest one."""


class Machine(NamedTuple):
    """The machine and its Python. libc: "glibc 2.36", or "musl"; abi: "cp311"; version: "3.11.2"."""

    machine: str
    libc: str
    version: str
    abi: str

    def __str__(self) -> str:
        return f"Python {self.version} on {self.machine} with {self.libc}"

    def markers(self, extra: str) -> dict[str, str]:
        """Return the values of all environment markers there."""
        return {
            "implementation_name": "cpython",
            "implementation_version": self.version,
            "os_name": "posix",
            "platform_machine": self.machine,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": self.version,
            "python_version": ".".join(self.version.split(".")[:2]),
            "sys_platform": "linux",
            "extra": extra,
        }

    def pip_options(self) -> list[str]:
        """Return the options with which pip selects wheels for this machine."""
        options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", self.version]
        for abi in (self.abi, "abi3", "none"):
            options += ["--abi", abi]
        for platform in self._platforms():
            options += ["--platform", f"{platform}_{self.machine}"]
        return options

    def _platforms(self) -> list[str]:
        if self.libc == "musl":
            return [f"musllinux_1_{minor}" for minor in (2, 1, 0)]
        newest = int(re.findall(r"\d+", self.libc)[1])
        tags = []
        for minor in range(min(newest, 99), min(_LEGACY) - 1, -1):
            tags += [f"manylinux_2_{minor}", *([_LEGACY[minor]] if minor in _LEGACY else [])]
        return [*tags, "linux"]


class Wheel(NamedTuple):
    """A downloaded wheel."""

    path: Path
    name: str
    version: Version
    requires: tuple[Requirement, ...]

    @classmethod
    def read(cls, path: Path) -> Wheel:
        """Read its metadata."""
        name, version, _, _ = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            (metadata,) = [
                one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)
            ]
            headers = HeaderParser().parsestr(archive.read(metadata).decode("utf-8", "replace"))
        requires = tuple(map(Requirement, headers.get_all("Requires-Dist") or ()))
        return cls(path, name, version, requires)

    def required(self, environment: dict[str, str]) -> list[Requirement]:
        """Return what the wheel requires where environment markers have these values."""
        return [one for one in self.requires if one.marker is None or one.marker.evaluate(environment)]


def download(
    wanted: Iterable[str], machine: Machine, folder: Path, progress: Callable[[str], None]
) -> list[Wheel]:
    """Download the wanted packages, and all that they require there, into `folder`. Raises GpuKernelError."""
    pip = _find_pip()
    for _ in range(_MAX_ROUNDS):
        wheels = {wheel.name: wheel for wheel in map(Wheel.read, folder.glob("*.whl"))}
        missing = []
        for name, specifier in _needed(wanted, wheels, machine).items():
            if name in wheels and specifier.contains(wheels[name].version, prereleases=True):
                continue
            missing.append(f"{name}{specifier}")
            if name in wheels:  # another requirement excludes this version
                wheels[name].path.unlink()
        if not missing:
            return sorted(wheels.values(), key=lambda wheel: wheel.name)
        progress(f"downloading {', '.join(missing)[:200]}")
        options = ["--quiet", "--no-deps", "--dest", str(folder), *machine.pip_options()]
        done = _run([*pip, "download", *options, *missing])
        if done.returncode:
            raise _pip_error(done.stderr, machine)
    raise GpuKernelError(f"the requirements of {', '.join(wanted)} do not come to an end")


def _needed(wanted: Iterable[str], wheels: Mapping[str, Wheel], machine: Machine) -> dict[str, SpecifierSet]:
    """Return what must be there by name, as far as the wheels tell: all versions that are allowed."""
    specifiers: dict[str, SpecifierSet] = {}
    seen: set[tuple[str, str]] = set()
    pending = list(map(Requirement, wanted))
    while pending:
        one = pending.pop()
        name = canonicalize_name(one.name)
        specifiers[name] = specifiers.get(name, SpecifierSet()) & one.specifier
        for extra in ("", *one.extras):
            if name in wheels and (name, extra) not in seen:
                seen.add((name, extra))
                pending += wheels[name].required(machine.markers(extra))
    return specifiers


def _find_pip() -> list[str]:
    """Return the command for a pip: that of this Python, or of the one it was made from (uv makes environments without
    pip), or any on PATH, as each can download for another Python. Raises GpuKernelError without one."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    for command in ([sys.executable, "-m", "pip"], [base, "-m", "pip"], ["pip"]):
        with contextlib.suppress(OSError):
            if _run([*command, "--version"]).returncode == 0:
                return [*command, "--no-input", "--disable-pip-version-check"]
    raise GpuKernelError(
        f"this computer's Python {sys.executable} has no pip, which downloads the packages",
        remedy=f"“{sys.executable} -m ensurepip --upgrade” (or “uv pip install pip”) installs it.",
    )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pip, with the user's settings of index, proxy and folders of wheels."""
    environ = {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0", "PYTHONWARNINGS": "ignore"}
    null = subprocess.DEVNULL
    return subprocess.run(
        command, stdin=null, capture_output=True, text=True, errors="replace", env=environ, check=False
    )


def _pip_error(output: str, machine: Machine) -> GpuKernelError:
    lines = [line.strip()[:300] for line in output.splitlines()]
    last = [line for line in lines if line and not line.startswith("ERROR: Ignored")][-4:]
    return GpuKernelError(
        "\n".join([f"pip could not download wheels for {machine}:", *last]),
        remedy="If there are none for it, choose a newer Python of the node with --python PATH, or with --setup LINE "
        "(module load …). Else check this computer's network, free space and pip's settings (proxy, index). A folder "
        "with the wheels serves as well: PIP_FIND_LINKS=FOLDER and PIP_NO_INDEX=1 in the environment of this command.",
    )
