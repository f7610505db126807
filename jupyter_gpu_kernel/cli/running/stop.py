"""The verb `stop`: ends kernels, and what ended kernels have left behind."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ...errors import GpuKernelError
from ..show import tables
from ..verb import Verb, errors_of, kernel_id, print_errors

_NOTHING_GIVEN = "Give the IDs of kernels, as “jupyter gpu-kernel ps” shows them, or --all, or --leftovers.\n"
_EXCLUSIVE = "The IDs of kernels, --all and --leftovers exclude each other. Give only one of them.\n"


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
