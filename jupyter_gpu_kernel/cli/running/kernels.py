"""The verbs for running kernels: `ps`, `attach`, `priority`, `logs` and `stop`."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ...errors import GpuKernelError
from ...wire import MAX_PRIORITY
from ...wire.texts import as_typed, one_line, printable
from ..arguments import add_kernel, kernel_id
from ..show import tables
from ..show.watch import WatchedVerb
from ..verb import Ask, Listing, Verb, errors_of, print_errors, print_json

_NOTHING_GIVEN = "Give the IDs of kernels, as “jupyter gpu-kernel ps” shows them, or --all, or --leftovers.\n"
_EXCLUSIVE = "The IDs of kernels, --all and --leftovers exclude each other. Give only one of them.\n"


class Ps(WatchedVerb):
    verb = "ps"
    summary = "List your remote kernels on all nodes."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        self.add_watch_option(parser)

    def run(self) -> int:
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


class Stop(Verb):
    verb = "stop"
    summary = "End kernels and release their GPUs."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "kernels",
            metavar="ID",
            nargs="*",
            type=kernel_id,
            help="kernels' IDs, as “ps” shows them, or their beginnings",
        )
        parser.add_argument("--all", action="store_true", help="end all kernels on all nodes")
        parser.add_argument(
            "--kill",
            action="store_true",
            help="of a kernel in a Slurm job: kill all processes of that job at once (scancel --signal=KILL)",
        )
        parser.add_argument(
            "--leftovers",
            action="store_true",
            help="end your processes of kernels that no longer exist, which may hold GPU memory, and remove the code "
            "that was pinned for such kernels where nothing in it was changed",
        )

    def run(self) -> int:
        given = [bool(self.args.kernels), self.args.all, self.args.leftovers].count(True)
        if given != 1:
            sys.stderr.write(_EXCLUSIVE if given else _NOTHING_GIVEN)
            return 2
        specs = self.specs_for(self.args.kernels[0]) if self.args.kernels else self.specs()
        if self.args.leftovers:
            return self._stop_leftovers(specs)
        kernels, errors = self._chosen(specs)
        stopped = []
        for kernel in kernels:
            try:
                lines, kill = not self.args.json, self.args.kill
                self.ask_hub("stop", lines=lines, kernel=kernel, specs=specs, kill=kill)
                stopped.append(kernel)
            except GpuKernelError as error:  # the other kernels are ended all the same
                errors.append(error)
        if self.args.all:
            self.ask_hub("hang_up")  # leave no process on any machine
        text = f"Stopped: {', '.join(stopped) or 'none'}" if stopped or not errors else ""
        self.print_result({"stopped": stopped, "errors": [error.to_json() for error in errors]}, text)
        return print_errors(errors)

    def _stop_leftovers(self, specs: list[dict[str, Any]]) -> int:
        """List processes and pinned code, then end and remove exactly these."""
        rows = self.ask_hub("leftovers", lines=not self.args.json, specs=specs) if specs else []
        found = [row for row in rows if "error" not in row]
        processes = [row for row in found if "pid" in row]
        if processes and not self.args.json:
            print(tables.leftovers(processes))
        ended = self.ask_hub("end_leftovers", specs=specs, leftovers=found) if found else []
        errors = errors_of(rows + ended)
        code = [row for row in ended if "folder" in row]
        ended = [row for row in ended if "pid" in row]
        lines = [f"Ended: {', '.join(str(row['pid']) for row in ended) or 'none'}"]
        lines += [tables.pinned_code(code)] if code else []
        result = {"ended": ended, "code": code, "errors": [error.to_json() for error in errors]}
        self.print_result(result, "\n".join(lines))
        return print_errors(errors)

    def _chosen(self, specs: list[dict[str, Any]]) -> tuple[list[str], list[GpuKernelError]]:
        """The ids of the kernels to stop, and the errors of nodes that could not be asked."""
        if self.args.kernels or not specs:
            return list(dict.fromkeys(self.kernel_of(text, specs) for text in self.args.kernels)), []
        rows = self.ask_hub("ps", specs=specs)
        return list(dict.fromkeys(row["id"] for row in rows if "error" not in row)), errors_of(rows)
