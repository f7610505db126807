"""All verbs except `add`. Each declares arguments, calls the hub or reads the kernelspecs, and prints the result."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import kernelspecs
from ..errors import GpuKernelError, SettingsError
from ..saved_answers import forget
from ..wire import MAX_PRIORITY
from ..wire.texts import as_typed
from . import gpu_hours, slurm_tables, tables
from .remove import Remove
from .terminal import printable
from .verb import NO_KERNELSPEC, Ask, Listing, Verb, add_json_option, kernel_id, print_error, print_json
from .wait import limit, wait
from .watch import WatchedVerb


class List(Verb):
    verb = "list"
    summary = "List the kernelspecs of remote GPU kernels."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        add_json_option(parser)

    def run(self) -> int:
        bad: list[SettingsError] = []
        specs = kernelspecs.find_all(bad.append)
        environments = _environments(specs)
        if self.args.json:
            print_json(
                [
                    {
                        "name": one.name,
                        "display_name": one.display_name,
                        "path": str(one.path),
                        "settings": one.settings,
                        **({"environment": environments[one.name]} if one.name in environments else {}),
                    }
                    for one in specs
                ]
            )
        elif specs:
            print(_kernelspec_table(specs, environments))
        elif not bad:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        for error in bad:
            print_error(error)
        return 1 if bad else 0


def _kernelspec_table(specs: Sequence[kernelspecs.Spec], environments: dict[str, str]) -> str:
    """One row for each; with a column for environments that `add --create-env` made, if there are any."""
    rows = [(one.name, _route(one.settings), str(one.path)) for one in specs]
    if not environments:
        return tables.table(("NAME", "ROUTE", "KERNELSPEC"), rows)
    more = [(*row, environments.get(row[0], "-")) for row in rows]
    return tables.table(("NAME", "ROUTE", "KERNELSPEC", "ENVIRONMENT"), more)


def _environments(specs: Sequence[kernelspecs.Spec]) -> dict[str, str]:
    """The environment that each kernelspec's Python is in, of those that `add --create-env` made."""
    folders = {folder for one in specs if (folder := one.settings.get("env_dir"))}
    pythons = {one.name: str(one.settings.get("python") or "") for one in specs}
    return {
        name: folder
        for name, python in pythons.items()
        for folder in folders
        if python.startswith(f"{folder}/")
    }


def _route(settings: dict[str, Any]) -> str:
    """The hops; of several hosts all, in place of the last host; and the job of Slurm, with its partition."""
    *jumps, last = settings["route"]
    job = f"Slurm job ({settings['partition']})" if settings.get("partition") else "Slurm job"
    hops = [*jumps, ", ".join(settings.get("hosts") or [last]), *settings.get("via", ())]
    return " → ".join([*hops, job] if settings.get("slurm") else hops)


class Check(Verb):
    verb = "check"
    summary = "Check the connection step by step, and show how long each step takes."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        parser.add_argument(
            "--gpu",
            action="store_true",
            help="also check whether torch, tensorflow and jax in that Python fit the driver and the GPUs, and "
            "multiply matrices with each of them on a free GPU",
        )
        add_json_option(parser)

    def run(self) -> int:
        spec = kernelspecs.find(self.args.spec)
        lines = self.args.gpu and not self.args.json
        rows = self.ask_hub("check", lines=lines, settings=spec.settings, name=spec.name, gpu=self.args.gpu)
        if self.args.json:
            print_json(rows)
        else:
            print(tables.check(rows))
        bad = [row for row in rows if not row["ok"]]
        for row in bad:
            print_error(
                GpuKernelError(f"{row['step']}: {row['message']}", hop=row["hop"], remedy=row["remedy"])
            )
        return 1 if bad else 0


class Login(Verb):
    verb = "login"
    summary = "Open the connection, and ask for passwords and codes in this terminal. All front ends use it."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        parser.add_argument(
            "--forget",
            action="store_true",
            help="first delete the passwords and passphrases that were stored in the system keyring for it",
        )
        add_json_option(parser)

    def run(self) -> int:
        spec = kernelspecs.find(self.args.spec)
        for forgotten in forget(spec.name) if self.args.forget else ():
            sys.stderr.write(printable(f"Deleted from the system keyring: the answer for {forgotten}\n"))
        answer = self.ask_hub("login", lines=not self.args.json, settings=spec.settings, name=spec.name)
        if self.args.json:
            print_json(answer)
        else:
            print(printable(f"Connected to {answer['node']}."))
        for error in answer.get("errors", []):
            print_error(GpuKernelError.from_json(error))
        return 1 if answer.get("errors") else 0


