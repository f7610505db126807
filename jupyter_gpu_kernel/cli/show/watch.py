"""`--watch`: a list of the hub is shown again and again, until Ctrl-C.

On a terminal the list fills the alternate screen, and the terminal is as before at the end. Where the output is no
terminal, each list is printed below the last one; with `--json` as one line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
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
_ALTERNATE_SCREEN, _FORMER_SCREEN = "\x1b[?1049h\x1b[?25l", f"{_WRAP_LINES}\x1b[?25h\x1b[?1049l"
_CLEAR, _BOLD, _PLAIN = "\x1b[H\x1b[2J", "\x1b[1m", "\x1b[m"
Show = Callable[[Listing, str, Sequence[GpuKernelError]], None]
"""Shows a list, with the time of the answer, and why it could not be renewed."""


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
        first = self.listing(specs, self.ask_hub)
        if self.args.watch is None:
            return self.print_listing(first)
        take, interval = partial(self.listing, specs, ask_repeatedly), self.args.watch
        if self.args.json or not _has_screen():
            _repeat(take, first, interval, partial(_print, as_json=self.args.json))
            return 0
        heading = f"jupyter gpu-kernel {self.verb}   {{}}   every {interval:g} s, Ctrl-C ends"
        with _alternate_screen():
            _repeat(take, first, interval, partial(_draw, heading))
        return 0


def ask_repeatedly(op: str, **arguments: Any) -> Any:
    """Call the hub as commands do that ask again and again: nobody is asked to sign in, and no node is waited for long.

    Returns the operation's result, or raises the GpuKernelError that it raised. A hub that has ended is started again.
    """
    from ...client import HubClient

    with HubClient() as client:
        return client.call(op, **{"patience": _PATIENCE, **arguments})


def _repeat(take: Callable[[], Listing], listing: Listing, interval: float, show: Show) -> None:
    """Show one list after the other, until Ctrl-C."""
    answered, problems = _clock(), list[GpuKernelError]()
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            show(listing, answered, problems)
            time.sleep(interval)
            try:
                listing, answered, problems = take(), _clock(), []
            except GpuKernelError as error:
                problems = [error]


def _print(listing: Listing, answered: str, problems: Sequence[GpuKernelError], *, as_json: bool) -> None:
    """Print the list; without a new one the reason."""
    if problems:
        print_errors(problems)
    elif as_json:
        print(json.dumps(listing.rows))
    else:
        print(f"{answered}\n{listing.text or listing.nothing}\n")
        print_errors(listing.errors)
    sys.stdout.flush()


def _clock() -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S")


# ---------------------------------------------------------------------------------- on the screen


def _has_screen() -> bool:
    """Whether the output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def _draw(heading: str, listing: Listing, answered: str, problems: Sequence[GpuKernelError]) -> None:
    """Draw the list, and below it the errors."""
    # Not shutil's: COLUMNS and LINES may be outdated.
    columns, rows = os.get_terminal_size(sys.stdout.fileno())
    listed = (listing.text or listing.nothing).split("\n")
    errors = [str(error) for error in [*listing.errors, *problems]]
    title, *lines = fit(heading.format(answered), listed, errors, columns, rows)
    text = "\n".join([f"{_BOLD}{title}{_PLAIN}", *lines])
    print(f"{_CUT_LINES}{_CLEAR}{text}{_WRAP_LINES}", end="", flush=True)


@contextlib.contextmanager
def _alternate_screen() -> Iterator[None]:
    """Show another screen, and at the end, also at SIGTERM, the terminal as it was before."""
    if sys.platform == "win32":
        os.system("")  # after a command the console interprets escape sequences

    def end(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        print(_ALTERNATE_SCREEN, end="", flush=True)
        yield
    finally:
        print(_FORMER_SCREEN, end="", flush=True)
        signal.signal(signal.SIGTERM, before)


def fit(title: str, lines: Sequence[str], errors: Sequence[str], columns: int, rows: int) -> list[str]:
    """The lines of a screen of this size, each cut at its width: the title, the list, and the errors, which may take a
    third of the screen."""
    causes = [line for error in errors for line in printable(error).splitlines()]
    wrapped = [part for line in causes for part in textwrap.wrap(line, max(1, columns - 1))]
    below = _cut(["", *wrapped], rows // 3) if wrapped and rows > 2 else []
    above = [title, "", *lines]
    return [line[:columns] for line in [*_cut(above, rows - len(below)), *below]]


def _cut(lines: Sequence[str], most: int) -> list[str]:
    """At most so many lines; the last one says how many more there are."""
    if len(lines) <= most:
        return list(lines)
    most = max(1, most)
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more"]
