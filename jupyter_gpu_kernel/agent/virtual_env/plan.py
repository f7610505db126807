"""Where an environment would be made and from which Python; whether it would fit there. Changes nothing."""

from __future__ import annotations

import contextlib
import errno
import glob
import grp
import importlib.util
import os
import pwd
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Any, Dict, Tuple

from .output import Problem, Step
from .record import MIB, read_record, state_of

FULL = {errno.ENOSPC: "space", errno.EDQUOT: "quota"}
_FILES = 12_000  # an environment with ipykernel has about 10,000 files and folders
_PROBE_TIME = 10.0  # seconds for which space is tried out by writing


def plan(request: Dict[str, Any]) -> Dict[str, Any]:
    """Describe the place and this Python, and try whether so many MiB can be written there. Changes nothing."""
    path = Path(os.path.abspath(os.path.expanduser(request["path"])))
    state = state_of(path)
    refuse(path, state)
    place = path
    while not place.is_dir():
        place = place.parent
    _refuse_open_folders(place)
    record = read_record(path) or {}
    facts = {"path": str(path), "state": state, "id": record.get("id", ""), "group": _group(place)}
    facts.update({"packages": record.get("packages", []), **_python_facts(), "free_mib": 0, "written_mib": 0})
    if state != "ours":
        facts["free_mib"], facts["written_mib"] = check_space(place, int(request["mib"]))
    return facts


def refuse(path: Path, state: str) -> None:
    """Raise Problem if no environment may be made there now."""
    if state == "foreign":
        raise Problem("foreign", f"{path} exists, and is not an environment that add --create-env made")
    if state == "busy":
        raise Problem("busy", f"{path} is being made by another process")
    if state == "elsewhere":
        record = read_record(path) or {}
        where = f"on the node {record.get('node')} from {record.get('python')}"
        raise Problem("elsewhere", f"{path} was made {where}, and does not start on this node")


def _python_facts() -> Dict[str, Any]:
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    libc = ""
    with contextlib.suppress(ValueError, OSError):
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    return {
        "python": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "implementation": sys.implementation.name,
        "abi": "cp%d%d%s" % (*sys.version_info[:2], threads),
        "bits": 64 if sys.maxsize > 2**32 else 32,
        "machine": os.uname().machine,
        "libc": libc or ("musl" if glob.glob("/lib/ld-musl-*") else ""),
        "venv": importlib.util.find_spec("venv") is not None,
        "uv": _uv(),
    }


def _uv() -> str:
    home = os.path.expanduser("~")
    places = [os.environ.get("PATH", os.defpath), f"{home}/.local/bin", f"{home}/.cargo/bin"]
    return shutil.which("uv", path=os.pathsep.join(places)) or ""


def _refuse_open_folders(place: Path) -> None:
    """Raise Problem if any user of the node could replace what is made here."""
    for folder in (place, *place.parents):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Problem("open", f"every user of the node can write to {folder}, and replace what is in it")


def _group(place: Path) -> str:
    """Return the name of a group whose members could replace what is made here, or ""."""
    for folder in (place, *place.parents):
        status = folder.stat()
        if status.st_mode & stat.S_IWGRP and not status.st_mode & stat.S_ISVTX and status.st_gid:
            group = user = str(status.st_gid)
            with contextlib.suppress(KeyError):
                group = grp.getgrgid(status.st_gid).gr_name
                user = pwd.getpwuid(os.getuid()).pw_name
            if (
                group != user or status.st_gid != os.getgid()
            ):  # a group of the user's own name has no other members
                return group
    return ""


def check_space(place: Path, mib: int, tried: int = 0) -> Tuple[int, int]:
    """Return the free MiB, and how many could be written. Raises Problem if that is not enough.

    `tried`: so many MiB were written just now.
    """
    status = os.statvfs(str(place))
    free = status.f_bavail * status.f_frsize // MIB
    if free < mib:
        raise Problem("space", f"{place} has {free} MiB of free space, and {mib} MiB are needed")
    if 0 < status.f_favail < _FILES < status.f_files:
        raise Problem(
            "space", f"{place} has room for {status.f_favail} more files, and {_FILES} may be needed"
        )
    if tried >= mib:
        return free, tried
    try:
        written = _write(place, mib)
    except OSError as error:
        if error.errno not in FULL:
            raise
        reason = "the quota" if error.errno == errno.EDQUOT else "the file system"
        text = f"{reason} of {place} does not allow {mib} MiB more: writing them, as a trial, failed"
        raise Problem(FULL[error.errno], text) from None
    return free, written


def _write(place: Path, mib: int) -> int:
    """Write and remove a file of that size, which cannot be compressed; stop where that is slow."""
    Step(f"trying whether {mib} MiB can be written to {place}")
    until = time.monotonic() + _PROBE_TIME
    block = os.urandom(MIB)
    written = 0
    with tempfile.NamedTemporaryFile(prefix=".jupyter-gpu-kernel-", dir=str(place), buffering=0) as file:
        while written < mib and time.monotonic() < until:
            file.write(block)
            written += 1
            if written % 8 == 0 or written == mib:
                os.fsync(file.fileno())  # NFS reports a quota only here
    return written
