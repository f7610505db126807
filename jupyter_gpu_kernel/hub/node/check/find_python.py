"""Chooses the Python of a work node that runs kernels, and explains what to do if there is none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ....errors import CREATE_ENV, AgentError
from ...transport.connection import Connection
from .python_probe import SOURCES, NodeFacts, Probe, Python

OLDEST_PYTHON = (3, 8)
OLDEST_IPYKERNEL = (6, 20)
_AT_ONCE = 4  # Pythons that are started side by side: more would slow down a slow file system
_START_TIMEOUT = 10  # seconds for one Python to start, as a first start over NFS is slow
_START_TIMEOUT_WANTED = 25  # for one that the user named
_BUDGET = 20.0  # seconds after which no further ones are started


# --- the choice


@dataclass(frozen=True)
class FoundPythons:
    """The chosen Python, and what else was found. `skipped`: sentences about places that were not searched; `usable`:
    the paths of others that can be chosen instead, as far as is known."""

    python: Python
    others: tuple[Python, ...]
    node: NodeFacts
    skipped: tuple[str, ...] = ()
    usable: frozenset[str] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """Return {"python": {path, version, ipykernel}, "others": [{the same, why_not, usable}], "node", "unseen"}."""
        return {
            "python": _facts(self.python),
            "others": [
                {**_facts(p), "why_not": p.why_not, "usable": p.path in self.usable} for p in self.others
            ],
            "node": asdict(self.node),
            "unseen": list(self.skipped),
        }


def _facts(python: Python) -> dict[str, str]:
    return {"path": python.path, "version": python.version, "ipykernel": python.ipykernel}


def find_pythons(
    connection: Connection,
    hop: str,
    wanted: str | None,
    clock: Callable[[], float],
    setup: Sequence[str] = (),
) -> FoundPythons:
    """Choose `wanted` (a path, or a name on the node's PATH), or else the best Python that is found.

    `setup`: set-up lines, after which PATH is searched, too. If no Python can run a kernel, AgentError lists them, with
    the commands that help.
    """
    probe = Probe(connection, hop, setup)
    return _check(probe, hop, wanted) if wanted else _find(probe, hop, clock)


def _find(probe: Probe, hop: str, clock: Callable[[], float]) -> FoundPythons:
    surveyed = [_judged_by_files(python) for python in probe.survey("all", "python3", "python")]
    good, bad, rest = start_best(probe, surveyed, _judged, _preference, clock)
    skipped = list(probe.skipped)
    if not good and rest:
        skipped.append(f"{len(rest)} Pythons: starting the others took {_BUDGET:.0f} s")
    if not good:
        raise _none_fits(_distinct(bad), probe.node, skipped, hop)
    second = [replace(python, why_not="would do, too: choose it with --python") for python in good[1:]]
    later = [replace(python, why_not=_not_started(python)) for python in rest]
    others = _distinct([good[0], *second, *later, *bad])[1:]
    usable = frozenset(python.path for python in [*good[1:], *later])
    return FoundPythons(good[0], tuple(others), probe.node, tuple(skipped), usable)


def start_best(
    probe: Probe,
    surveyed: Sequence[Python],
    judged: Callable[[Python], Python],
    preference: Callable[[Python], Any],
    clock: Callable[[], float],
) -> tuple[list[Python], list[Python], list[Python]]:
    """Start the Pythons without a `why_not`, a few at a time, until one is good or the time is over. `judged` adds what
    speaks against one that was started. Return the good ones, the others that cannot be used, and those that were not
    started; the first and the last list have the preferred ones first."""
    rest = sorted((python for python in surveyed if not python.why_not), key=preference)
    deadline = clock() + _BUDGET
    tried: list[Python] = []
    while rest and all(python.why_not for python in tried) and clock() < deadline:
        tried += map(judged, probe.start(rest[:_AT_ONCE], _START_TIMEOUT))
        del rest[:_AT_ONCE]
    good = sorted((python for python in tried if not python.why_not), key=preference)
    return good, [python for python in (*tried, *surveyed) if python.why_not], rest


def _check(probe: Probe, hop: str, wanted: str) -> FoundPythons:
    path = locate(probe, hop, wanted)
    python = _judged(*probe.start([Python(path, "wanted", "")], _START_TIMEOUT_WANTED))
    if not python.why_not:
        return FoundPythons(replace(python, path=path), (), probe.node, tuple(probe.skipped))
    remedy = "Choose another one with --python; without --python, one is searched for."
    if at_least(python.version, OLDEST_PYTHON):
        remedy = _install_command(python, probe.node, hop)
    raise AgentError(f"{path} {python.why_not}", hop=hop, remedy=remedy)


def locate(probe: Probe, hop: str, wanted: str) -> str:
    """Return the absolute path of what the user wrote."""
    if "/" in wanted:
        probe.survey("path")
        return wanted if wanted[0] == "/" else f"{probe.node.home}/{wanted.removeprefix('~/')}"
    if not re.fullmatch(r"[\w.+-]+", wanted):
        raise AgentError(f"{wanted!r} is not the name of a program", remedy="Give --python a path.")
    found = probe.survey("path", wanted)
    if not found:
        raise AgentError(
            f"{wanted} is not on the PATH of a plain or a login shell",
            hop=hop,
            remedy="Give --python its path; without --python, one is searched for.",
        )
    return found[0].path


# --- what a kernel needs


def _judged_by_files(python: Python) -> Python:
    """Add `why_not` where the files alone are proof; starting a Python can take seconds."""
    certain = python.kind in ("venv", "conda") and python.version
    return replace(python, why_not=_lacks(python)) if certain else python


def _judged(python: Python) -> Python:
    """Add `why_not` to a Python that was started."""
    return python if python.why_not else replace(python, why_not=_lacks(python))


def too_old(python: Python) -> str:
    """Return that this version is too old, as the rest of a sentence, or ""."""
    if at_least(python.version, OLDEST_PYTHON):
        return ""
    return f"is Python {python.version}; {_dotted(OLDEST_PYTHON)} or newer is needed"


def _lacks(python: Python) -> str:
    """Return what prevents a Python from running a kernel, as the rest of a sentence, or ""."""
    if old := too_old(python):
        return old
    if not python.ipykernel:
        return f"(Python {python.version}) has no ipykernel"
    if not at_least(python.ipykernel, OLDEST_IPYKERNEL):
        return f"has ipykernel {python.ipykernel}; {_dotted(OLDEST_IPYKERNEL)} or newer is needed"
    return "" if python.pyzmq else "has ipykernel, but no pyzmq"


def _not_started(python: Python) -> str:
    has = f", ipykernel {python.ipykernel} by its files" if python.ipykernel else ""
    return f"not started{has}: another one was chosen before"


def _preference(python: Python) -> tuple[int, tuple[int, ...]]:
    """Order by where a Python was found, then by the newest ipykernel; sorting keeps the order of equals."""
    return SOURCES.index(python.source), tuple(-part for part in _numbers(python.ipykernel)[:3])


def _distinct(pythons: Sequence[Python]) -> list[Python]:
    """Return the first Python of each prefix."""
    return list({python.prefix: python for python in reversed(pythons)}.values())[::-1]


def at_least(version: str, least: tuple[int, ...]) -> bool:
    return _numbers(version) >= least


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


# --- what to install


def _none_fits(pythons: Sequence[Python], node: NodeFacts, skipped: Sequence[str], hop: str) -> AgentError:
    if not pythons:
        cause = "no Python was found: none on PATH, no conda, no virtual environment in the home"
    else:
        listed = [f"  {python.path} {python.why_not}" for python in pythons[:6]]
        cause = "\n".join(["no Python on the node can run a kernel:", *listed])
    if skipped:
        cause += "\nNot searched: " + "; ".join(skipped)
    usable = [python for python in pythons if at_least(python.version, OLDEST_PYTHON)]

    # The user's own environments come first, then their conda base, then the system's.
    def effort(python: Python) -> tuple[bool, bool]:
        return not _is_own(python, node), python.kind == "conda" and "/envs/" not in python.prefix

    remedy = _install_command(min(usable, key=effort), node, hop) if usable else install_python(node, hop)
    return AgentError(cause, hop=hop, remedy=remedy)


def _is_own(python: Python, node: NodeFacts) -> bool:
    return bool(node.home) and python.prefix.startswith(node.home + "/")


def _install_command(python: Python, node: NodeFacts, hop: str) -> str:
    """Return the commands that provide what a kernel needs, with this Python."""
    program = shlex.quote(python.path)
    install = "-m pip install " + ("--upgrade " if python.ipykernel else "") + "ipykernel"
    by_hand = f"{program} {install}"
    if not _is_own(python, node) and python.kind == "other":
        folder = f"{shlex.quote(node.home)}/gpu-kernel"
        by_hand = f"{program} -m venv {folder} && {folder}/bin/python {install}"
    return (
        f"{CREATE_ENV}, also if the node has no internet access. Or run “{by_hand}” on {hop} (or on the login node, if "
        "the home is shared)."
    )


def install_python(node: NodeFacts, hop: str) -> str:
    """Return what to do where there is no Python that is new enough."""
    machine = node.machine if re.fullmatch(r"[a-z0-9_]{1,20}", node.machine) else "$(uname -m)"
    file = f"Miniforge3-Linux-{machine}.sh"
    return (
        f"Python {_dotted(OLDEST_PYTHON)} or newer is needed. Do one of these, then run “jupyter gpu-kernel add” with "
        "--create-env:\n"
        f"1. Look for a module on {hop}: “module avail python”. If there is one, add it: --setup 'module load python'\n"
        "2. Install Python into your home, without root. Run this line on a machine with internet access that has the "
        f"same home as {hop}, such as the login node:\n"
        f"   curl -LO https://github.com/conda-forge/miniforge/releases/latest/download/{file}"
        f" && bash {file} -b -p ~/miniforge3\n"
        f"   Without such a machine, download that file here, copy it to {hop} with scp, and run there: "
        f"bash {file} -b -p ~/miniforge3\n"
        "3. If there is a Python elsewhere on the node, name it: --python PATH"
    )
