"""Makes, describes and removes virtual environments of ours on the work node: a program of its own.

It runs before there is an agent. The hub sends this file as text to a Python of the node, 3.8 or newer, which has the
standard library only (`hub/virtual_env/node_script.py`). Arguments: a verb, and a request as JSON. The answer is on
stdout, in lines of MARK, a word and JSON: "step" while the program works, "send" when it waits for the wheels, and at
the end "answer" or "problem".

An environment is ours, and complete, if its RECORD says so, a file that names the environment's own path, so that a
copy of it proves nothing. The environment is made at its final path, as virtual environments cannot be moved. Meanwhile
the file UNFINISHED is there, and the program that makes the environment holds the lock on it until the program ends.
What is unfinished and not locked is begun anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
import time
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NoReturn, Optional

MARK = "=== jupyter-gpu-kernel environment"
RECORD = "jupyter-gpu-kernel-environment.json"
UNFINISHED = ".jupyter-gpu-kernel-unfinished"
_WORK = ".jupyter-gpu-kernel-wheels"
_FOLDER = "jupyter-gpu-kernel-envs"  # of all environments, if the user names no other
_MIB = 1 << 20
_SILENCE = 100.0  # seconds without data after which the connection counts as lost
_PATIENCE = 10.0  # seconds for which processes that are ending are waited for
_FULL = (errno.ENOSPC, errno.EDQUOT)
_SIGNALS = (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
_SPARE = re.compile(r"/agent-\w+\0spare\0")
_PIP = (
    "--isolated --no-input --disable-pip-version-check --no-cache-dir --quiet install --no-compile --no-index"
)
"""Files that are never imported need no compiled ones; those of a kernel are compiled when a kernel imports them."""


class Problem(Exception):
    """Why it does not work: a code, for which the hub has a remedy, and facts."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


def say(kind: str, value: Any = None) -> None:
    """Write one line of the answer. Raises OSError if nobody listens any more."""
    print(MARK, kind, json.dumps(value), flush=True)


# --- plan


def plan(request: Dict[str, Any]) -> Dict[str, Any]:
    """Describe where an environment would be made, and this Python, from which it would be made. Changes nothing."""
    path = Path(os.path.abspath(os.path.expanduser(request["path"])))
    state = _state(path)
    if (path / UNFINISHED).exists():
        _lock(path)
    if sys.implementation.name != "cpython" or sys.maxsize < 2**32 or not _libc():
        text = f"{sys.executable} is no 64-bit CPython with a known C library, so there are no wheels for it"
        raise Problem("make", text)
    _refuse_open(path)
    threads = "t" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""
    return {
        "path": str(path),
        "state": state,
        "packages": (_read_record(path) or {}).get("packages", []),
        "python": sys.executable,
        "version": _version(),
        "abi": f"cp{sys.version_info[0]}{sys.version_info[1]}{threads}",
        "machine": os.uname().machine,
        "libc": _libc(),
    }


def _state(path: Path) -> str:
    """Return "new"; "ours"; or "left", for an environment of ours that was not finished, or whose Python does not start
    any more. Raises Problem if no environment may be made there."""
    if not os.path.lexists(str(path)):
        return "new"
    foreign = Problem("foreign", f"{path} exists, and is not an environment that add --create-env made")
    if path.is_symlink() or not path.is_dir() or path.stat().st_uid != os.getuid():
        raise foreign
    if (path / UNFINISHED).exists():
        return "left"
    record = _read_record(path)
    if record is None:
        if any(path.iterdir()):
            raise foreign
        return "new"
    if _starts(path):
        return "ours"
    if record.get("node") != os.uname().nodename:
        where = f"on the node {record.get('node')} from {record.get('python')}"
        raise Problem("elsewhere", f"{path} was made {where}, and does not start on this node")
    return "left"


def _version() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _libc() -> str:
    with contextlib.suppress(ValueError, OSError):
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    return "musl" if glob.glob("/lib/ld-musl-*") else ""


def _refuse_open(path: Path) -> None:
    """Raise Problem if every user of the node could replace what is made at this path."""
    for folder in filter(Path.is_dir, (path, *path.parents)):
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Problem("open", f"every user of the node can write to {folder}, and replace what is in it")


