"""Virtual environments that we make on nodes for `add --create-env`: the choice of the Python from which an environment
is made, and the script that makes the environment.

There may be no agent on the node yet, so the script `agent/virtual_env.sh` is sent as text, over any connection that
runs /bin/sh, and what the script prints is checked. All of it blocks.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..errors import AgentError
from . import sanitize
from .node.check.find_python import at_least, install_python, locate, start_best, too_old
from .node.check.python_probe import SOURCES, NodeFacts, Probe, Python
from .transport.connection import Connection, Output, source

_CURRENT = (3, 10)
"""Current releases of ipykernel need this Python."""


LIMIT = 1800.0
"""Seconds that one run may take: a slow file server needs minutes for thousands of small files."""
_END = "end of what jupyter-gpu-kernel sends"
_OF_SCRIPT = f"{_END}, with set-up lines"
_LONGEST = 200_000
"""Characters of one value: a record names all packages."""
_FULL = re.compile("No space left on device|Disk quota exceeded")
_STORAGE = "another folder with --env-dir DIR, on storage that all your nodes share and that is not cleaned"
_REMEDIES = {
    "write": f"Free some space or quota there, or allow writing; or name {_STORAGE}. Nothing was left on the node.",
    "open": "Choose a folder that only you can write to with --env-dir.",
    "foreign": "Choose another folder with --env-dir DIR, or another --name. Nothing was changed.",
    "broken": "Choose another folder for this node with --env-dir DIR. Or delete the environment "
    "there, and make it from a Python that all nodes with this folder have, such as one in your home: "
    "--python PATH.",
    "busy": "Wait until that has ended, then run this command again.",
    "make": "Choose another Python of the node with --python PATH, or with --setup LINE. Nothing was left on the node.",
    "start": f"The folder may be mounted without the right to run programs: name {_STORAGE}.",
}
"""What to do, by the code of the problem that the script reports."""


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


class Answer:
    """What the script printed. Everything is checked where it is asked for, as the node may print anything."""

    def __init__(self, output: Output) -> None:
        self._lines = output.lines

    def value(self, word: str, form: str = ".*") -> str:
        """Return the last value of this word; "" if there is none of this form."""
        found = [line.removeprefix(f"{word}|") for line in self._lines if line.startswith(f"{word}|")]
        values = (sanitize.line(value, _LONGEST) for value in reversed(found))
        return next((value for value in values if re.fullmatch(form, value)), "")

    @property
    def mib(self) -> int:
        """The size of the environment."""
        return -(-int(self.value("kib", r"\d{1,12}") or 0) // 1024)

    def packages(self, path: str) -> list[tuple[str, str]]:
        """Return the (name, version) of the environment's packages; [] if the one at this path is not ours."""
        try:
            record = json.loads(self.value("record"))
            return [
                (sanitize.line(name, 100), sanitize.line(version, 100))
                for name, version in record["packages"]
                if record["path"] == path
            ]
        except (ValueError, RecursionError, KeyError, TypeError):
            return []


def path_of(text: str) -> str:
    """Return an absolute path that the node has printed. Raises AgentError for anything else."""
    if not re.fullmatch(r"/.{1,4000}", text) or not text.isprintable():
        raise AgentError("the node's answer is malformed: an absolute path was expected", remedy="Try again.")
    return text


def script_text(verb: str, data: bytes = b"", setup: Sequence[str] = (), **variables: str) -> bytes:
    """Return the script that calls a function of `virtual_env.sh`.

    data: What the function reads. setup: Lines for a login shell that come before. variables: What the function needs.
    """
    values = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    stdin = f"<<'{_END}'\n{base64.encodebytes(data).decode()}{_END}" if data else "</dev/null"
    lines = [
        *values,
        f"(\n{source('agent/virtual_env.sh')}\n{verb}\n) {stdin}",
        "code=$?; [ $code != 0 ] || echo 'ended|yes'; (exit $code)",
        "",
    ]
    text = "\n".join(lines)
    if setup:
        # The set-up lines come through a descriptor, since every user of the node can read command lines.
        text = "\n".join([*setup, text])
        text = f"exec bash --login /proc/self/fd/4 </dev/null 4<<'{_OF_SCRIPT}'\n{text}\n{_OF_SCRIPT}\n"
    return text.encode()


def run_script(connection: Connection, hop: str, text: bytes) -> Answer:
    """Run a script of `script_text`, and return what it printed. Raises GpuKernelError if it reports a problem."""
    output = Output.of(connection.run("/bin/sh", stdin=text, timeout=LIMIT))
    answer = Answer(output)
    code, _, reason = answer.value("problem").partition("|")
    if code:
        printed = [line for line in output.lines[-20:] if not line.startswith("problem|")]
        raise problem(hop, code, "\n".join([*printed, reason]))
    if not answer.value("ended"):
        shown = sanitize.block("\n".join([*output.lines, output.errors]), 10) or "| (none)"
        raise AgentError(
            f"the script ended without an answer (exit status {output.status}); its output:\n{shown}",
            hop=hop,
            remedy="Choose another Python with --python, or correct the --setup lines.",
        )
    return answer


def problem(hop: str, code: str, reason: str) -> AgentError:
    """Return the error about a problem that the node reports, in its words, with our remedy."""
    full = code == "make" and _FULL.search(reason)
    remedy = _REMEDIES.get("write" if full else code, "Try again.")
    cause = f"the environment cannot be made; {sanitize.quoted('the node', reason)}"
    return AgentError(cause, hop=hop, remedy=remedy)
