"""Scripts for /bin/sh on a node, and what they print."""

from __future__ import annotations

from importlib import resources
from typing import NamedTuple

from .. import sanitize
from .short_command import Completed

MAX_LINES = 20_000
"""Lines of one output that are read."""


def source(name: str) -> str:
    """Return the text of a script of this package, by its path in the package."""
    return resources.files("jupyter_gpu_kernel").joinpath(name).read_text("utf-8")


class Output(NamedTuple):
    """What a script printed. `status`: its exit status; -1 if that is not known."""

    status: int
    lines: tuple[str, ...]
    errors: str

    @classmethod
    def of(cls, completed: Completed) -> Output:
        """Read the output of a script that has ended."""
        text, errors = (
            output.decode(errors="replace").replace("\r\n", "\n")
            for output in (completed.stdout, completed.stderr)
        )
        # Not `splitlines`: names may contain other ends of line.
        lines = text.removesuffix("\n").split("\n")[:MAX_LINES]
        return cls(completed.returncode, tuple(lines), sanitize.lines(errors, 20))
