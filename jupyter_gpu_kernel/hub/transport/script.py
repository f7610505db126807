"""Scripts for /bin/sh on a node, and what they print: between marks, as shell start-up files may print before."""

from __future__ import annotations

import shlex
from importlib import resources
from typing import NamedTuple

from ...wire.texts import whole_number
from .. import sanitize
from .short_command import Completed

MAX_LINES = 20_000
"""Lines of one output that are read."""
_BEGIN = "=== jupyter-gpu-kernel begin"
_END = "=== jupyter-gpu-kernel end"


def source(name: str) -> str:
    """Return the text of a script of this package, by its path in the package."""
    return resources.files("jupyter_gpu_kernel").joinpath(name).read_text("utf-8")


def script(*lines: str) -> str:
    """Return a script that runs these shell lines, and prints the marks that `Output` looks for."""
    begin = f"printf '\\n%s\\n' {shlex.quote(_BEGIN)}"
    end = f"printf '\\n%s %s\\n' {shlex.quote(_END)} \"$?\""
    return "\n".join([begin, f"{begin} >&2", *lines, end, ""])


class Output(NamedTuple):
    """What the commands of one script printed. `status`: the exit status of the last one; -1 if it did not end."""

    status: int
    lines: tuple[str, ...]
    errors: str

    @classmethod
    def of(cls, completed: Completed) -> Output:
        """Read the output of a script that has ended."""
        text = completed.stdout.decode(errors="replace").replace("\r\n", "\n")
        _, begun, rest = text.partition(f"\n{_BEGIN}\n")
        body, ended, status = rest.rpartition(f"\n{_END} ")
        stderr = completed.stderr.decode(errors="replace").replace("\r\n", "\n")
        errors = stderr.rpartition(f"\n{_BEGIN}\n")[2] if begun else stderr or text
        number = whole_number(status.split("\n")[0]) if ended else None
        printed = (body if ended else rest).removesuffix("\n")
        lines = printed.split("\n")[:MAX_LINES]  # names may contain other ends of line of `splitlines`
        return cls(-1 if number is None else number, tuple(lines), sanitize.lines(errors, 20))
