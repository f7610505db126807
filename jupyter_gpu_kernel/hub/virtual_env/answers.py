"""What the script on a node answers, checked; and the errors for the problems that it reports."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ...errors import AgentError, GpuKernelError
from ..sanitize import Malformed, Shape, fields, flag, line, number, one_of, rows, text
from .node_script import NodeProblem

_MAX_PACKAGES = 2000
_MAX_USERS = 200


def _matching(pattern: str, what: str) -> Shape:
    def checked(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise Malformed(f"{what} was expected")
        return value

    return checked


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or line(value, 4096) != value:
        raise Malformed("an absolute path was expected")
    return value


def _package(value: Any) -> tuple[str, str]:
    if not isinstance(value, list) or len(value) != 2:
        raise Malformed("a name and a version were expected")
    return line(value[0], 100), line(value[1], 60)


def _mib(value: Any) -> float:
    return number(0, 1e9)(value) or 0


_id = _matching(r"([0-9a-f]{32})?", "an id")
_packages = rows(_package, _MAX_PACKAGES)
_version = _matching(r"\d+\.\d+\.\d+", "a version")
SHAPES: dict[str, Shape] = {
    "plan": fields(
        *("path", "state", "id", "packages", "group", "python", "version", "implementation", "abi", "bits"),
        *("machine", "libc", "venv", "uv", "free_mib", "written_mib"),
        path=_path,
        state=one_of("new", "ours", "broken", "unfinished"),
        id=_id,
        packages=_packages,
        group=text(100),
        python=_path,
        version=_version,
        implementation=text(40),
        abi=_matching(r"cp\d{2,4}t?", "an ABI"),
        bits=number(0, 128),
        machine=_matching(r"[a-z0-9_]{1,20}", "a machine"),
        libc=_matching(r"(glibc \d+\.\d+[.\d]*|musl)?", "a C library"),
        venv=flag,
        uv=lambda value: _path(value) if value else "",
        free_mib=_mib,
        written_mib=_mib,
    ),
    "create": fields(
        *("id", "path", "python", "version", "packages", "tool", "mib"),
        id=_id,
        path=_path,
        python=_path,
        version=_version,
        packages=_packages,
        tool=one_of("uv", "venv"),
        mib=_mib,
        made=number(0),
    ),
    "status": fields(
        *("id", "there", "packages", "added", "mib", "users"),
        id=_id,
        there=flag,
        packages=_packages,
        added=_packages,
        mib=_mib,
        users=rows(
            fields("pid", "kernel", "command", pid=number(1, 2**31), kernel=text(64), command=text(200)),
            _MAX_USERS,
        ),
    ),
    "remove": fields("path", "mib", path=_path, mib=_mib),
}


def checked(verb: str, hop: str, run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of `run()`, checked. Raises AgentError for a problem, or if the answer is malformed."""
    try:
        answer: dict[str, Any] = SHAPES[verb](run())
        return answer
    except NodeProblem as problem:
        raise _error(problem) from None
    except Malformed as error:
        raise AgentError(f"the node's answer is malformed: {error}", hop=hop, remedy="Try again.") from None


_ELSEWHERE = (
    "name another folder with --env-dir DIR, on storage that all your nodes share and that is not cleaned"
)
_LEFT = "Nothing was left on the node."
_PROBLEMS = {
    "space": ("there is not enough space for the environment", f"Free some space, or {_ELSEWHERE}. {_LEFT}"),
    "quota": ("your quota is used up", f"Remove files of yours there, or {_ELSEWHERE}. {_LEFT}"),
    "write": ("the environment's folder cannot be written", f"Allow writing there, or {_ELSEWHERE}."),
    "open": ("that folder is not safe for programs", "Choose one that only you can write to with --env-dir."),
    "foreign": (
        "the environment's folder is in use for something else",
        "Choose another folder with --env-dir DIR, or another --name. Nothing was changed.",
    ),
    "elsewhere": (
        "the environment there does not start on this node",
        "Choose another folder for this node with --env-dir DIR. Or remove the environment (“remove --env” with its "
        "kernelspec), and make it from a Python that all nodes with this folder have, such as one in your home: "
        "--python PATH.",
    ),
    "busy": (
        "the environment is being made already",
        "Wait until that has ended (after a lost connection: two minutes), then run this command again.",
    ),
    "made": ("the environment was made meanwhile", "Run this command again: it uses that environment."),
    "transfer": ("the packages did not arrive", f"Run this command again. {_LEFT}"),
    "venv": (
        "the environment could not be made",
        f"Choose another Python of the node with --python PATH. {_LEFT}",
    ),
    "install": (
        "the packages could not be installed",
        f"Choose another Python of the node with --python PATH. {_LEFT}",
    ),
    "broken": (
        "the environment's Python does not start a kernel's packages",
        f"The folder may be mounted without the right to run programs: {_ELSEWHERE}. {_LEFT}",
    ),
    "not_ours": (
        "this is not an environment that “add --create-env” made",
        "Nothing was removed. Without --env, “remove” removes the kernelspec alone.",
    ),
    "in_use": (
        "the environment is in use",
        "End these first (jupyter gpu-kernel stop ID), then run this command again. Nothing was removed.",
    ),
}


def _error(problem: NodeProblem) -> GpuKernelError:
    cause, remedy = _PROBLEMS.get(problem.code, ("the environment could not be made", "Try again."))
    return AgentError(f"{cause}; {problem.cause}", hop=problem.hop, remedy=remedy)
