"""Chooses the Python of a work node that runs kernels, and explains what to install if there is none.

The node is asked by `agent/probe.sh`, which needs no Python. How the script reaches the node is passed in.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any, Protocol

from ...errors import AgentError
from .. import sanitize

OLDEST_PYTHON = (3, 8)
OLDEST_IPYKERNEL = (6, 20)
_AT_ONCE = 4  # Pythons that are started side by side: more would slow down a slow file system
_START_TIMEOUT = 10  # seconds for one Python to start, as a first start over NFS is slow
_START_TIMEOUT_WANTED = 25  # for one that the user named
_BUDGET = 20.0  # seconds after which no further ones are started
SOURCES = ("wanted", "path", "login", "conda", "venv")
"""Where a Python was found, the preferred ones first."""
_SURVEY_TIMEOUT = 30.0  # seconds; the script has shorter limits of its own
_MAX_LINES, _MAX_FIELD, _MAX_PYTHONS = 2000, 8192, 200  # of the answer: lines, characters of a field, Pythons
_MAX_VERSION = 40  # characters
_VERSIONS = ("version", "ipykernel", "pyzmq")
_MARK = "=== jupyter-gpu-kernel probe"


class Completed(Protocol):
    """A command that has ended, such as a `subprocess.CompletedProcess`."""

    returncode: int
    stdout: bytes
    stderr: bytes


class CommandRunner(Protocol):
    """Runs a short command on the work node; `timeout` in seconds."""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed: ...


@dataclass(frozen=True)
class Python:
    """One Python on the node. `why_not` is "" if nothing speaks against it; unknown versions are ""."""

    path: str
    source: str  # one of SOURCES
    prefix: str
    kind: str = "other"  # or venv, venv+ (with the packages of its base), conda
    version: str = ""
    ipykernel: str = ""
    pyzmq: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """Facts about the node, "" where unknown. `home_problem`: why the home is not writable; `nvidia_smi`: its path."""

    hostname: str = ""
    machine: str = ""
    glibc: str = ""
    home: str = ""
    home_problem: str = ""
    nvidia_smi: str = ""


class Probe:
    """Runs the script on one node. `node` and `skipped` (places that were not searched) are known after a survey."""

    def __init__(self, runner: CommandRunner, hop: str) -> None:
        self.node = NodeFacts()
        self.skipped: list[str] = []
        self._runner = runner
        self._hop = hop

    def survey(self, search: str, *names: str) -> list[Python]:
        """Return the Pythons that are found by their files, without starting them. `search`: "all", or "path"."""
        pythons: list[Python] = []
        facts: dict[str, str] = {}
        for kind, *fields in self._ask(["survey", search, *names], _SURVEY_TIMEOUT):
            first, second, *more = (fields + [""] * 7)[:7]
            if (
                kind == "python"
                and first in SOURCES
                and second.startswith("/")
                and len(pythons) < _MAX_PYTHONS
            ):
                versions = (field[:_MAX_VERSION] for field in more[2:])
                pythons.append(Python(second, first, *more[:2], *versions))
            elif kind == "fact":
                facts[first] = second
            elif kind == "unseen" and len(self.skipped) < _MAX_PYTHONS:
                self.skipped.append(first)
        if facts.get("scratch") == "none":
            raise AgentError(
                "no temporary folder on the node is writable: neither /tmp nor /dev/shm, /var/tmp or the home",
                hop=self._hop,
                remedy="Free some space there, or ask the node's administrator to.",
            )
        self.node = NodeFacts(**{name: facts.get(name, "") for name in NodeFacts.__dataclass_fields__})
        return pythons

    def start(self, pythons: Sequence[Python], seconds: int) -> list[Python]:
        """Start each Python; return it with the versions that it reports, or with `why_not` if it failed."""
        lines = self._ask(["try", str(seconds), *(python.path for python in pythons)], seconds + 15.0)
        results = [[*line, "", ""][2:4] for line in lines if line[0] == "tried"]
        if len(results) != len(pythons):
            cause = f"the node started {len(pythons)} Pythons, but reported on {len(results)}"
            raise AgentError(cause, hop=self._hop, remedy="Try again.")
        return [
            _started(python, status, output, seconds)
            for python, (status, output) in zip(pythons, results, strict=True)
        ]

    def _ask(self, call: list[str], timeout: float) -> list[list[str]]:
        """Return the fields of each line of the script's answer."""
        script = resources.files("jupyter_gpu_kernel").joinpath("agent/probe.sh").read_text("utf-8")
        stdin = f"{{\n{script}\n{shlex.join(call)}\n}}\n".encode()
        completed = self._runner.run("/bin/sh", stdin=stdin, timeout=timeout)
        text = completed.stdout.decode(errors="surrogateescape").replace("\r\n", "\n")
        _, begun, rest = text.partition(f"\n{_MARK} begin\n")
        answer, ended, _ = rest.partition(f"{_MARK} end\n")
        if not begun or not ended:
            raise self._shell_failed(completed)
        lines = [line for line in answer.splitlines() if line][:_MAX_LINES]
        return [[_plain(field) for field in line.split("\t")] for line in lines]

    def _shell_failed(self, completed: Completed) -> AgentError:
        last = (completed.stderr or completed.stdout).decode(errors="replace").strip().splitlines()[-1:]
        output = sanitize.quoted("it", "".join(last)) if last else "no output"
        return AgentError(
            f"/bin/sh failed on the node (exit status {completed.returncode}): {output}",
            hop=self._hop,
            remedy="Check that the account may run commands there: try ssh with the command /bin/sh -c id",
        )


