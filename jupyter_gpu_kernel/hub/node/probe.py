"""Which Python of a work node can run a kernel, and what else the node is like.

The looking is done there by `agent/probe.sh`, which needs no Python; here is the choosing: what is worth
starting, which one is taken, and what to tell the user when there is none. Knows a way to run a command, not
what the way is.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from typing import Any, Protocol

from ...errors import AgentError
from .. import inert

OLDEST_PYTHON = (3, 8)
OLDEST_IPYKERNEL = (6, 20)

_RANKS = ("wanted", "path", "login", "conda", "venv")
_AT_ONCE = 4  # Pythons started side by side: more would make a slow file system slower
_START = 10  # seconds for one Python to start: a first start over NFS takes its time
_START_WANTED = 25  # for one that the user named
_BUDGET = 20.0  # seconds after which no further ones are started
_SURVEY = 30.0  # the script has limits of its own, which are shorter
_LINES, _FIELD, _MOST = 2000, 8192, 200  # of the node's answer: lines, characters of a field, Pythons
_VERSION = 40  # characters
_VERSIONS = ("version", "ipykernel", "pyzmq")
_MARK = "=== jupyter-gpu-kernel probe"


class Completed(Protocol):
    """A finished command."""

    @property
    def returncode(self) -> int: ...
    @property
    def stdout(self) -> bytes: ...
    @property
    def stderr(self) -> bytes: ...


class Runner(Protocol):
    """Runs a command on the work node; `timeout` in seconds."""

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed: ...


@dataclass(frozen=True)
class Python:
    """One Python there. `why_not` is empty for the one taken; versions are "" where nobody looked."""

    path: str
    source: str  # one of _RANKS
    prefix: str
    kind: str = "other"  # or venv, venv+ (with its base's packages), conda
    version: str = ""
    ipykernel: str = ""
    pyzmq: str = ""
    why_not: str = ""


@dataclass(frozen=True)
class NodeFacts:
    """`home_problem`: why the home cannot be written; `nvidia_smi`: its path; `glibc`: "2.36"; else ""."""

    hostname: str = ""
    machine: str = ""
    glibc: str = ""
    home: str = ""
    home_problem: str = ""
    nvidia_smi: str = ""


@dataclass(frozen=True)
class Found:
    """What there is. `unseen`: sentences about places that were not looked at in the time there was."""

    python: Python
    others: tuple[Python, ...]
    node: NodeFacts
    unseen: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """{"python": {path, version, ipykernel}, "others": [{path, version, why_not}], "node", "unseen"}."""
        taken = self.python
        return {
            "python": {"path": taken.path, "version": taken.version, "ipykernel": taken.ipykernel},
            "others": [{"path": p.path, "version": p.version, "why_not": p.why_not} for p in self.others],
            "node": asdict(self.node),
            "unseen": list(self.unseen),
        }


def find_pythons(runner: Runner, hop_label: str, wanted: str | None = None) -> Found:
    """Choose the kernel's Python: `wanted` (a path, or a name on PATH there), else the best that is found.

    AgentError if there is none that can run a kernel: which there are, and the command that mends it.
    """
    search = _Search(runner, hop_label)
    return search.check(wanted) if wanted else search.find()


class _Search:
    def __init__(self, runner: Runner, hop: str) -> None:
        self.runner, self.hop = runner, hop
        self.node = NodeFacts()
        self.unseen: list[str] = []

    # --- what to take ---

    def find(self) -> Found:
        all_of_them = [_by_files(python) for python in self.survey("all", "python3", "python")]
        known = [python for python in all_of_them if python.why_not]
        rest = sorted((python for python in all_of_them if not python.why_not), key=_preference)
        limit = time.monotonic() + _BUDGET
        tried: list[Python] = []
        while rest and not any(not python.why_not for python in tried) and time.monotonic() < limit:
            tried += self.start(rest[:_AT_ONCE], _START)
            del rest[:_AT_ONCE]
        good = sorted((python for python in tried if not python.why_not), key=_preference)
        if not good and rest:
            self.unseen.append(f"{len(rest)} Pythons: starting the others took {_BUDGET:.0f} s")
        if not good:
            raise self.none_fits(_distinct(tried + known))
        second = [replace(python, why_not="would do, too: say --python to have it") for python in good[1:]]
        later = [replace(python, why_not=_not_started(python)) for python in rest]
        bad = [python for python in tried if python.why_not]
        others = _distinct([good[0], *second, *later, *bad, *known])[1:]
        return Found(good[0], tuple(others), self.node, tuple(self.unseen))

    def check(self, wanted: str) -> Found:
        path = self.locate(wanted)
        (python,) = self.start([Python(path, "wanted", "")], _START_WANTED)
        if not python.why_not:
            return Found(replace(python, path=path), (), self.node, tuple(self.unseen))
        remedy = "Name another with --python; without it, one is looked for."
        if _at_least(python.version, OLDEST_PYTHON):
            remedy = self.command(python)
        raise AgentError(f"{path} {python.why_not}", hop=self.hop, remedy=remedy)

    def locate(self, wanted: str) -> str:
        """The absolute path of what the user wrote."""
        if "/" in wanted:
            self.survey("path")
            return wanted if wanted[0] == "/" else f"{self.node.home}/{wanted.removeprefix('~/')}"
        if not re.fullmatch(r"[\w.+-]+", wanted):
            raise AgentError(f"{wanted!r} is not the name of a program", remedy="Give --python a path.")
        found = self.survey("path", wanted)
        if not found:
            raise AgentError(
                f"{wanted} is on PATH neither of a plain nor of a login shell",
                hop=self.hop,
                remedy="Give --python its path; without --python, one is looked for.",
            )
        return found[0].path

    # --- asking the node ---

    def survey(self, search: str, *names: str) -> list[Python]:
        pythons: list[Python] = []
        facts: dict[str, str] = {}
        for kind, *said in self.ask(["survey", search, *names], _SURVEY):
            first, second, *more = (said + [""] * 7)[:7]
            if kind == "python" and first in _RANKS and second.startswith("/") and len(pythons) < _MOST:
                versions = (field[:_VERSION] for field in more[2:])
                pythons.append(Python(second, first, *more[:2], *versions))
            elif kind == "fact":
                facts[first] = second
            elif kind == "unseen" and len(self.unseen) < _MOST:
                self.unseen.append(first)
        if facts.get("scratch") == "none":
            raise AgentError(
                "no folder there can be written: neither /tmp nor /dev/shm, /var/tmp or the home",
                hop=self.hop,
                remedy="Free some space there, or ask the node's administrator to.",
            )
        self.node = NodeFacts(**{name: facts.get(name, "") for name in NodeFacts.__dataclass_fields__})
        return pythons

    def start(self, pythons: Sequence[Python], seconds: int) -> list[Python]:
        """Each with what it said of itself, or why it is none."""
        lines = self.ask(["try", str(seconds), *(python.path for python in pythons)], seconds + 15.0)
        answers = [[*line, "", ""][2:4] for line in lines if line[0] == "tried"]
        if len(answers) != len(pythons):
            cause = f"of {len(pythons)} Pythons that were tried there, {len(answers)} were told of"
            raise AgentError(cause, hop=self.hop, remedy="Try again.")
        return [
            _judged(python, end, words, seconds)
            for python, (end, words) in zip(pythons, answers, strict=True)
        ]

    def ask(self, call: list[str], timeout: float) -> list[list[str]]:
        """The fields of the answer's lines."""
        script = resources.files("jupyter_gpu_kernel").joinpath("agent/probe.sh").read_text("utf-8")
        done = self.runner.run(
            "/bin/sh", stdin=f"{{\n{script}\n{shlex.join(call)}\n}}\n".encode(), timeout=timeout
        )
        text = done.stdout.decode(errors="surrogateescape").replace("\r\n", "\n")
        _, begun, rest = text.partition(f"\n{_MARK} begin\n")
        answer, ended, _ = rest.partition(f"{_MARK} end\n")
        if not begun or not ended:
            raise self.no_shell(done)
        lines = [line for line in answer.splitlines() if line][:_LINES]
        return [[_inert(field) for field in line.split("\t")] for line in lines]

    # --- what to tell the user ---

    def no_shell(self, done: Completed) -> AgentError:
        last = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()[-1:]
        said = inert.quoted("it", "".join(last)) if last else "no output"
        return AgentError(
            f"/bin/sh did not work there (exit status {done.returncode}): {said}",
            hop=self.hop,
            remedy="See whether the account may run commands there: try ssh with the command /bin/sh -c id",
        )

    def none_fits(self, pythons: Sequence[Python]) -> AgentError:
        if not pythons:
            cause = "there is no Python: none on PATH, no conda, no virtual environment in the home"
        else:
            listed = [f"  {python.path} {python.why_not}" for python in pythons[:6]]
            cause = "\n".join(["none of its Pythons can run a kernel:", *listed])
        if self.unseen:
            cause += "\nNot looked at: " + "; ".join(self.unseen)
        mendable = [python for python in pythons if _at_least(python.version, OLDEST_PYTHON)]
        remedy = self.command(min(mendable, key=self._ease)) if mendable else self.install_python()
        return AgentError(cause, hop=self.hop, remedy=remedy)

    def _ease(self, python: Python) -> tuple[bool, bool]:
        """The owner's own environments first, then their conda base, then the system's."""
        return not self._own(python), python.kind == "conda" and "/envs/" not in python.prefix

    def _own(self, python: Python) -> bool:
        return bool(self.node.home) and python.prefix.startswith(self.node.home + "/")

    def command(self, python: Python) -> str:
        """The words that give this Python what a kernel needs."""
        program = shlex.quote(python.path)
        install = "-m pip install " + ("--upgrade " if python.ipykernel else "") + "ipykernel"
        if not self._own(python) and python.kind == "other":
            folder = f"{shlex.quote(self.node.home)}/gpu-kernel"
            words = f"{program} -m venv {folder} && {folder}/bin/python {install}"
        else:
            words = f"{program} {install}"
        return f"On {self.hop} (or the login node, if the home is shared) run: {words}"

    def install_python(self) -> str:
        version = ".".join(map(str, OLDEST_PYTHON))
        return (
            f"Install a Python ≥ {version} for {self.node.machine or 'it'} into the home (no root needed), "
            "e.g. Miniforge (from the login node, if the home is shared). Then run: "
            "~/miniforge3/bin/python -m pip install ipykernel. One that is elsewhere is named with --python."
        )


