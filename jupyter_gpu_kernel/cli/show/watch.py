"""`--watch`: a list of the hub is shown again and again, until Ctrl-C.

It fills the terminal's screen, which is as before at the end. Where the output is no terminal, each list is printed
below the last one; with `--json` as one line.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ...errors import GpuKernelError
from ...hub.sanitize import MAX_LINE
from ...wire.texts import one_line, printable
from ..verb import Ask, Listing, Verb, print_error
from .gpu_hours import span
from .tables import Shown

if TYPE_CHECKING:
    from prompt_toolkit.application import Application
    from prompt_toolkit.formatted_text import StyleAndTextTuples

SHORTEST, LONGEST = 1.0, 86400.0
"""Seconds between an answer and the next question."""
_PATIENCE = 4.0
"""Seconds for which the hub waits for each node; then it returns the node's last reply, or that it is late."""
_SLOW = 2.0
"""Seconds after which the screen shows that, and why, there is no answer yet."""
_TERMINATED = 128 + signal.SIGTERM


class WatchedVerb(Verb):
    """A verb that prints a list, with --watch again and again."""

    interval = 2.0
    """Seconds, if --watch does not say."""

    def add_watch_option(self, parser: argparse.ArgumentParser | argparse._MutuallyExclusiveGroup) -> None:
        """Declare --watch."""
        parser.add_argument(
            "--watch", metavar="TIME", nargs="?", type=seconds, const=self.interval,
            help="show the list again and again until q or Ctrl-C, this long after each answer (default: "
            f"{self.interval:g}s); with --json, or if the output is not a terminal, one list after the other",
        )  # fmt: skip

    def listing(self, specs: list[dict[str, Any]], ask: Ask, shown: Shown | None = None) -> Listing:
        """Make the list; `ask` asks the hub. `shown`: rows that have been printed."""
        raise NotImplementedError

    def show(self, specs: list[dict[str, Any]], table: Callable[..., str]) -> int:
        """Show the list once, each node's rows in a `table` when they come, or with --watch. Return the exit status."""
        if self.args.watch is None:
            return self._show_once(specs, table)
        listing = partial(self.listing, specs)
        first = listing(self.ask_hub)
        title = f"jupyter gpu-kernel {self.verb}"
        hub = HubCalls()
        if self.args.json or not _has_screen():
            return _print_all(lambda: listing(hub), first, self.args.watch, self.args.json)
        return Screen(title, listing, hub, first, self.args.watch).run()

    def _show_once(self, specs: list[dict[str, Any]], table: Callable[..., str]) -> int:
        if self.args.json:
            return self.print_listing(self.listing(specs, self.ask_hub))
        shown = Shown()

        def show_rows(rows: list[dict[str, Any]]) -> None:
            if text := table(rows, shown):
                print(text, flush=True)

        return self.print_listing(self.listing(specs, partial(self.ask_hub, on_rows=show_rows), shown))


def seconds(text: str) -> float:
    """The type of --watch."""
    limits = f"from {SHORTEST:g} to {LONGEST:g}"
    try:
        value = span(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}; names come before --watch") from None
    if not SHORTEST <= value <= LONGEST:
        raise argparse.ArgumentTypeError(f"{text!a} is not a number of seconds {limits}")
    return value


class HubCalls:
    """Calls to the hub, from one thread, in which nobody is asked. A hub that ended is started again."""

    def __init__(self) -> None:
        self.step = ""
        """What the hub does for the present call."""

    def __call__(self, op: str, **arguments: Any) -> Any:
        """Return the operation's result, or raise the GpuKernelError that it raised."""
        from ...client import HubClient

        self.step = ""
        with HubClient() as client:
            return client.call(op, progress=self._progress, **{"patience": _PATIENCE, **arguments})

    def _progress(self, event: dict[str, Any]) -> None:
        self.step = one_line(
            f"{event.get('hop') or ''}: {event.get('step', '')}".removeprefix(": "), MAX_LINE
        )


# ---------------------------------------------------------------------------------- without a screen


def _print_all(take: Callable[[], Listing], first: Listing, interval: float, as_json: bool) -> int:
    """Print one list after the other, until Ctrl-C. An interval without an answer has an error, and no list."""
    listing: Listing | None = first
    try:
        while True:
            if listing is not None:
                _print(listing, as_json)
            time.sleep(interval)
            listing = None
            try:
                listing = take()
            except GpuKernelError as error:
                print_error(error)
    except KeyboardInterrupt:
        return 0


def _print(listing: Listing, as_json: bool) -> None:
    if as_json:
        print(json.dumps(listing.rows))
    else:
        print(f"{_clock(time.time())}\n{listing.text or listing.nothing}\n")
        for error in listing.errors:
            print_error(error)
    sys.stdout.flush()


