"""All verbs; here are those that are short and have no module of their own."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

from .. import kernelspecs
from ..errors import GpuKernelError
from ..saved_answers import forget
from ..wire.texts import printable
from .arguments import MONTH, span
from .editors import Serve, VSCode
from .kernelspecs import List, Remove
from .running.kernels import Attach, Logs, Priority, Ps, Stop
from .show import slurm as slurm_tables
from .show import tables
from .show.report import report
from .show.watch import WatchedVerb
from .terminal import Progress
from .verb import Ask, Listing, Verb, print_errors

_NODES_OF_JOBS = "Of a cluster with Slurm, only nodes are asked on which a job with your kernel runs now."


class CheckVerb(Verb):
    verb = "check"
    summary = "Check the connection step by step, and show how long each step takes."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("spec", metavar="NAME")
        parser.add_argument(
            "--gpu",
            action="store_true",
            help="also check the driver, and whether torch, tensorflow, jax and cupy in that Python multiply matrices "
            "on a free GPU",
        )
        parser.add_argument(
            "--report",
            action="store_true",
            help="print what a maintainer needs for an issue: versions, settings, the steps, and the story of the "
            "newest kernel; names, addresses and private values are replaced, but read it before you send it",
        )

    def run(self) -> int:
        spec = kernelspecs.find(self.args.spec)
        progress = Progress(lines := self.args.gpu and not self.args.json)
        with self.hub(lines=lines) as ask:
            rows = self._rows(ask, progress, spec)
            story = self._newest_story(ask, spec) if self.args.report else []
        text = report(spec.settings, rows, story) if self.args.report else tables.check(rows)
        self.print_result(rows, text)
        return print_errors(
            GpuKernelError(f"{row['step']}: {row['message']}", hop=row["hop"], remedy=row["remedy"])
            for row in rows
            if not row["ok"]
        )

    @staticmethod
    def _newest_story(ask: Ask, spec: kernelspecs.Kernelspec) -> list[dict[str, Any]]:
        kernels = [row for row in ask("ps", specs=[spec.for_hub]) if "error" not in row]
        if not kernels:
            return []
        newest = max(kernels, key=lambda row: row.get("since") or 0.0)
        return list(ask("logs", kernel=newest["id"], specs=[spec.for_hub]))

    def _rows(self, ask: Ask, progress: Progress, spec: kernelspecs.Kernelspec) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        if self.args.gpu:  # the kernel has the variables of the env file, as it has for every front end
            spec = kernelspecs.read(spec.path)
        for host in spec.settings.each_host():
            rows = ask("check", settings=host.to_json(), name=spec.name, gpu=self.args.gpu)
            found += rows
            # What a kernel says of the driver and the frameworks may tell why the GPUs cannot be read.
            if self.args.gpu and not host.slurm and (rows[-1]["ok"] or rows[-1]["step"] == "gpus"):
                from .running.gpu_check import GpuCheck

                check = GpuCheck(ask, progress, spec.name, host)
                check.run()
                found += check.rows
        return found


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

    def run(self) -> int:
        spec = kernelspecs.find(self.args.spec)
        for forgotten in forget(spec.name) if self.args.forget else ():
            sys.stderr.write(printable(f"Deleted from the system keyring: the answer for {forgotten}\n"))
        answer = self.ask_hub("login", lines=not self.args.json, **spec.for_hub)
        self.print_result(answer, printable(f"Connected to {answer['node']}."))
        return print_errors(map(GpuKernelError.from_json, answer.get("errors", [])))


class Gpus(WatchedVerb):
    verb = "gpus"
    summary = "List every GPU: memory, utilization, users, and whether a kernel could take it."
    interval = 5.0

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("specs", metavar="NAME", nargs="*", help="kernelspecs, or nodes (default: all)")
        either = parser.add_mutually_exclusive_group()
        self.add_watch_option(either)
        either.add_argument(
            "--history", metavar="TIME", nargs="?", type=partial(span, least=1, most=MONTH), const="24h",
            help="list the GPUs that your kernels had in the last TIME (90m, 24h, at most 30d; default: 24h), for how "
            "many hours, and the share of it in which no cell ran; names come before this option",
        )  # fmt: skip

    def run(self) -> int:
        specs = self.specs(self.args.specs)
        if not specs:
            return self.print_listing(Listing([], ""))
        if self.args.history is None:
            return self.show(specs)
        rows = self.ask_hub("history", specs=specs, seconds=self.args.history)
        found = Listing.of(rows, tables.history, "No GPU of your kernels is known in this time.")
        status = self.print_listing(found)
        if not self.args.json and any(spec["settings"].get("slurm") for spec in specs):
            sys.stderr.write(f"{_NODES_OF_JOBS}\n")
        return status

    def listing(self, specs: list[dict[str, Any]], ask: Ask) -> Listing:
        """The GPUs, who waits for them, and the clusters. A node that could not be asked has a row, too."""
        rows = ask("gpus", specs=specs)
        direct = [row for row in rows if "slurm" not in row]
        clusters = slurm_tables.clusters([row for row in rows if "slurm" in row])
        text = "\n\n".join(filter(None, (tables.gpus(direct), tables.queue(direct), clusters)))
        return Listing(rows, text, "These machines have no GPU.")


class Launch(Verb):
    verb = "launch"
    has_json = False
    summary = "Serve one front end; the argv of a kernelspec runs this."
    ignores_unknown = True  # `jupyter run` passes its own arguments on to the kernel

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("kernel_json", metavar="KERNEL_JSON")
        parser.add_argument("-f", dest="connection_file", metavar="CONNECTION_FILE", required=True)

    def run(self) -> int:
        from ..launcher import launch

        return launch(self.args.kernel_json, self.args.connection_file)


class DemoVerb(Verb):
    verb = "demo"
    has_json = False
    summary = "Run a demo on this machine: a practice cluster, a kernel, SIGTERM and a cut connection."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--lab", action="store_true", help="open JupyterLab on the cluster")

    def run(self) -> int:
        from ..demo import run_demo

        return run_demo(lab=self.args.lab)


ALL: tuple[type[Verb], ...] = (
    *(List, Remove, CheckVerb, Login, Gpus, Ps, Attach, Stop, Priority, Logs),
    *(Serve, VSCode, Launch, DemoVerb),
)
