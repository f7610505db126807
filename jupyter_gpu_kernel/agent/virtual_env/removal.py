"""What an environment is used for and what was added to it; and its removal."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from pathlib import Path
from typing import Any, Dict

from .output import Problem, Step
from .record import read_record, used_mib, users

_FOLDER = "jupyter-gpu-kernel-envs"  # of all environments, if the user names no other
_PATIENCE = 5.0  # seconds in which connections that use the environment may end


def status(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the environment's id, "" if it is not ours; its packages now and when it was made; and who uses it."""
    path = Path(request["path"])
    record = read_record(path)
    if record is None:
        return {"id": "", "there": path.exists(), "packages": [], "added": [], "mib": 0, "users": []}
    made = {_normal(str(one[0])) for one in record.get("packages", [])}
    names = (
        name.name[: -len(".dist-info")].split("-")
        for name in path.glob("lib/python3*/site-packages/*.dist-info")
    )
    now = {(one[0], one[1] if len(one) > 1 else "") for one in names}
    added = sorted(one for one in now if _normal(one[0]) not in made)
    return {
        "id": record["id"],
        "there": True,
        "packages": record.get("packages", []),
        "added": added,
        "mib": used_mib(path),
        "users": users(path),
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def remove(request: Dict[str, Any]) -> Dict[str, Any]:
    """Remove the environment with that id, unless processes on this node use it."""
    path = Path(request["path"])
    record = read_record(path)
    if record is None or record["id"] != request["id"]:
        raise Problem("not_ours", f"{path} is not the environment that add --create-env made")
    until = time.monotonic() + float(request.get("patience", _PATIENCE))
    busy = users(path)
    while busy and time.monotonic() < until:
        time.sleep(0.2)
        busy = users(path)
    if busy:
        raise Problem("in_use", ", ".join(_shown(one) for one in busy[:5]))
    mib = used_mib(path)
    doomed = path.with_name(f".{path.name}.removed-{record['id'][:8]}")
    os.rename(str(path), str(doomed))
    Step(f"removing {path}")
    shutil.rmtree(str(doomed))
    if path.parent.name == _FOLDER:
        with contextlib.suppress(OSError):  # there are others in it
            path.parent.rmdir()
    return {"path": str(path), "mib": mib}


def _shown(user: Dict[str, Any]) -> str:
    if user["kernel"]:
        return f"kernel {user['kernel']}"
    return f"process {user['pid']} ({str(user['command'])[:80]})"
