"""The verbs for running kernels: `ps`, `attach`, `priority` and `logs`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...wire import MAX_PRIORITY
from ...wire.texts import as_typed, one_line, printable
from ..show import tables
from ..show.watch import WatchedVerb
from ..times import MONTH, span
from ..verb import Ask, Listing, Verb, add_kernel, kernel_id, print_json, whole_id
from .wait import CellWait, exit_status


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
            "--timeout", metavar="TIME", type=partial(span, least=0.1, most=MONTH),
            help="with --wait: how long to wait at most (90s, 30m, 8h); after that the exit status is 124",
        )  # fmt: skip

    def run(self) -> int:
        if self.args.wait:
            specs = self.specs_for(self.args.wait[0])
            first = self.ask_hub("ps", specs=specs)
            kernels = [whole_id(text, first) for text in self.args.wait]
            outcomes = CellWait(kernels, specs).run(first, self.args.timeout)
            rows = [one._asdict() for one in outcomes]
            self.print_result(rows, "\n".join(one.text for one in outcomes))
            return exit_status(outcomes)
        if self.args.timeout is not None:
            sys.stderr.write("--timeout needs --wait ID.\n")
            return 2
        specs = self.specs()
        return self.show(specs) if specs else self.print_listing(Listing([], ""))

    def listing(self, specs: list[dict[str, Any]], ask: Ask) -> Listing:
        """The kernels."""
        return Listing.of(ask("ps", specs=specs), tables.kernels, "No kernel is running.")


class Attach(Verb):
    verb = "attach"
    summary = "Connect a new local front end to a running kernel, until Ctrl-C."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_kernel(parser)

    def run(self) -> int:
        from ...launcher import attach

        sys.stderr.write(f"Looking for kernel {printable(self.args.kernel)} …\n")
        specs = self.specs()
        self.args.kernel = self.kernel_of(self.args.kernel, specs)
        return attach(self.args.kernel, specs, self._print_connection)

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
        add_kernel(parser)
        parser.add_argument(
            "priority",
            metavar="N",
            type=_priority,
            help=f"from -{MAX_PRIORITY} to {MAX_PRIORITY}, the highest first; kernels begin with 0, or that of “add”",
        )

    def run(self) -> int:
        specs, priority = self.specs_for(self.args.kernel), self.args.priority
        kernel = self.kernel_of(self.args.kernel, specs)
        answer = self.ask_hub("priority", kernel=kernel, priority=priority, specs=specs)
        place = answer["place"]
        where = (
            f"is {tables.ordinal(place)} in the queue"
            if place
            else "is not in the queue: this applies when it is"
        )
        text = printable(f"Kernel {kernel} on {answer['node']} has priority {priority}, and {where}.")
        self.print_result({"id": kernel, "priority": priority, **answer}, text)
        return 0


class Logs(Verb):
    verb = "logs"
    summary = "Show the log of a kernel: start, drops, signals with their sender, waits, and why it ended."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_kernel(parser)

    def run(self) -> int:
        specs = self.specs_for(self.args.kernel)
        kernel = self.kernel_of(self.args.kernel, specs, "stories")
        rows = self.ask_hub("logs", kernel=kernel, specs=specs)
        return self.print_listing(
            Listing.of(rows, partial(_log, kernel), f"There is no log of kernel {kernel}.")
        )


def _log(kernel: str, rows: Sequence[dict[str, Any]]) -> str:
    """The log, below the names of the nodes that report the kernel."""
    nodes = dict.fromkeys(str(row.get("hop")) for row in rows)
    return f"Kernel {kernel}, as {one_line(' and '.join(nodes))} tells it:\n{tables.story(rows)}"


def _priority(text: str) -> int:
    """The type of an argument that is a priority."""
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text) and abs(int(text)) <= MAX_PRIORITY:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!a} is not a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")
