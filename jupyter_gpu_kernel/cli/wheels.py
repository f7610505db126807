"""Downloads wheels for another machine with this Python's pip: all that some packages need there.

pip selects by the other machine's tags, but evaluates environment markers (`sys_platform == "win32"`) for the machine
on which it runs. So it gets one level of requirements at a time, and the markers are evaluated here. This module knows
no node and no SSH.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ..errors import GpuKernelError

_MAX_ROUNDS = 25
_MAX_WHEELS = 200
_MAX_BYTES = 500 << 20
_PIP_TIME = 600.0  # seconds for one run of pip
_OLDEST_GLIBC = 5  # of the tags manylinux_2_N; older ones have names of their own
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


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
        """Return the options with which pip selects wheels for it."""
        options = ["--only-binary=:all:", "--implementation", "cp", "--python-version", self.version]
        for abi in (self.abi, "abi3", "none"):
            options += ["--abi", abi]
        for platform in self._platforms():
            options += ["--platform", f"{platform}_{self.machine}"]
        return options

    def _platforms(self) -> list[str]:
        if not self.libc.startswith("glibc"):
            return [f"musllinux_1_{minor}" for minor in (2, 1, 0)]
        newest = int([*re.findall(r"\d+", self.libc), "2", "17"][1])
        tags = []
        for minor in range(min(newest, 99), _OLDEST_GLIBC - 1, -1):
            tags += [f"manylinux_2_{minor}", *([_LEGACY[minor]] if minor in _LEGACY else [])]
        return [*tags, "linux"]


class Wheel(NamedTuple):
    """A downloaded wheel. unpacked: bytes of its files; files: their number."""

    path: Path
    name: str
    version: Version
    unpacked: int
    files: int
    requires: tuple[Requirement, ...]

    @classmethod
    def read(cls, path: Path) -> Wheel:
        """Read its metadata. Raises ValueError if it is no valid wheel."""
        name, version, _, _ = parse_wheel_filename(path.name)
        with zipfile.ZipFile(path) as archive:
            files = archive.infolist()
            (metadata,) = [
                one.filename for one in files if re.fullmatch(r"[^/]+\.dist-info/METADATA", one.filename)
            ]
            headers = HeaderParser().parsestr(archive.read(metadata).decode("utf-8", "replace"))
        requires = tuple(map(Requirement, headers.get_all("Requires-Dist") or ()))
        unpacked = sum(one.file_size for one in files)
        return cls(path, name, version, unpacked, len(files), requires)

    def manifest(self) -> dict[str, str | int]:
        """Return its name, size and SHA-256."""
        data = self.path.read_bytes()
        return {
            "name": self.path.name,
            "size": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }


def download(
    wanted: Iterable[str], machine: Machine, folder: Path, progress: Callable[[str], None]
) -> list[Wheel]:
    """Download the wanted packages, and all that they require there, into `folder`. Raises GpuKernelError."""
    pip = _find_pip()
    roots = [Requirement(one) for one in wanted]
    wheels: dict[str, Wheel] = {}
    for _ in range(_MAX_ROUNDS):
        specifiers = _closure(roots, wheels, machine)
        missing = {
            name: specifier
            for name, specifier in specifiers.items()
            if name not in wheels or not specifier.contains(wheels[name].version, prereleases=True)
        }
        if not missing:
            return [wheels[name] for name in sorted(specifiers)]
        progress(f"downloading {', '.join(sorted(missing))[:200]}")
        for name in missing:
            if name in wheels:  # another requirement excludes this version
                wheels.pop(name).path.unlink()
        _run_pip(pip, [f"{name}{specifier}" for name, specifier in sorted(missing.items())], machine, folder)
        wheels = _read_all(folder)
        if lacking := missing.keys() - wheels.keys():
            raise GpuKernelError(f"pip downloaded no wheel of {', '.join(sorted(lacking))}", remedy=_NO_WHEEL)
    raise GpuKernelError(f"the requirements of {', '.join(map(str, roots))} do not come to an end")


def _closure(roots: list[Requirement], wheels: dict[str, Wheel], machine: Machine) -> dict[str, SpecifierSet]:
    """Return what must be there by name, as far as the wheels tell: all versions that are allowed."""
    specifiers: dict[str, SpecifierSet] = {}
    seen: set[str] = set()
    pending = list(roots)
    while pending:
        one = pending.pop()
        name = canonicalize_name(one.name)
        specifiers[name] = specifiers.get(name, SpecifierSet()) & one.specifier
        for extra in ("", *one.extras):
            if name in wheels and f"{name}[{extra}]" not in seen:
                seen.add(f"{name}[{extra}]")
                environment = machine.markers(extra)
                pending += [
                    each
                    for each in wheels[name].requires
                    if each.marker is None or each.marker.evaluate(environment)
                ]
    return specifiers


def _read_all(folder: Path) -> dict[str, Wheel]:
    paths = sorted(folder.glob("*.whl"))
    if len(paths) > _MAX_WHEELS or sum(path.stat().st_size for path in paths) > _MAX_BYTES:
        raise GpuKernelError(f"more than {_MAX_WHEELS} wheels, or {_MAX_BYTES >> 20} MiB, were downloaded")
    try:
        return {wheel.name: wheel for wheel in map(Wheel.read, paths)}
    except (ValueError, InvalidWheelFilename, zipfile.BadZipFile) as error:
        raise GpuKernelError(f"pip downloaded a broken wheel: {error}", remedy="Try again.") from None


# --- pip

_NO_WHEEL = (
    "Choose a newer Python of the node with --python PATH, or with --setup LINE (module load …). If there are no "
    "wheels for this platform, install ipykernel on the node with conda."
)


def _environment() -> dict[str, str]:
    """The environment for pip, with the user's settings of index, proxy and folders of wheels."""
    return {**os.environ, "PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0", "PYTHONWARNINGS": "ignore"}