def _started(python: Python, status: str, output: str, seconds: int) -> Python:
    """Return the Python after a start. `status` and `output` are those of the script's `try`."""
    if status == "late":
        return replace(python, why_not=f"did not start within {seconds} s (a slow file system?)")
    if status != "0":
        return replace(python, why_not=_failed(status, output))
    try:
        facts: dict[str, Any] = json.loads(output)
        known = {name: _plain(str(facts.get(name) or "")) for name in ("executable", "prefix", *_VERSIONS)}
    except (ValueError, RecursionError, AttributeError):
        return replace(python, why_not=_failed(status, "its output is malformed"))
    versions = {name: known[name][:_MAX_VERSION] for name in _VERSIONS}
    path = known["executable"] if known["executable"].startswith("/") else python.path
    return replace(python, path=path, prefix=known["prefix"], **versions)


def _failed(status: str, output: str) -> str:
    reason = output.rpartition(": ")[2].strip() or f"exit status {status}"
    texts = {"127": "cannot be started", "126": "cannot be run as a program"}
    return f"{texts.get(status, 'does not work as a Python')}: {reason}"


def _plain(field: str) -> str:
    """Replace control characters; keep bytes that are not UTF-8, as a path may have them."""
    shown = (one if one.isprintable() or "\udc80" <= one <= "\udcff" else "?" for one in field[:_MAX_FIELD])
    return "".join(shown)


# --- the choice


