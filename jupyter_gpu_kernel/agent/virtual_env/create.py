"""Makes an environment: receives the wheels, and installs them with uv, or with Python's venv and pip."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from io import FileIO
from pathlib import Path
from typing import Any, Dict, Iterator, List

from .output import Problem, Step, say
from .plan import check_space, refuse
from .record import (
    MIB,
    UNFINISHED,
    end_earlier_try,
    lock,
    read_record,
    starts,
    state_of,
    used_mib,
    users,
    write_maker,
    write_record,
)

_WORK = ".jupyter-gpu-kernel-wheels"
_CHILD_TIME = 1200.0  # seconds for one program
_SILENCE = 100.0  # seconds without data after which the connection counts as lost
_CHECK = """
import importlib.metadata, json, sys
import ipykernel.kernelapp, zmq
found = sorted({(one.metadata["Name"], one.version) for one in importlib.metadata.distributions()})
print(json.dumps({"version": ".".join(map(str, sys.version_info[:3])), "packages": found}))
"""


def create(request: Dict[str, Any]) -> Dict[str, Any]:
    """Receive the wheels, make the environment and install them. What fails is removed."""
    path = Path(request["path"])
    with _claimed(path, str(request["id"])):
        work = path / _WORK
        (work / "tmp").mkdir(parents=True)
        check_space(path, int(request["mib"]), int(request.get("tried", 0)))
        with open(int(request["stdin"]), "rb", buffering=0, closefd=False) as data:
            _receive(request["wheels"], work, data)
        tool = _build(request, path, work)
        command = [str(path / "bin" / "python"), "-I", "-c", _CHECK]
        facts = json.loads(_run("starting its Python", command, work, "broken"))
        shutil.rmtree(str(work))
        record = {"id": request["id"], "path": str(path), "python": sys.executable, "made": time.time()}
        record.update(
            node=os.uname().nodename, version=facts["version"], packages=facts["packages"], tool=tool
        )
        write_record(path, record)
    return {**record, "python": str(path / "bin" / "python"), "mib": used_mib(path)}


@contextlib.contextmanager
def _claimed(path: Path, request_id: str) -> Iterator[None]:
    """Hold the lock on the environment's folder, emptied. After an exception, remove the folder."""
    end_earlier_try(path, request_id)
    refuse(path, state_of(path))
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(made):
        folder.mkdir(0o700, exist_ok=True)
    held = lock(path, create=True)
    write_maker(held, request_id)
    record = read_record(path)
    if record is not None and (users(path) or starts(path / "bin" / "python")):
        (path / UNFINISHED).unlink()
        held.close()
        raise Problem("made", f"{path} is complete already, or in use")
    try:
        for entry in path.iterdir():
            if entry.name != UNFINISHED:
                shutil.rmtree(str(entry)) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        yield
        (path / UNFINISHED).unlink()
    except BaseException:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        shutil.rmtree(str(path), ignore_errors=True)
        for folder in made[1:]:
            with contextlib.suppress(OSError):  # somebody else uses it by now
                folder.rmdir()
        raise
    finally:
        held.close()


def _receive(wheels: List[Dict[str, Any]], folder: Path, data: FileIO) -> None:
    """Store the wheels from `data`, one after the other, and compare their SHA-256."""
    say("send")
    for wheel in wheels:
        if not re.fullmatch(r"[A-Za-z0-9_.+!-]+\.whl", wheel["name"]):
            raise Problem("transfer", f"{wheel['name']!r} is not the name of a wheel")
        digest, left = hashlib.sha256(), int(wheel["size"])
        with open(str(folder / wheel["name"]), "xb") as file:
            while left:
                readable, _, _ = select.select([data], [], [], _SILENCE)
                block = data.read(min(left, MIB)) if readable else b""
                if not block:
                    raise Problem("transfer", "the connection ended before all wheels were there")
                file.write(block)
                digest.update(block)
                left -= len(block)
        if digest.hexdigest() != wheel["sha256"]:
            raise Problem("transfer", f"{wheel['name']} did not arrive as it was sent")
        say("alive")


def _build(request: Dict[str, Any], path: Path, work: Path) -> str:
    """Make the environment, and install the packages into it. Return the tool: "uv", or "venv"."""
    wanted, find = list(request["packages"]), ["--no-index", "--find-links", str(work)]
    python = str(path / "bin" / "python")
    uv = request.get("uv")
    if uv:
        quiet = ["--no-cache", "--offline", "--no-config"]
        try:
            text = "making the virtual environment with uv"
            command = [uv, "venv", "--allow-existing", "--python", sys.executable, *quiet, str(path)]
            _run(text, command, work, "venv")
            text = f"installing {len(request['wheels'])} packages with uv"
            command = [uv, "pip", "install", "--python", python, *find, *quiet, *wanted]
            _run(text, command, work, "install")
            return "uv"
        except Problem as problem:
            if not request["venv"]:
                raise
            Step(f"uv failed, so Python's venv is used: {str(problem)[-200:]}")
    command = [sys.executable, "-I", "-m", "venv", "--without-pip", str(path)]
    _run("making the virtual environment", command, work, "venv")
    pip = next(str(one) for one in work.glob("pip-*.whl"))
    options = ["--isolated", "--no-input", "--disable-pip-version-check", "--no-cache-dir", "--quiet"]
    # Files that are never imported need no compiled ones; those of a kernel are compiled when _CHECK imports them.
    command = [python, "-I", f"{pip}/pip", *options, "install", "--no-compile", *find, *wanted]
    _run(f"installing {len(request['wheels'])} packages", command, work, "install")
    return "venv"


def _run(text: str, command: List[str], work: Path, code: str) -> str:
    """Run a program and return its stdout. `text` is the step; Problem has the last words of a program that failed."""
    step = Step(text)
    environ = {
        key: value for key, value in os.environ.items() if not key.startswith(("PIP_", "UV_", "PYTHON"))
    }
    environ.update(PIP_CONFIG_FILE=os.devnull, TMPDIR=str(work / "tmp"), LC_ALL="C")
    until = time.monotonic() + _CHILD_TIME
    with tempfile.TemporaryFile(dir=str(work)) as output, tempfile.TemporaryFile(dir=str(work)) as errors:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            env=environ,
            start_new_session=True,
        )
        try:
            while child.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(2.0)
                if child.returncode is None:
                    step.goes_on()
                if time.monotonic() > until:
                    raise Problem(code, f"{command[0]} did not end within {_CHILD_TIME:.0f} s")
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()
        output.seek(0)
        errors.seek(0)
        said = [stream.read()[-4000 if child.returncode else 0 :] for stream in (output, errors)]
    if child.returncode:
        text = "\n".join(one.decode("utf-8", "replace").strip() for one in said if one.strip())[-3000:]
        full = {"space": os.strerror(errno.ENOSPC), "quota": os.strerror(errno.EDQUOT)}
        code = next((word for word, words in full.items() if words in text), code)
        raise Problem(code, f"exit status {child.returncode} of {' '.join(command[:4])}:\n{text}")
    return said[0].decode("utf-8", "replace")
