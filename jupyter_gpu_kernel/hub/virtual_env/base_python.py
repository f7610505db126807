"""Chooses the Python of a node from which a virtual environment is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import AgentError
from ..node.check.find_python import at_least, install_python, locate, start_best, too_old
from ..node.check.python_probe import SOURCES, NodeFacts, Probe, Python
from ..transport.connection import Connection

_CURRENT = (3, 10)
"""Current releases of ipykernel need this Python."""


def find_base(
    connection: Connection, hop: str, wanted: str, setup: Sequence[str], clock: Callable[[], float]
) -> tuple[Python, NodeFacts]:
    """Return `wanted` (a path, or a name on PATH), or the best Python that is found, and what is known of the node.
    Raises AgentError without one."""
    probe = Probe(connection, hop, setup)
    if wanted:
        found = [Python(locate(probe, hop, wanted), "wanted", "")]
    else:
        found = [one for one in probe.survey("all", "python3", "python") if one.source != "ours"]

    def preference(python: Python) -> tuple[bool, bool, int, int]:
        return _preference(python, probe.node.home)

    good, bad, _ = start_best(probe, [_judged(one) for one in found], _judged, preference, clock)
    if good:
        return good[0], probe.node
    lines = ["there is no Python from which an environment could be made"]
    lines += [f"  {one.path} {one.why_not}" for one in bad[:6]]
    lines += [f"  not searched: {place}" for place in probe.skipped[:3]]
    raise AgentError("\n".join(lines), hop=hop, remedy=install_python(probe.node, hop))


def wheel_facts(python: Python, node: NodeFacts, musl: bool, hop: str) -> dict[str, str]:
    """Return {"version", "abi", "machine", "libc"}, which decide what wheels fit. They become arguments of pip here, so
    AgentError is raised for other forms."""
    version = re.fullmatch(r"(\d+)\.(\d+)\.\d+", python.version)
    libc = "musl" if musl else f"glibc {node.glibc}"
    is_known = re.fullmatch(r"musl|glibc \d+\.\d+[.\d]*", libc) and re.fullmatch(
        "[a-z0-9_]{1,20}", node.machine
    )
    if not (version and is_known):
        cause = f"there are no wheels for {python.path}: its version, processor or C library is not known"
        raise AgentError(cause, hop=hop, remedy="Choose another Python of the node with --python PATH.")
    abi = f"cp{version[1]}{version[2]}"
    return {"version": python.version, "abi": abi, "machine": node.machine, "libc": libc}


def _judged(python: Python) -> Python:
    known = python.version and not python.why_not
    return replace(python, why_not=too_old(python)) if known else python


def _preference(python: Python, home: str) -> tuple[bool, bool, int, int]:
    """What the set-up lines bring comes first, then what has current packages, then what all nodes have that share the
    home, then what stays."""
    old = bool(python.version) and not at_least(python.version, _CURRENT)
    environment = python.kind.startswith("venv") or (python.kind == "conda" and "/envs/" in python.prefix)
    shared = bool(home) and python.prefix.startswith(f"{home}/")
    return python.source != "setup", old, 2 if environment else int(not shared), SOURCES.index(python.source)
