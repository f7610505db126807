"""All verbs but `add`. Each says its words, asks the hub or the kernelspecs, and shows the answer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from .. import kernelspecs
from ..errors import GpuKernelError, SettingsError
from ..wire.texts import as_typed
from . import show
from .verb import NO_KERNELSPEC, Verb, complain, kernel_id, print_json, with_json


class List(Verb):
    verb = "list"
    summary = "Show our kernelspecs."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        with_json(parser)

    def run(self) -> int:
        bad: list[SettingsError] = []
        specs = kernelspecs.find_all(bad.append)
        if self.words.json:
            print_json(
                [
                    {
                        "name": one.name,
                        "display_name": one.display_name,
                        "path": str(one.path),
                        "settings": one.settings,
                    }
                    for one in specs
                ]
            )
        elif specs:
            rows = [(one.name, " → ".join(one.settings["route"]), str(one.path)) for one in specs]
            print(show.table(("NAME", "ROUTE", "KERNELSPEC"), rows))
        elif not bad:
            sys.stderr.write(f"{NO_KERNELSPEC}\n")
        for error in bad:
            complain(error)
        return 1 if bad else 0


class Remove(Verb):
    verb = "remove"
    summary = "Remove a kernelspec. Kernels that run stay."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        with_json(parser)

    def run(self) -> int:
        folders = [str(folder) for folder in kernelspecs.remove(self.words.spec)]
        if self.words.json:
            print_json({"removed": folders})
        else:
            print("\n".join(f"Removed: {folder}" for folder in folders))
        return 0


class Check(Verb):
    verb = "check"
    summary = "Walk the whole way hop by hop, each step timed; nothing stays."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        with_json(parser)

    def run(self) -> int:
        spec = kernelspecs.find(self.words.spec)
        rows = self.ask_hub("check", settings=spec.settings, name=spec.name)
        if self.words.json:
            print_json(rows)
        else:
            print(show.check(rows))
        bad = [row for row in rows if not row["ok"]]
        for row in bad:
            complain(GpuKernelError(f"{row['step']}: {row['message']}", hop=row["hop"], remedy=row["remedy"]))
        return 1 if bad else 0


class Login(Verb):
    verb = "login"
    summary = "Open the connection, asking for what it must here; later kernels of any front end use it."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        with_json(parser)

    def run(self) -> int:
        spec = kernelspecs.find(self.words.spec)
        answer = self.ask_hub("login", lines=not self.words.json, settings=spec.settings, name=spec.name)
        if self.words.json:
            print_json(answer)
        else:
            print(show.plain(f"Connected to {answer['node']}."))
        return 0


class Gpus(Verb):
    verb = "gpus"
    summary = "Show every GPU: memory, use, who is on it, whether we would take it and if not why."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("specs", metavar="NAME", nargs="*", help="of these kernelspecs (default: all)")
        with_json(parser)

    def run(self) -> int:
        specs = self.specs(self.words.specs)
        rows = self.ask_hub("gpus", specs=specs) if specs else []
        status = self.show_list(rows, show.gpus, "These machines have no GPU." if specs else "")
        if specs and not self.words.json and (waiting := show.waiting(self.ask_hub("ps", specs=specs))):
            print(f"\n{waiting}")
        return status


class Ps(Verb):
    verb = "ps"
    summary = "Show our kernels on all nodes."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        with_json(parser)

    def run(self) -> int:
        specs = self.specs()
        rows = self.ask_hub("ps", specs=specs) if specs else []
        return self.show_list(rows, show.kernels, "No kernel is running." if specs else "")


class Attach(Verb):
    verb = "attach"
    summary = "Put a new local front end on a running kernel; it stays here until Ctrl-C."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel", metavar="ID", type=kernel_id, help="as “ps” shows it")
        with_json(parser)

    def run(self) -> int:
        from ..launcher import attach

        sys.stderr.write(f"Looking for kernel {show.plain(self.words.kernel)} …\n")
        return attach(self.words.kernel, self.specs(), self._say)

    def _say(self, path: Path, node: str) -> None:
        if self.words.json:
            print_json({"id": self.words.kernel, "node": node, "connection_file": str(path)})
        else:
            print(f"Kernel {self.words.kernel} on {show.plain(node)}: {path}")
            print("  " + as_typed(["jupyter", "console", "--existing", str(path)]))
            print("Ctrl-C leaves the kernel, which stays as it is.")
        sys.stdout.flush()


class Stop(Verb):
    verb = "stop"
    summary = "End kernels and give their GPUs back."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernels", metavar="ID", nargs="*", type=kernel_id, help="as “ps” shows them")
        parser.add_argument("--all", action="store_true", help="all kernels on all nodes")
        parser.add_argument(
            "--leftovers",
            action="store_true",
            help="your processes of kernels that no longer exist; they may hold GPU memory",
        )
        with_json(parser)

    def run(self) -> int:
        if [bool(self.words.kernels), self.words.all, self.words.leftovers].count(True) != 1:
            sys.stderr.write(
                "Give the IDs of kernels, as “jupyter gpu-kernel ps” shows them, or --all, or --leftovers.\n"
            )
            return 2
        specs = self.ways_to(self.words.kernels[0]) if self.words.kernels else self.specs()
        if self.words.leftovers:
            return self._end_leftovers(specs)
        kernels, errors = self._which(specs)
        stopped = []
        for kernel in kernels:
            try:
                self.ask_hub("stop", lines=not self.words.json, kernel=kernel, specs=specs)
                stopped.append(kernel)
            except GpuKernelError as error:  # the others are to be ended all the same
                errors.append(error)
        if self.words.all:
            self.ask_hub("hang_up")  # nothing of ours stays on any machine
        if self.words.json:
            print_json({"stopped": stopped, "errors": [error.to_json() for error in errors]})
        elif stopped or not errors:
            print(f"Stopped: {', '.join(stopped) or 'none'}")
        for one in errors:
            complain(one)
        return 1 if errors else 0

    def _end_leftovers(self, specs: list[dict[str, Any]]) -> int:
        """Says what they are, then ends these and no others."""
        rows = self.ask_hub("leftovers", lines=not self.words.json, specs=specs) if specs else []
        found = [row for row in rows if "error" not in row]
        if found and not self.words.json:
            print(show.leftovers(found))
        ended = self.ask_hub("end_leftovers", specs=specs, leftovers=found) if found else []
        bad = [row["error"] for row in rows + ended if "error" in row]
        errors = {str(error): GpuKernelError.from_json(error) for error in bad}  # a node's, once
        ended = [row for row in ended if "error" not in row]
        if self.words.json:
            print_json({"ended": ended, "errors": [error.to_json() for error in errors.values()]})
        else:
            print(f"Ended: {', '.join(str(row['pid']) for row in ended) or 'none'}")
        for error in errors.values():
            complain(error)
        return 1 if errors else 0

    def _which(self, specs: list[dict[str, Any]]) -> tuple[list[str], list[GpuKernelError]]:
        """The kernels to stop, and of which nodes that could not be learnt."""
        if self.words.kernels or not specs:
            return list(dict.fromkeys(self.words.kernels)), []
        rows = self.ask_hub("ps", specs=specs)
        errors = [GpuKernelError.from_json(row["error"]) for row in rows if "error" in row]
        return [row["id"] for row in rows if "error" not in row], errors


class Logs(Verb):
    verb = "logs"
    summary = "Tell the story of a kernel: start, drops, signals with their sender, waits, its end and why."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel", metavar="ID", type=kernel_id, help="as “ps” shows it")
        with_json(parser)

    def run(self) -> int:
        kernel = self.words.kernel
        rows = self.ask_hub("logs", kernel=kernel, specs=self.ways_to(kernel))
        return self.show_list(rows, show.story, f"Nothing is recorded of kernel {kernel}.")


class Launch(Verb):
    verb = "launch"
    summary = "What a kernelspec's argv runs."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel_json", metavar="KERNEL_JSON")
        parser.add_argument("-f", dest="connection_file", metavar="CONNECTION_FILE", required=True)

    def run(self) -> int:
        from ..launcher import launch

        return launch(self.words.kernel_json, self.words.connection_file)


class Demo(Verb):
    verb = "demo"
    summary = "The main job on this machine alone: a practice cluster, a kernel on it, and trouble."

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--lab", action="store_true", help="open JupyterLab on the cluster")

    def run(self) -> int:
        from ..demo import run_demo

        return run_demo(lab=self.words.lab)


ALL: tuple[type[Verb], ...] = (List, Remove, Check, Login, Gpus, Ps, Attach, Stop, Logs, Launch, Demo)