# --- create


def create(request: Dict[str, Any]) -> Dict[str, Any]:
    """Receive the wheels, make the environment and install them. What fails is removed."""
    path = Path(request["path"])
    python = str(path / "bin" / "python")
    with _claimed(path):
        work = path / _WORK
        work.mkdir()
        _receive(request, work)
        pip = next(str(one) for one in work.glob("pip-*.whl"))
        venv = [sys.executable, "-I", "-m", "venv", "--without-pip", str(path)]
        _run("making the virtual environment", venv, work, "make")
        install = [python, "-I", f"{pip}/pip", *_PIP.split(), "--find-links", str(work), *request["wanted"]]
        _run(f"installing {len(request['packages'])} packages", install, work, "make")
        _run("starting its Python", [python, "-I", "-c", "import ipykernel.kernelapp, zmq"], work, "start")
        shutil.rmtree(str(work))
        record = {"id": os.urandom(16).hex(), "path": str(path), "made": time.time(), "version": _version()}
        record.update(python=sys.executable, node=os.uname().nodename, packages=request["packages"])
        (path / RECORD).write_text(json.dumps(record), "utf-8")
    return {"mib": _used_mib(path)}


@contextlib.contextmanager
def _claimed(path: Path) -> Iterator[None]:
    """Hold the lock on the environment's folder, emptied. After an exception, remove the folder."""
    if _state(path) == "ours":
        raise Problem("busy", f"{path} is complete already: another process has made it")
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    _lock(path)
    try:
        for entry in path.iterdir():
            if entry.name != UNFINISHED:
                shutil.rmtree(str(entry)) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        yield
        (path / UNFINISHED).unlink()
    except BaseException:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        with contextlib.suppress(OSError):
            _discard(path)
        for folder in made[1:]:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                folder.rmdir()
        raise