def _clock(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(moment))


# ---------------------------------------------------------------------------------- on the screen


def _has_screen() -> bool:
    """Whether there is a terminal that can be drawn on, and whose keys can be read."""
    from prompt_toolkit.utils import is_dumb_terminal

    return bool(sys.stdin and sys.stdin.isatty() and sys.stdout.isatty() and not is_dumb_terminal())


class Screen:
    """Shows the list on the terminal's alternate screen, while a thread asks the hub for the next one."""

    def __init__(
        self, title: str, listing: Callable[[Ask], Listing], hub: HubCalls, first: Listing, interval: float
    ) -> None:
        """`first`: what is shown until the hub, asked after `interval` seconds, has answered."""
        self._title = title
        self._take = listing
        self._hub = hub
        self._interval = interval
        self._listing = first
        self._problem: GpuKernelError | None = None
        self._answered_at = time.time()
        self._asked_at: float | None = None
        self._ended = threading.Event()
        self._app = self._application()

    def run(self) -> int:
        """Show it until the user ends it. Return the exit status."""
        threading.Thread(target=self._ask, name="watch", daemon=True).start()
        try:
            with _ended_by_sigterm(self._app):
                return self._app.run()
        except EOFError:  # the terminal is gone
            return 0
        finally:
            self._ended.set()

    def _ask(self) -> None:
        while not self._ended.wait(self._interval):
            self._asked_at = time.monotonic()
            try:
                self._listing, self._problem = self._take(self._hub), None
                self._answered_at = time.time()
            except GpuKernelError as error:
                self._problem = error
            except Exception as error:  # a fault of this program, which `run` raises
                return self._fail(error)
            self._asked_at = None
            self._app.invalidate()

    def _fail(self, error: Exception) -> None:
        if self._app.loop is not None:
            self._app.loop.call_soon_threadsafe(lambda: self._app.exit(exception=error))

    def _application(self) -> Application[int]:
        from prompt_toolkit.application import Application
        from prompt_toolkit.key_binding import KeyBindings
        from prompt_toolkit.layout import FormattedTextControl, Layout, Window

        keys = KeyBindings()
        for key in ("q", "c-c", "<sigint>"):
            keys.add(key)(lambda event: _exit(event.app, 0))
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        window = Window(FormattedTextControl(self._text), always_hide_cursor=True)
        return Application(Layout(window), key_bindings=keys, full_screen=True, refresh_interval=1.0)

    def _text(self) -> StyleAndTextTuples:
        size = self._app.output.get_size()
        errors = self._listing.errors + ([self._problem] if self._problem is not None else [])
        listed = (self._listing.text or self._listing.nothing).split("\n")
        title, *lines = fit(self._heading(), listed, list(map(str, errors)), size.columns, size.rows)
        return [("bold", title), ("", "".join("\n" + line for line in lines))]

    def _heading(self) -> str:
        heading = f"{self._title}   {_clock(self._answered_at)}   every {self._interval:g} s, q ends"
        asked_at = self._asked_at
        waited = time.monotonic() - asked_at if asked_at is not None else 0.0
        return heading if waited < _SLOW else f"{heading}   no answer for {waited:.0f} s: {self._hub.step}"


def fit(title: str, lines: Sequence[str], errors: Sequence[str], columns: int, rows: int) -> list[str]:
    """The lines of a screen of this size: the title, the list, and the errors, which may take a third of it. The window
    cuts lines that are too long."""
    said = [line for error in errors for line in printable(error).splitlines()]
    wrapped = [part for line in said for part in textwrap.wrap(line, max(1, columns - 1))]
    below = _cut(["", *wrapped], rows // 3) if wrapped and rows > 2 else []
    above = [title, "", *lines]
    return [*_cut(above, rows - len(below)), *below]


def _cut(lines: Sequence[str], most: int) -> list[str]:
    """At most so many lines; the last one says how many more there are."""
    if len(lines) <= most:
        return list(lines)
    most = max(1, most)
    return [*lines[: most - 1], f"… {len(lines) - most + 1} more"]


def _exit(app: Application[int], status: int) -> None:
    if app.is_running and app.future is not None and not app.future.done():  # else it ends already
        app.exit(result=status)


@contextmanager
def _ended_by_sigterm(app: Application[int]) -> Iterator[None]:
    """Leave the screen at SIGTERM, so that the terminal is as before."""

    def on_signal(*_: object) -> None:
        if app.loop is not None:
            app.loop.call_soon_threadsafe(_exit, app, _TERMINATED)

    before = signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