def _find_pip() -> list[str]:
    """Return the command for a pip: that of this Python, or of the one it was made from (uv makes environments without
    pip), or any on PATH, as each can download for another Python. Raises GpuKernelError without one."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    commands = [[python, "-m", "pip"] for python in dict.fromkeys((sys.executable, base))]
    commands += [[path] for name in ("pip", "pip3") if (path := shutil.which(name))]
    failures: list[str] = []
    for command in commands:
        with contextlib.suppress(OSError):
            done = _run([*command, "--version"])
            if not done.returncode:
                return [*command, "--no-input", "--disable-pip-version-check"]
            failures += done.stderr.strip().splitlines()[-1:]
    raise GpuKernelError(
        f"this computer's Python {sys.executable} has no pip, which downloads the packages"
        + (f": {failures[0]}" if failures else ""),
        remedy=f"Run: {sys.executable} -m ensurepip --upgrade (or: uv pip install pip)",
    )


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_PIP_TIME,
        env=_environment(),
        check=False,
    )


def _run_pip(pip: list[str], requirements: list[str], machine: Machine, folder: Path) -> None:
    command = [*pip, "download", "--quiet", "--no-deps", "--dest", str(folder), *machine.pip_options()]
    try:
        done = _run([*command, *requirements])
    except subprocess.TimeoutExpired:
        raise GpuKernelError(
            f"pip did not download {' '.join(requirements)} within {_PIP_TIME:.0f} s", remedy=_NO_INDEX
        ) from None
    if done.returncode:
        raise _pip_error(done.stderr, machine)


_NO_INDEX = (
    "Check this computer's network and pip's settings (proxy, index). A folder with the wheels serves as well: "
    "PIP_FIND_LINKS=FOLDER and PIP_NO_INDEX=1 in the environment of this command."
)


def _pip_error(output: str, machine: Machine) -> GpuKernelError:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    errors = [line for line in errors if not line.startswith("Ignored")] or lines[-3:]
    text = "\n".join(line[:300] for line in errors[-4:])
    if "No space left" in output or "Disk quota" in output:
        return GpuKernelError(f"this computer's disk is full:\n{text}", remedy="Free some space in TMPDIR.")
    unreachable = re.search(
        r"connection|timed out|resolve|retry|proxy|SSL|certificate", output, re.IGNORECASE
    )
    cause = f"pip could not download wheels for {machine}:\n{text}"
    return GpuKernelError(cause, remedy=_NO_INDEX if unreachable else _NO_WHEEL)
