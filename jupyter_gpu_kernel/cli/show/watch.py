"""`--watch`: a list of the hub is shown again and again, until Ctrl-C.

A terminal shows the newest list only. Where the output is no terminal, each list is printed below the last one; with
`--json` as one line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from ...errors import GpuKernelError
from ...wire.texts import printable
from ..arguments import span
from ..verb import Ask, Listing, Verb, print_errors

_PATIENCE = 4.0
"""Seconds for which the hub waits for each node; then it returns the node's last reply, or that it is late."""
# Escape sequences. A terminal knows how wide each character is, so it cuts lines itself while they are drawn.
_CUT_LINES, _WRAP_LINES = "\x1b[?7l", "\x1b[?7h"
_HOME, _ERASE_LINE, _ERASE_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


class WatchedVerb(Verb):
    """A verb that prints a list, with --watch again and again."""

    interval = 2.0
    """Seconds, if --watch does not say."""

    def add_watch_option(self, parser: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
        """Declare --watch."""
        parser.add_argument(
            "--watch", metavar="TIME", nargs="?", type=partial(span, least=1, most=86400), const=self.interval,
            help="show the list again and again until Ctrl-C, this long after each answer (default: "
            f"{self.interval:g}s); with --json, or if the output is not a terminal, one list after the other",
        )  # fmt: skip

    def listing(self, specs: list[dict[str, Any]], ask: Ask) -> Listing:
        """Make the list; `ask` asks the hub."""
        raise NotImplementedError

    def show(self, specs: list[dict[str, Any]]) -> int:
        """Show the list once, or with --watch again and again. Return the exit status."""
        listing = self.listing(specs, self.ask_hub)
        if self.args.watch is None:
            return self.print_listing(listing)
        title, problems = self._title, list[GpuKernelError]()
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                self._show(listing, title, problems)
                time.sleep(self.args.watch)
                try:
                    listing, title, problems = self.listing(specs, ask_repeatedly), self._title, []
                except GpuKernelError as error:  # the list stays
                    problems = [error]
        return 0

    @property
    def _title(self) -> str:
        return f"{time.strftime('%Y-%m-%d %H:%M:%S')}   every {self.args.watch:g} s until Ctrl-C"

    def _show(self, listing: Listing, title: str, problems: list[GpuKernelError]) -> None:
        if sys.stdout.isatty() and not self.args.json:
            if sys.platform == "win32":
                os.system("")  # after a command the console interprets escape sequences
            columns, rows = os.get_terminal_size(sys.stdout.fileno())  # COLUMNS and LINES may be outdated
            lines = (f"{line}{_ERASE_LINE}\n" for line in fit(title, listing, problems, columns, rows - 1))
            print(f"{_CUT_LINES}{_HOME}{''.join(lines)}{_ERASE_BELOW}{_WRAP_LINES}", end="", flush=True)
        elif problems:
            print_errors(problems)
        elif self.args.json:
            print(json.dumps(listing.rows), flush=True)
        else:
            print(f"{title}\n{listing.text or listing.nothing}\n", flush=True)
            print_errors(listing.errors)


def ask_repeatedly(op: str, **arguments: Any) -> Any:
    """Call the hub as commands do that ask again and again: nobody is asked to sign in, and no node is waited for long.

    Returns the operation's result, or raises the GpuKernelError that it raised. A hub that has ended is started again.
    """
    from ...client import HubClient

    with HubClient() as client:
        return client.call(op, **{"patience": _PATIENCE, **arguments})


def fit(
    title: str, listing: Listing, problems: Sequence[GpuKernelError], columns: int, rows: int
) -> list[str]:
    """The lines of a screen of this size: the title, the errors, and the list as far as it fits."""
    causes = [line for error in [*listing.errors, *problems] for line in printable(str(error)).splitlines()]
    errors = [part for line in causes for part in textwrap.wrap(line, max(1, columns - 1))]
    lines = [title, *errors, "", *(listing.text or listing.nothing).split("\n")]
    return lines if len(lines) <= rows else [*lines[: rows - 1], f"… {len(lines) - rows + 1} more"]