class Gpus(WatchedVerb):
    verb = "gpus"
    summary = "List every GPU: memory, utilization, users, and whether a kernel could take it."
    interval = 5.0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("specs", metavar="NAME", nargs="*", help="kernelspecs (default: all)")
        either = parser.add_mutually_exclusive_group()
        self.add_watch_option(either)
        either.add_argument(
            "--history", metavar="TIME", nargs="?", type=gpu_hours.duration, const=gpu_hours.DEFAULT,
            help="list the GPUs that your kernels had in the last TIME (90m, 24h, 7d; default: 24h), for how many "
            "hours, and the share of it in which no cell ran",
        )  # fmt: skip
        add_json_option(parser)

    def run(self) -> int:
        specs = self.specs(self.args.specs)
        if not specs:
            return self.print_listing(Listing([], ""))
        if self.args.history is None:
            return self.show(partial(self._listing, specs))
        rows = self.ask_hub("history", specs=specs, seconds=self.args.history)
        return self.print_listing(Listing.of(rows, tables.history, "Your kernels had no GPU in this time."))

    def _listing(self, specs: list[dict[str, Any]], ask: Ask) -> Listing:
        def table(rows: Sequence[dict[str, Any]]) -> str:
            direct = [row for row in rows if "slurm" not in row]
            clusters = slurm_tables.clusters([row for row in rows if "slurm" in row])
            gpus = tables.gpus(direct) if direct else ""
            return "\n\n".join(filter(None, (gpus, tables.queue(direct), clusters)))

        return Listing.of(ask("gpus", specs=specs), table, "These machines have no GPU.")


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


class Stop(Verb):
    verb = "stop"
    summary = "End kernels and release their GPUs."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "kernels", metavar="ID", nargs="*", type=kernel_id, help="kernels' IDs, as “ps” shows them"
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
        add_json_option(parser)

    def run(self) -> int:
        if [bool(self.args.kernels), self.args.all, self.args.leftovers].count(True) != 1:
            sys.stderr.write(
                "Give the IDs of kernels, as “jupyter gpu-kernel ps” shows them, or --all, or --leftovers.\n"
            )
            return 2
        specs = self.specs_for(self.args.kernels[0]) if self.args.kernels else self.specs()
        if self.args.leftovers:
            return self._stop_leftovers(specs)
        kernels, errors = self._chosen(specs)
        stopped = []
        for kernel in kernels:
            try:
                more = {"kill": True} if self.args.kill else {}
                self.ask_hub("stop", lines=not self.args.json, kernel=kernel, specs=specs, **more)
                stopped.append(kernel)
            except GpuKernelError as error:  # the other kernels are ended all the same
                errors.append(error)
        if self.args.all:
            self.ask_hub("hang_up")  # leave no process on any machine
        if self.args.json:
            print_json({"stopped": stopped, "errors": [error.to_json() for error in errors]})
        elif stopped or not errors:
            print(f"Stopped: {', '.join(stopped) or 'none'}")
        for one in errors:
            print_error(one)
        return 1 if errors else 0

    def _stop_leftovers(self, specs: list[dict[str, Any]]) -> int:
        """List processes and pinned code, then end and remove exactly these."""
        rows = self.ask_hub("leftovers", lines=not self.args.json, specs=specs) if specs else []
        found = [row for row in rows if "error" not in row]
        processes = [row for row in found if "pid" in row]
        if processes and not self.args.json:
            print(tables.leftovers(processes))
        ended = self.ask_hub("end_leftovers", specs=specs, leftovers=found) if found else []
        bad = [row["error"] for row in rows + ended if "error" in row]
        errors = {str(error): GpuKernelError.from_json(error) for error in bad}  # each error of a node once
        code = [row for row in ended if "folder" in row]
        ended = [row for row in ended if "pid" in row]
        if self.args.json:
            print_json(
                {"ended": ended, "code": code, "errors": [error.to_json() for error in errors.values()]}
            )
        else:
            print(f"Ended: {', '.join(str(row['pid']) for row in ended) or 'none'}")
            if code:
                print(tables.pinned_code(code))
        for error in errors.values():
            print_error(error)
        return 1 if errors else 0

    def _chosen(self, specs: list[dict[str, Any]]) -> tuple[list[str], list[GpuKernelError]]:
        """The ids of the kernels to stop, and the errors of nodes that could not be asked."""
        if self.args.kernels or not specs:
            return list(dict.fromkeys(self.args.kernels)), []
        rows = self.ask_hub("ps", specs=specs)
        errors = [GpuKernelError.from_json(row["error"]) for row in rows if "error" in row]
        return [row["id"] for row in rows if "error" not in row], errors


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


class Launch(Verb):
    verb = "launch"
    summary = "Serve one front end; the argv of a kernelspec runs this."
    ignores_unknown = True  # `jupyter run` passes its own arguments on to the kernel

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel_json", metavar="KERNEL_JSON")
        parser.add_argument("-f", dest="connection_file", metavar="CONNECTION_FILE", required=True)

    def run(self) -> int:
        from ..launcher import launch

        return launch(self.args.kernel_json, self.args.connection_file)


class Demo(Verb):
    verb = "demo"
    summary = "Run a demo on this machine: a practice cluster, a kernel, SIGTERM and a cut connection."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--lab", action="store_true", help="open JupyterLab on the cluster")

    def run(self) -> int:
        from ..demo import run_demo

        return run_demo(lab=self.args.lab)


def _priority(text: str) -> int:
    """The type of an argument that is a priority."""
    if re.fullmatch(r"[+-]?[0-9]{1,9}", text) and abs(int(text)) <= MAX_PRIORITY:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!a} is not a number from -{MAX_PRIORITY} to {MAX_PRIORITY}")


ALL: tuple[type[Verb], ...] = (
    *(List, Remove, Check, Login, Gpus, Ps, Attach, Stop, Priority, Logs, Launch, Demo),
)