@dataclass(frozen=True)
class FoundPythons:
    """The chosen Python, and what else was found. `skipped`: sentences about places that were not searched."""

    python: Python
    others: tuple[Python, ...]
    node: NodeFacts
    skipped: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return {"python": {path, version, ipykernel}, "others": [{path, version, why_not}], "node", "unseen"}."""
        chosen = self.python
        return {
            "python": {"path": chosen.path, "version": chosen.version, "ipykernel": chosen.ipykernel},
            "others": [{"path": p.path, "version": p.version, "why_not": p.why_not} for p in self.others],
            "node": asdict(self.node),
            "unseen": list(self.skipped),
        }


def find_pythons(
    runner: CommandRunner, hop: str, wanted: str | None, clock: Callable[[], float]
) -> FoundPythons:
    """Choose `wanted` (a path, or a name on the node's PATH), or else the best Python that is found.

    If none can run a kernel, AgentError lists them, with the command that installs what is missing.
    """
    probe = Probe(runner, hop)
    return _check(probe, hop, wanted) if wanted else _find(probe, hop, clock)


def _find(probe: Probe, hop: str, clock: Callable[[], float]) -> FoundPythons:
    surveyed = [_judged_by_files(python) for python in probe.survey("all", "python3", "python")]
    unfit = [python for python in surveyed if python.why_not]
    rest = sorted((python for python in surveyed if not python.why_not), key=_preference)
    deadline = clock() + _BUDGET
    tried: list[Python] = []
    while rest and all(python.why_not for python in tried) and clock() < deadline:
        tried += map(_judged, probe.start(rest[:_AT_ONCE], _START_TIMEOUT))
        del rest[:_AT_ONCE]
    good = sorted((python for python in tried if not python.why_not), key=_preference)
    skipped = list(probe.skipped)
    if not good and rest:
        skipped.append(f"{len(rest)} Pythons: starting the others took {_BUDGET:.0f} s")
    if not good:
        raise _none_fits(_distinct(tried + unfit), probe.node, skipped, hop)
    second = [replace(python, why_not="would do, too: choose it with --python") for python in good[1:]]
    later = [replace(python, why_not=_not_started(python)) for python in rest]
    bad = [python for python in tried if python.why_not]
    others = _distinct([good[0], *second, *later, *bad, *unfit])[1:]
    return FoundPythons(good[0], tuple(others), probe.node, tuple(skipped))


def _check(probe: Probe, hop: str, wanted: str) -> FoundPythons:
    path = _locate(probe, hop, wanted)
    python = _judged(*probe.start([Python(path, "wanted", "")], _START_TIMEOUT_WANTED))
    if not python.why_not:
        return FoundPythons(replace(python, path=path), (), probe.node, tuple(probe.skipped))
    remedy = "Choose another one with --python; without --python, one is searched for."
    if _at_least(python.version, OLDEST_PYTHON):
        remedy = _install_command(python, probe.node, hop)
    raise AgentError(f"{path} {python.why_not}", hop=hop, remedy=remedy)


def _locate(probe: Probe, hop: str, wanted: str) -> str:
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


def _lacks(python: Python) -> str:
    """Return what prevents a Python from running a kernel, as the rest of a sentence, or ""."""
    if not _at_least(python.version, OLDEST_PYTHON):
        return f"is Python {python.version}; {_dotted(OLDEST_PYTHON)} or newer is needed"
    if not python.ipykernel:
        return f"(Python {python.version}) has no ipykernel"
    if not _at_least(python.ipykernel, OLDEST_IPYKERNEL):
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


def _at_least(version: str, least: tuple[int, ...]) -> bool:
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
    usable = [python for python in pythons if _at_least(python.version, OLDEST_PYTHON)]

    def effort(
        python: Python,
    ) -> tuple[bool, bool]:  # the user's own environments, their conda base, the system's
        return not _is_own(python, node), python.kind == "conda" and "/envs/" not in python.prefix

    remedy = _install_command(min(usable, key=effort), node, hop) if usable else _install_python(node)
    return AgentError(cause, hop=hop, remedy=remedy)


def _is_own(python: Python, node: NodeFacts) -> bool:
    return bool(node.home) and python.prefix.startswith(node.home + "/")


def _install_command(python: Python, node: NodeFacts, hop: str) -> str:
    """Return the command that installs into this Python what a kernel needs."""
    program = shlex.quote(python.path)
    install = "-m pip install " + ("--upgrade " if python.ipykernel else "") + "ipykernel"
    if not _is_own(python, node) and python.kind == "other":
        folder = f"{shlex.quote(node.home)}/gpu-kernel"
        command = f"{program} -m venv {folder} && {folder}/bin/python {install}"
    else:
        command = f"{program} {install}"
    return f"On {hop} (or the login node, if the home is shared) run: {command}"


def _install_python(node: NodeFacts) -> str:
    return (
        f"Install Python {_dotted(OLDEST_PYTHON)} or newer for {node.machine or 'it'} into the home (no root needed), "
        "e.g. Miniforge (from the login node, if the home is shared). Then run: "
        "~/miniforge3/bin/python -m pip install ipykernel. Choose a Python that is elsewhere with --python."
    )
