"""The verbs for running kernels: `ps`, `attach`, `priority` and `logs`."""

from __future__ import annotations

import argparse
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from ..wire import MAX_PRIORITY
from ..wire.texts import as_typed
from . import tables
from .terminal import printable
from .verb import Ask, Listing, Verb, add_json_option, kernel_id, print_json
from .wait import limit, wait
from .watch import WatchedVerb


class Ps(WatchedVerb):
    verb = "ps"
    summary = "List your remote kernels on all nodes, or wait until their cells have ended."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        either = parser.add_mutually_exclusive_group()
        self.add_watch_option(either)
        either.add_argument(
            "--wait", metavar="ID", nargs="+", type=kernel_id,
            help="wait until all cells of these kernels have ended, those that still wait included, and print how the "
            "last one ended; the exit status is 0 if it ended well, 1 if not or if the kernel has ended",
        )  # fmt: skip
        parser.add_argument(
            "--timeout", metavar="TIME", type=limit,
            help="with --wait: how long to wait at most (90s, 30m, 8h); after that the exit status is 124",
        )  # fmt: skip
        add_json_option(parser)

    def run(self) -> int:
        if self.args.wait:
            specs = self.specs_for(self.args.wait[0])
            first = self.ask_hub("ps", specs=specs)
            return wait(self.args.wait, specs, first, timeout=self.args.timeout, as_json=self.args.json)
        if self.args.timeout is not None:
            sys.stderr.write("--timeout needs --wait ID.\n")
            return 2
        specs = self.specs()
        return self.show(partial(self._listing, specs)) if specs else self.print_listing(Listing([], ""))

    def _listing(self, specs: list[dict[str, Any]], ask: Ask) -> Listing:
        return Listing.of(ask("ps", specs=specs), tables.kernels, "No kernel is running.")


class Attach(Verb):
    verb = "attach"
    summary = "Connect a new local front end to a running kernel, until Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel", metavar="ID", type=kernel_id, help="a kernel's ID, as “ps” shows it")
        add_json_option(parser)

    def run(self) -> int:
        from ..launcher import attach

        sys.stderr.write(f"Looking for kernel {printable(self.args.kernel)} …\n")
        return attach(self.args.kernel, self.specs(), self._print_connection)

    def _print_connection(self, path: Path, node: str) -> None:
        if self.args.json:
            print_json({"id": self.args.kernel, "node": node, "connection_file": str(path)})
        else:
            print(f"Kernel {self.args.kernel} on {printable(node)}: {path}")
            print("  " + as_typed(["jupyter", "console", "--existing", str(path)]))
            print("Ctrl-C disconnects this front end; the kernel keeps running.")
        sys.stdout.flush()


class Priority(Verb):
    verb = "priority"
    summary = "Change which of your kernels that wait for GPUs get them first."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel", metavar="ID", type=kernel_id, help="a kernel's ID, as “ps” shows it")
        parser.add_argument(
            "priority",
            metavar="N",
            type=_priority,
            help=f"from -{MAX_PRIORITY} to {MAX_PRIORITY}, the highest first; kernels begin with 0, or that of “add”",
        )
        add_json_option(parser)

    def run(self) -> int:
        kernel, priority = self.args.kernel, self.args.priority
        answer = self.ask_hub("priority", kernel=kernel, priority=priority, specs=self.specs_for(kernel))
        if self.args.json:
            print_json({"id": kernel, "priority": priority, **answer})
            return 0
        place = answer["place"]
        where = (
            f"is {tables.ordinal(place)} in the queue"
            if place
            else "is not in the queue: this applies when it is"
        )
        print(printable(f"Kernel {kernel} on {answer['node']} has priority {priority}, and {where}."))
        return 0


class Logs(Verb):
    verb = "logs"
    summary = "Show the log of a kernel: start, drops, signals with their sender, waits, and why it ended."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel", metavar="ID", type=kernel_id, help="a kernel's ID, as “ps” shows it")
        add_json_option(parser)

    def run(self) -> int:
        kernel = self.args.kernel
        rows = self.ask_hub("logs", kernel=kernel, specs=self.specs_for(kernel))
        return self.print_listing(Listing.of(rows, tables.story, f"There is no log of kernel {kernel}."))


def _priority(text: str) -> int:
    """The type of an argument that is a priority."""
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text) and abs(int(text)) <= MAX_PRIORITY:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!a} is not a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
