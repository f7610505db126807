"""What every verb is: words, exit status, how it asks the hub and shows what it heard. It knows no verb."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_core.application import JupyterApp

from .. import __version__, kernelspecs
from ..errors import GpuKernelError, SettingsError
from ..kernelspecs import HOW_TO_ADD
from . import show

_TRAIT = re.compile(
    r"--(([A-Z]\w*\.)\w[\w.]*|log-level|config)=.*|--debug"
)  # traitlets' words, not the verb's


_KERNEL = re.compile(r"[A-Za-z0-9_-]{1,64}")

NO_KERNELSPEC = f"There is no remote GPU kernelspec yet. {HOW_TO_ADD}"


class Verb(JupyterApp):
    """One verb. argparse parses its words, as traitlets cannot, but for `--Class.trait=value`."""

    name = "jupyter-gpu-kernel"
    version = __version__
    verb = ""
    summary = ""
    words: argparse.Namespace
    status = 0

    def declare(self, parser: argparse.ArgumentParser) -> None:
        """Add the verb's words."""

    def run(self) -> int:
        """Do it; the exit status."""
        raise NotImplementedError

    def parse_command_line(self, argv: Any = None) -> None:
        """Split the words between argparse and traitlets."""
        argv = list(argv or [])
        parser = argparse.ArgumentParser(
            f"jupyter gpu-kernel {self.verb}", description=self.summary, allow_abbrev=False
        )
        self.declare(parser)
        self.words = parser.parse_args([word for word in argv if not _TRAIT.fullmatch(word)])
        super().parse_command_line([word for word in argv if _TRAIT.fullmatch(word)])

    def start(self) -> None:
        """Called by the application."""
        self.status = self.run()

    def _find_subcommand(self, name: str) -> str:
        return ""  # a verb's first word is never a program

    # --- what several verbs do

    def ask_hub(self, op: str, *, lines: bool = False, **arguments: Any) -> Any:
        """Call the hub with progress and questions shown here."""
        from ..client import HubClient

        progress = show.Progress(lines)
        asker = show.TerminalAsker(progress) if sys.stdin is not None and sys.stdin.isatty() else None
        with show.terminal_kept(), HubClient() as client:
            try:
                return client.call(op, progress=progress, ask=asker, **arguments)
            finally:
                progress.clear()

    def ways_to(self, kernel: str) -> list[dict[str, Any]]:
        """The kernelspecs, one of which should lead to where that kernel runs. SettingsError if there is none."""
        if not kernelspecs.find_all(lambda error: None):
            raise SettingsError(
                f"there is no kernel {kernel}, as no kernelspec leads to a remote machine", remedy=HOW_TO_ADD
            )
        return self.specs()

    def show_list(
        self, rows: list[dict[str, Any]], text: Callable[[Sequence[dict[str, Any]]], str], nothing: str = ""
    ) -> int:
        """Print a list, or `nothing` where there is none; a node's error goes to stderr and makes the status 1."""
        good = [row for row in rows if "error" not in row]
        if self.words.json:
            print_json(rows)
        elif good:
            print(text(good))
        elif not rows and nothing:
            sys.stderr.write(f"{nothing}\n")
        bad = [GpuKernelError.from_json(row["error"]) for row in rows if "error" in row]
        for error in bad:
            complain(error)
        return 1 if bad else 0

    def specs(self, names: Sequence[str] = ()) -> list[dict[str, Any]]:
        """The named kernelspecs, or all, as the hub takes them."""
        found = [kernelspecs.find(name) for name in names] or kernelspecs.find_all(complain)
        if not found and not self.words.json:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        return [{"name": spec.name, "settings": spec.settings} for spec in found]


def complain(error: GpuKernelError) -> None:
    """One error on stderr, without what control characters could do there."""
    sys.stderr.write(show.plain(str(error)) + "\n")


def print_json(value: Any) -> None:
    """For programs, on stdout."""
    print(json.dumps(value, indent=2))


def with_json(parser: argparse.ArgumentParser) -> None:
    """The word that every showing verb has."""
    parser.add_argument("--json", action="store_true", help="for programs")


def kernel_id(text: str) -> str:
    """A word that says which kernel; argparse makes bad usage of anything else."""
    if not _KERNEL.fullmatch(text):
        raise argparse.ArgumentTypeError(f"{text!a} is not a kernel's ID: “jupyter gpu-kernel ps” shows them")
    return text