def _lock(path: Path) -> None:
    """Lock the file UNFINISHED until the program ends. Raises Problem if another process has the lock."""
    file = os.open(str(path / UNFINISHED), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Problem("busy", f"{path} is being made by another process") from None
    except OSError:  # a file system without locks
        pass


def _receive(request: Dict[str, Any], folder: Path) -> None:
    """Store the wheels, which come in one zip file."""
    say("send")
    archive, missing = folder / "wheels.zip", int(request["size"])
    with open(int(request["stdin"]), "rb", buffering=0, closefd=False) as data, archive.open("xb") as file:
        while missing:
            readable, _, _ = select.select([data], [], [], _SILENCE)
            block = data.read(min(missing, _MIB)) if readable else b""
            if not block:
                raise Problem("make", "the connection ended before all wheels were there")
            file.write(block)
            missing -= len(block)
    with zipfile.ZipFile(str(archive)) as wheels:
        wheels.extractall(str(folder))
    archive.unlink()


def _run(step: str, command: List[str], work: Path, code: str) -> None:
    """Run a program. Raises Problem, with the last words of the program, if it fails."""
    say("step", step)
    environ = {**os.environ, "PIP_CONFIG_FILE": os.devnull, "TMPDIR": str(work), "LC_ALL": "C"}
    null, pipe = subprocess.DEVNULL, subprocess.PIPE
    done = subprocess.run(
        command, stdin=null, stdout=pipe, stderr=subprocess.STDOUT, env=environ, check=False
    )
    text = done.stdout[-3000:].decode("utf-8", "replace").strip()
    if done.returncode:
        code = "write" if any(os.strerror(number) in text for number in _FULL) else code
        raise Problem(code, f"exit status {done.returncode} of {' '.join(command[:4])}:\n{text}")


# --- the record


def _read_record(path: Path) -> Optional[Dict[str, Any]]:
    """Return the environment's record; None if it is not ours, or not complete."""
    try:
        if os.lstat(str(path)).st_uid != os.getuid() or path.is_symlink():
            return None
        record = json.loads((path / RECORD).read_text("utf-8"))
        return record if record["path"] == str(path) and record["id"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


# --- status and remove


def status(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the environment's id ("" if it is not ours), the packages that were added to it, and who uses it."""
    path = Path(request["path"])
    record = _read_record(path)
    if record is None:
        return {"id": "", "there": path.exists(), "added": [], "mib": 0, "users": []}
    made = {_normal(str(one[0])) for one in record.get("packages", [])}
    folders = path.glob("lib/python3*/site-packages/*.dist-info")
    present = {folder.name[: -len(".dist-info")].partition("-") for folder in folders}
    added = sorted((name, version) for name, _, version in present if _normal(name) not in made)
    users = [{"kernel": user["kernel"]} for user in _users(path) if user["kernel"]]
    return {"id": record["id"], "there": True, "added": added, "mib": _used_mib(path), "users": users}


def remove(request: Dict[str, Any]) -> Dict[str, Any]:
    """Remove the environment with that id, unless processes on this node use it."""
    path = Path(request["path"])
    record = _read_record(path)
    if record is None or record["id"] != request["id"]:
        raise Problem("not_ours", f"{path} is not the environment that add --create-env made")
    until = time.monotonic() + float(request.get("patience", _PATIENCE))
    users = _users(path)
    while users:
        kernels = [user for user in users if user["kernel"]]
        if kernels or time.monotonic() >= until:
            raise Problem("in_use", ", ".join(user["shown"] for user in (kernels or users)[:5]))
        for user in users:
            with contextlib.suppress(ProcessLookupError):
                if user["spare"]:  # from which kernels are forked; there is none any more
                    os.kill(user["pid"], signal.SIGTERM)
        time.sleep(0.2)
        users = _users(path)
    mib = _used_mib(path)
    say("step", f"removing {path}")
    _discard(path)
    if path.parent.name == _FOLDER:
        with contextlib.suppress(OSError):  # there are others in it
            path.parent.rmdir()
    return {"mib": mib}


def _discard(path: Path) -> None:
    """Remove the folder; under another name, so that nobody finds a part of it."""
    doomed = path.with_name(f".{path.name}.removed-{os.urandom(4).hex()}")
    path.rename(doomed)
    shutil.rmtree(str(doomed))


def _starts(path: Path) -> bool:
    command = [str(path / "bin" / "python"), "-I", "-c", "import ipykernel, zmq"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        return done.returncode == 0
    return False


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _used_mib(path: Path) -> int:
    total = 0
    for folder, _, files in os.walk(str(path)):
        for name in [*files, "."]:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
    return -(-total // _MIB)


def _users(path: Path) -> List[Dict[str, Any]]:
    """Return the user's processes on this node that were started with the environment's programs, kernels first."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{entry}").st_uid == os.getuid():
                command = Path(f"/proc/{entry}/cmdline").read_bytes()[:8192].decode("utf-8", "replace")
                if command.startswith(f"{path}/"):
                    found.append(_user(int(entry), command))
    return sorted(found, key=lambda one: (not one["kernel"], one["pid"]))


def _user(pid: int, command: str) -> Dict[str, Any]:
    keeper = re.search(r"\0serve\0([^\0]+)", command)
    kernel = keeper[1] if keeper else ""
    shown = f"kernel {kernel}" if kernel else "process {} ({})".format(pid, command.replace("\0", " ")[:80])
    return {"pid": pid, "kernel": kernel, "spare": _SPARE.search(command), "shown": shown}


# --- the program

_VERBS = {"plan": plan, "create": create, "status": status, "remove": remove}


def main(arguments: List[str]) -> int:
    """Run a verb, and write its answer or the problem."""
    os.umask(0o077)
    for number in _SIGNALS:
        signal.signal(number, _stop)
    try:
        kind, value = "answer", _VERBS[arguments[0]](json.loads(arguments[1]))
    except Problem as problem:
        kind, value = "problem", {"code": problem.code, "text": str(problem)}
    except OSError as error:
        text = f"{error.filename or 'writing'}: {error.strerror or error}"
        kind, value = "problem", {"code": "write", "text": text}
    with contextlib.suppress(OSError):  # the hub has left
        say(kind, value)
    return 0


def _stop(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