def _by_files(python: Python) -> Python:
    """With a reason why not where the files alone are proof; without a start, as that can take seconds."""
    certain = python.kind in ("venv", "conda") and python.version
    return replace(python, why_not=_lacks(python)) if certain else python


def _lacks(python: Python) -> str:
    """What keeps a Python from running a kernel, as the rest of a sentence, or ""."""
    if not _at_least(python.version, OLDEST_PYTHON):
        return f"is Python {python.version}; {'.'.join(map(str, OLDEST_PYTHON))} or newer is needed"
    if not python.ipykernel:
        return f"(Python {python.version}) has no ipykernel"
    if not _at_least(python.ipykernel, OLDEST_IPYKERNEL):
        return f"has ipykernel {python.ipykernel}; {'.'.join(map(str, OLDEST_IPYKERNEL))} or newer is needed"
    return "" if python.pyzmq else "has ipykernel, but no pyzmq"


def _judged(python: Python, end: str, words: str, seconds: int) -> Python:
    """`end` and `words` as the script's `try` tells them."""
    if end == "late":
        return replace(python, why_not=f"did not start within {seconds} s (a slow file system?)")
    if end != "0":
        return replace(python, why_not=_not_a_python(python.path, end, words))
    try:
        facts: dict[str, Any] = json.loads(words)
        told = {name: _inert(str(facts.get(name) or "")) for name in ("executable", "prefix", *_VERSIONS)}
    except (ValueError, RecursionError, AttributeError):
        return replace(
            python, why_not=_not_a_python(python.path, end, "what it says of itself is no such thing")
        )
    versions = {name: told[name][:_VERSION] for name in _VERSIONS}
    path = told["executable"] if told["executable"].startswith("/") else python.path
    judged = replace(python, path=path, prefix=told["prefix"], **versions)
    return replace(judged, why_not=_lacks(judged))


def _inert(field: str) -> str:
    """Without control characters; bytes that are no UTF-8 stay, as a path may have them."""
    shown = (one if one.isprintable() or "\udc80" <= one <= "\udcff" else "?" for one in field[:_FIELD])
    return "".join(shown)


def _not_a_python(path: str, end: str, words: str) -> str:
    said = words.rpartition(": ")[2].strip() or f"exit status {end}"
    reasons = {"127": "cannot be started", "126": "cannot be run as a program"}
    return f"{reasons.get(end, 'does not work as a Python')}: {said}"


def _not_started(python: Python) -> str:
    has = f", ipykernel {python.ipykernel} by its files" if python.ipykernel else ""
    return f"not started{has}: another came first"


def _preference(python: Python) -> tuple[int, tuple[int, ...]]:
    """By where it was found, then the newest ipykernel; the order of finding decides among equals."""
    return _RANKS.index(python.source), tuple(-part for part in _numbers(python.ipykernel)[:3])


def _distinct(pythons: Sequence[Python]) -> list[Python]:
    """Each prefix once, the first."""
    return list({python.prefix: python for python in reversed(pythons)}.values())[::-1]


def _at_least(version: str, least: tuple[int, ...]) -> bool:
    return _numbers(version) >= least


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
