"""Finds the Pythons of a work node, by their files and by starting them, with `agent/probe.sh`, which needs no Python.

How the script reaches the node is passed in. This module knows nothing of what a kernel needs.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....errors import AgentError
from ....wire.texts import printable
from ... import sanitize
from ...transport.connection import Completed, Connection, source

SOURCES = ("wanted", "setup", "path", "login", "conda", "uv", "venv", "ours")
"""Where a Python was found, the preferred ones first."""
_SURVEY_TIMEOUT = 60.0  # seconds; the script has limits of its own, of 39 s together
_MAX_LINES, _MAX_FIELD, _MAX_PYTHONS = 2000, 8192, 200  # of the answer: lines, characters of a field, Pythons
_MAX_VERSION = 40  # characters
_VERSIONS = ("version", "ipykernel", "pyzmq")


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
    """Facts about the node, "" where unknown. `home_problem`: why the home is not writable; `setup_problem`: how the
    set-up lines ended, if no kernel can start after them; `nvidia_smi`: its path."""

    hostname: str = ""
    machine: str = ""
    glibc: str = ""
    home: str = ""
    home_problem: str = ""
    setup_problem: str = ""
    nvidia_smi: str = ""


class Probe:
    """Runs the script on one node. `node` and `skipped` (places that were not searched) are known after a survey."""

    def __init__(self, connection: Connection, hop: str, setup: Sequence[str] = ()) -> None:
        """`setup`: shell lines after which a login shell's PATH is searched, too."""
        self.node = NodeFacts()
        self.skipped: list[str] = []
        self._connection = connection
        self._hop = hop
        self._setup = "\n".join(setup)

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
        results = [[*line, "", "", ""][2:4] for line in lines if line[0] == "tried"]
        if len(results) != len(pythons):
            cause = f"the node started {len(pythons)} Pythons, but reported on {len(results)}"
            raise AgentError(cause, hop=self._hop, remedy="Try again.")
        return [
            _started(python, status, output, seconds)
            for python, (status, output) in zip(pythons, results, strict=True)
        ]

    def _ask(self, call: list[str], timeout: float) -> list[list[str]]:
        """Return the fields of each line of the script's answer."""
        text = source("agent/probe.sh")
        stdin = f"{{\nsetup_lines={shlex.quote(self._setup)}\n{text}\n{shlex.join(call)}\n}}\n".encode()
        completed = self._connection.run("/bin/sh", stdin=stdin, timeout=timeout)
        if completed.returncode:
            raise self._shell_failed(completed)
        output = completed.stdout.decode(errors="surrogateescape")
        lines = [line for line in output.splitlines() if line][:_MAX_LINES]
        return [[_plain(field) for field in line.split("\t")] for line in lines]

    def _shell_failed(self, completed: Completed) -> AgentError:
        last = (completed.stderr or completed.stdout).decode(errors="replace").strip().splitlines()[-1:]
        output = sanitize.quoted("it", "".join(last)) if last else "no output"
        return AgentError(
            f"/bin/sh failed on the node (exit status {completed.returncode}): {output}",
            hop=self._hop,
            remedy="Check that the account may run commands there, by ssh with the command “/bin/sh -c id”.",
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
    """Make a field printable, but keep bytes that are not UTF-8, as a path may have them."""
    return "".join(one if "\udc80" <= one <= "\udcff" else printable(one) for one in field[:_MAX_FIELD])
