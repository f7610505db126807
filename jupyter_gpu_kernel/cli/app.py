"""The Jupyter application that runs one of the verbs in verbs.py and add.py."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import Any

from jupyter_core.application import JupyterApp

from .. import __version__
from . import verbs
from .add.add import Add
from .verb import Verb

VERBS: tuple[type[Verb], ...] = (Add, *verbs.ALL)


_OPTIONS = {"version", "V", *JupyterApp.flags, *JupyterApp.aliases}
"""Options without a verb."""


class GpuKernelApp(JupyterApp):
    """The application. It passes its arguments to a verb."""

    name = "jupyter-gpu-kernel"
    version = __version__
    description = "Jupyter kernels on a GPU machine behind any number of SSH hops."
    subcommands = {verb.verb: (verb, verb.summary) for verb in VERBS}  # noqa: RUF012

    def parse_command_line(self, argv: Any = None) -> None:
        """Parse the arguments as traitlets does. A first argument that is not a verb is bad usage."""
        argv = list(sys.argv[1:] if argv is None else argv)
        if not argv or argv[0] in ("-h", "--help", "--help-all", "help"):
            if len(argv) == 2 and argv[1] in self.subcommands:
                return super().parse_command_line([argv[1], "--help"])
            print(usage(), file=sys.stdout if argv else sys.stderr)
            self.exit(0 if argv else 2)
        if not argv[0].startswith("-") and argv[0] not in self.subcommands:
            near = difflib.get_close_matches(argv[0], self.subcommands, 1)
            hint = f"Did you mean {near[0]}?" if near else "“jupyter gpu-kernel --help” lists the verbs."
            sys.stderr.write(f"There is no verb {argv[0]!r}. {hint}\n")
            self.exit(2)
        if (
            argv[0].startswith("-")
            and "." not in argv[0]
            and argv[0].strip("-").partition("=")[0] not in _OPTIONS
        ):
            sys.stderr.write(f"There is no option {argv[0]}. “jupyter gpu-kernel --help” lists the verbs.\n")
            self.exit(2)
        return super().parse_command_line(argv)

    def _find_subcommand(self, name: str) -> str:
        return ""  # subcommands are only our own verbs


def usage() -> str:
    """The text that --help prints."""
    lines = [f"  {verb.verb:10}{verb.summary}" for verb in VERBS]
    return "\n".join(
        [
            "usage: jupyter gpu-kernel VERB …",
            "",
            GpuKernelApp.description,
            "",
            *lines,
            "",
            "“jupyter gpu-kernel VERB --help” describes a verb's arguments; most verbs have --json. To begin:",
            "  jupyter gpu-kernel add alice@gpu2 -J alice@login:7092",
        ]
    )


def run(argv: Sequence[str]) -> int:
    """Run one verb. Return the exit status."""
    app = GpuKernelApp.instance()
    app.initialize(list(argv))
    if not isinstance(app.subapp, Verb):
        return 2  # there were only options
    app.subapp.start()
    return app.subapp.status
