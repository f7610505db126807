"""The Jupyter application that runs one of the verbs in verbs.py and add/."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Sequence
from typing import Any

from jupyter_core.application import JupyterApp

from .. import __version__
from . import verbs
from .add.command import Add
from .verb import Verb

_ALL: tuple[type[Verb], ...] = (Add, *verbs.ALL)
VERBS: dict[str, type[Verb]] = {one.verb: one for one in _ALL}
_OPTIONS = {"version", "V", *JupyterApp.flags, *JupyterApp.aliases}
"""Options without a verb."""
_HINT = "“jupyter gpu-kernel --help” lists the verbs."


class GpuKernelApp(JupyterApp):
    """The application. argparse parses the arguments of a verb, and traitlets those that are for Jupyter."""

    name = "jupyter-gpu-kernel"
    version = __version__
    description = "Jupyter kernels on a GPU machine behind any number of SSH hops."
    verb: Verb | None = None

    def parse_command_line(self, argv: Any = None) -> None:
        """Parse the arguments. A first argument that is neither a verb nor an option is bad usage."""
        argv = list(sys.argv[1:] if argv is None else argv)
        if not argv or argv[0] in ("-h", "--help", "--help-all", "help"):
            if argv[1:2] and argv[1] in VERBS:
                return self.parse_command_line([argv[1], "--help"])
            print(usage(), file=sys.stdout if argv else sys.stderr)
            self.exit(0 if argv else 2)
        if argv[0] in VERBS:
            self.verb = VERBS[argv[0]]()
            argv = self.verb.parse(argv[1:])
        elif fault := _fault(argv[0]):
            sys.stderr.write(f"{fault}\n")
            self.exit(2)
        super().parse_command_line(argv)

    def _find_subcommand(self, name: str) -> str:
        return ""  # verbs are only our own ones


def _fault(argument: str) -> str:
    """Why this cannot be the first argument, as it is no verb; "" if it is an option of Jupyter applications."""
    if not argument.startswith("-"):
        near = difflib.get_close_matches(argument, VERBS, 1)
        return f"There is no verb {argument!r}. {f'Did you mean {near[0]}?' if near else _HINT}"
    known = "." in argument or argument.strip("-").partition("=")[0] in _OPTIONS
    return "" if known else f"There is no option {argument}. {_HINT}"


def usage() -> str:
    """The text that --help prints."""
    lines = [f"  {name:10}{verb.summary}" for name, verb in VERBS.items()]
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
    """Run one verb. Return the exit status; 2 if there were only options."""
    app = GpuKernelApp.instance()
    app.initialize(list(argv))
    return 2 if app.verb is None else app.verb.run()
