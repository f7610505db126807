"""Chooses the Python of a node from which a virtual environment is made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...errors import AgentError
from ..node.check.find_python import OLDEST_PYTHON, at_least, install_python, locate
from ..node.check.python_probe import SOURCES, CommandRunner, Probe, Python

_AT_ONCE = 4  # Pythons that are started side by side
_START_TIMEOUT = 15  # seconds
_BUDGET = 30.0  # seconds after which no further ones are started
_NEEDED = ".".join(map(str, OLDEST_PYTHON))
_CURRENT = (3, 10)
"""Current releases of ipykernel need this Python."""


def find_base(
    runner: CommandRunner, hop: str, wanted: str, setup: Sequence[str], clock: Callable[[], float]
) -> Python:
    """Return `wanted` (a path, or a name on PATH), or the best Python that is found. Raises AgentError without one."""
    probe = Probe(runner, hop, setup)
    if wanted:
        path = locate(probe, hop, wanted)
        (python,) = map(_judged, probe.start([Python(path, "wanted", "")], _START_TIMEOUT))
        if python.why_not:
            raise AgentError(
                f"{path} {python.why_not}", hop=hop, remedy="Without --python, one is searched for."
            )
        return python
    found = [one for one in probe.survey("all", "python3", "python") if one.source != "ours"]

    def preference(python: Python) -> tuple[bool, bool, int, int]:
        return _preference(python, probe.node.home)

    rest = sorted((one for one in found if not _is_old(one)), key=preference)
    tried: list[Python] = []
    deadline = clock() + _BUDGET
    while rest and all(one.why_not for one in tried) and clock() < deadline:
        tried += map(_judged, probe.start(rest[:_AT_ONCE], _START_TIMEOUT))
        del rest[:_AT_ONCE]
    good = sorted((one for one in tried if not one.why_not), key=preference)
    if good:
        return good[0]
    old = [replace(one, why_not=_too_old(one)) for one in found if _is_old(one)]
    raise _none(tried + old, probe, hop)


def base_of(runner: CommandRunner, hop: str, path: str) -> str:
    """Return a Python that can describe and remove the environment `path`: the one from which it was made, or else one
    on PATH, since its own would run in it."""
    script = (
        'for one in "$(readlink -f "$1/bin/python")" "$(command -v python3)" "$(command -v python)" '
        "/usr/bin/python3 /usr/libexec/platform-python; do\n"
        "    \"$one\" -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || continue\n"
        "    printf '\\n=== python %s\\n' \"$one\"\n    exit\ndone\n"
    )
    stdin = f"{{\nset -- {shlex.quote(path)}\n{script}}}\n".encode()
    output = runner.run("/bin/sh", stdin=stdin).stdout.decode("utf-8", "replace")
    found = re.search(r"^=== python (/.*)$", output, re.MULTILINE)
    if found is None:
        raise AgentError(
            "no Python of the node can be started that could tell about the environment",
            hop=hop,
            remedy=f"Remove it by hand there, if nothing uses it: rm -r {shlex.quote(path)}",
        )
    return found[1]


def _judged(python: Python) -> Python:
    return replace(python, why_not=_too_old(python)) if not python.why_not and _is_old(python) else python


def _too_old(python: Python) -> str:
    return f"is Python {python.version}; {_NEEDED} or newer is needed"


def _is_old(python: Python) -> bool:
    return bool(python.version) and not at_least(python.version, OLDEST_PYTHON)


def _preference(python: Python, home: str) -> tuple[bool, bool, int, int]:
    """What the set-up lines bring comes first, then what has current packages, then what all nodes have that share the
    home, then what stays."""
    old = bool(python.version) and not at_least(python.version, _CURRENT)
    environment = python.kind.startswith("venv") or (python.kind == "conda" and "/envs/" in python.prefix)
    shared = bool(home) and python.prefix.startswith(f"{home}/")
    return python.source != "setup", old, 2 if environment else int(not shared), SOURCES.index(python.source)


def _none(pythons: Sequence[Python], probe: Probe, hop: str) -> AgentError:
    lines = [f"there is no Python {_NEEDED} or newer on the node from which an environment could be made"]
    lines += [f"  {one.path} {one.why_not}" for one in pythons[:6]]
    lines += [f"  not searched: {place}" for place in probe.skipped[:3]]
    return AgentError("\n".join(lines), hop=hop, remedy=install_python(probe.node, hop))
