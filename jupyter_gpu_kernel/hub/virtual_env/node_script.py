"""Runs `agent/virtual_env.sh` on a node, and checks what the script prints.

Blocks. There is no agent on the node yet, so the script is sent as text, over any connection that runs /bin/sh.
"""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Sequence
from typing import Any

from ...errors import AgentError
from .. import sanitize
from ..transport.connection import Connection
from ..transport.script import Output, source

LIMIT = 1800.0
"""Seconds that one run may take: a slow file server needs minutes for thousands of small files."""
_END = "end of what jupyter-gpu-kernel sends"
_OF_SCRIPT = f"{_END}, with set-up lines"
_MOST = 2000
"""Packages, or processes, that are read."""
_LONGEST = 200_000
"""Characters of one value: a record names all packages."""
_FULL = re.compile("No space left on device|Disk quota exceeded")
_STORAGE = "another folder with --env-dir DIR, on storage that all your nodes share and that is not cleaned"
_NOTHING_REMOVED = "Nothing was removed. Without --env, “remove” removes the kernelspec alone."
_REMEDIES = {
    "write": f"Free some space or quota there, or allow writing; or name {_STORAGE}. Nothing was left on the node.",
    "open": "Choose a folder that only you can write to with --env-dir.",
    "foreign": "Choose another folder with --env-dir DIR, or another --name. Nothing was changed.",
    "broken": "Choose another folder for this node with --env-dir DIR. Or remove the environment (“remove --env” "
    "with its kernelspec), and make it from a Python that all nodes with this folder have, such as one in your home: "
    "--python PATH.",
    "busy": "Wait until that has ended, then run this command again.",
    "make": "Choose another Python of the node with --python PATH, or with --setup LINE. Nothing was left on the node.",
    "start": f"The folder may be mounted without the right to run programs: name {_STORAGE}.",
    "not_ours": _NOTHING_REMOVED,
    "in_use": "End these first (jupyter gpu-kernel stop ID), then run this command again. Nothing was removed.",
}
"""What to do, by the code of the problem that the script reports."""


class Answer:
    """What the script printed. Everything is checked where it is asked for, as the node may print anything."""

    def __init__(self, output: Output) -> None:
        self._lines = output.lines

    def all(self, word: str) -> list[str]:
        """Return the values of this word."""
        found = [line.removeprefix(f"{word}|") for line in self._lines if line.startswith(f"{word}|")]
        return [sanitize.line(value, _LONGEST) for value in found[:_MOST]]

    def value(self, word: str, form: str = ".*") -> str:
        """Return the last value of this word; "" if there is none of this form."""
        found = [value for value in self.all(word) if re.fullmatch(form, value)]
        return found[-1] if found else ""

    @property
    def mib(self) -> int:
        """The size of the environment."""
        return -(-int(self.value("kib", r"\d{1,12}") or 0) // 1024)

    def record(self, path: str) -> dict[str, Any]:
        """Return the environment's {"id", "packages": [(name, version)]}; {} if the one at this path is not ours."""
        try:
            record = json.loads(self.value("record"))
            packages = [
                (sanitize.line(name, 100), sanitize.line(version, 100))
                for name, version in record["packages"]
            ]
            is_ours = record["path"] == path and re.fullmatch("[0-9a-f]{32}", record["id"])
        except (ValueError, RecursionError, KeyError, TypeError):
            return {}
        return {"id": record["id"], "packages": packages} if is_ours else {}

    @property
    def kernels(self) -> list[str]:
        """The ids of the kernels whose keepers are started with the environment's Python."""
        found = (re.search(r" serve ([A-Za-z0-9_-]{1,64}) *$", words) for words in self.all("process"))
        return [match[1] for match in found if match]


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


def run_script(connection: Connection, hop: str, verb: str, text: bytes) -> Answer:
    """Run a script of `script_text`, and return what it printed. Raises GpuKernelError if it reports a problem."""
    output = Output.of(connection.run("/bin/sh", stdin=text, timeout=LIMIT))
    answer = Answer(output)
    code, _, reason = answer.value("problem").partition("|")
    if code:
        printed = [line for line in output.lines[-20:] if not line.startswith("problem|")]
        raise problem(hop, verb, code, "\n".join([*printed, reason]))
    if not answer.value("ended"):
        shown = sanitize.block("\n".join([*output.lines, output.errors]), 10) or "| (none)"
        raise AgentError(
            f"the script ended without an answer (exit status {output.status}); its output:\n{shown}",
            hop=hop,
            remedy="Choose another Python with --python, or correct the --setup lines.",
        )
    return answer


def problem(hop: str, verb: str, code: str, reason: str) -> AgentError:
    """Return the error about a problem that the node reports, in its words, with our remedy."""
    word = "removed" if verb in ("status", "remove") else "made"
    full = code == "make" and _FULL.search(reason)
    remedy = _REMEDIES.get("write" if full else code, "Try again.")
    return AgentError(
        f"the environment cannot be {word}; {sanitize.quoted('the node', reason)}", hop=hop, remedy=remedy
    )
