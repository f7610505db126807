"""Many real kernels of one Jupyter server, through one hub: do all start, and what do they cost?

    python benchmarks/many.py NAME [NAME …] [--kernels 50] [--idle 60] [--heartbeats] [--json]

NAME are kernelspecs made by `jupyter gpu-kernel add`, best with `--gpus 0`; the kernels are spread over them. All
start at the same moment, in one event loop, as a server starts them. Like a server, the clients send no heartbeats,
except with --heartbeats. The nodes' processes are counted there, by SSH.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from processes import Cost, cost

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.hub.connections.connect import Connections
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.paths import trust_file
from jupyter_gpu_kernel.hub.ssh import Attempt
from jupyter_gpu_kernel.kernelspecs import find

WITHIN = 300.0
CELLS = 40
FLOOD = "import time\nend = time.time() + {seconds}\nwhile time.time() < end: print('x' * 99)"
COUNT = Path(__file__).with_name("node_processes.py")


class Kernel:
    """A manager and its client."""

    def __init__(self, name: str, heartbeats: bool) -> None:
        self.manager = AsyncKernelManager(kernel_name=name)
        self.heartbeats = heartbeats
        self.client: Any = None
        self.error = ""

    async def start(self) -> None:
        """Start, and run a first cell."""
        try:
            await self.manager.start_kernel()
            self.client = self.manager.client()
            self.client.start_channels(hb=self.heartbeats)
            await self.client.wait_for_ready(timeout=WITHIN)
            await self.run("1")
        except Exception as error:
            self.error = f"{type(error).__name__}: {error}"

    async def run(self, code: str) -> float:
        """Return the seconds until reply and idle are there."""
        began = time.perf_counter()
        await self.client.execute_interactive(code, timeout=WITHIN, output_hook=lambda _: None)
        return time.perf_counter() - began

    async def end(self) -> None:
        """Shut down."""
        if self.client is not None:
            self.client.stop_channels()
        await self.manager.shutdown_kernel(now=True)


class Stalls:
    """The longest time that the event loop did not run."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._task = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            self.longest = max(self.longest, time.perf_counter() - began - 0.002)

    def stop(self) -> float:
        """Return it, in ms."""
        self._task.cancel()
        return 1e3 * self.longest


class Nodes:
    """Counts what runs on the nodes."""

    def __init__(self, names: list[str]) -> None:
        self._nodes = []
        for name in names:
            settings = find(name).settings
            route = RouteSettings(settings.route, settings.identity, settings.config or None)
            node = Connections(trust_file()).connect(route, Attempt())
            self._nodes.append((node, shlex.join([settings.python, "-"])))

    def count(self) -> dict[str, Cost]:
        """Return the costs by kind of process: attach, keepers, kernels, sshd."""
        total: dict[str, list[float]] = {}
        for node, command in self._nodes:
            done = node.run(command, stdin=COUNT.read_bytes(), timeout=30)
            for kind, values in json.loads(done.stdout).items():
                total[kind] = [a + b for a, b in zip(total.get(kind, [0] * 4), values, strict=True)]
        return {
            kind: Cost(mib, int(threads), int(files), cpu)
            for kind, (mib, threads, files, cpu) in total.items()
        }

    def close(self) -> None:
        """Hang up."""
        for node, _ in self._nodes:
            node.close()


async def main(names: list[str], count: int, idle: float, heartbeats: bool) -> dict[str, Any]:
    """Start, measure, shut down; return the figures."""
    hub_client = HubClient()
    hub = int(hub_client.call("hello")["pid"])
    first = [Kernel(name, heartbeats) for name in names]  # the connections and the agent's ends do not count
    await asyncio.gather(*(one.start() for one in first))
    nodes = Nodes(names)
    before, own, there = cost(hub), cost(os.getpid()), nodes.count()
    kernels = [Kernel(names[number % len(names)], heartbeats) for number in range(count)]
    try:
        stalls, began = Stalls(), time.perf_counter()
        await asyncio.gather(*(one.start() for one in kernels))
        started, stall = time.perf_counter() - began, stalls.stop()
        failed = [one.error for one in kernels if one.error]
        await asyncio.sleep(5)
        result: dict[str, Any] = {
            "kernels": count,
            "answered": count - len(failed),
            "errors": sorted(set(failed)),
            "all_up_s": started,
            "server_loop_stall_ms": stall,
            **_each("hub", cost(hub) - before, count),
            **_each("server", cost(os.getpid()) - own, count),
        }
        now = nodes.count()
        for kind in ("keepers", "kernels"):
            result.update(_each(kind, now[kind] - there.get(kind, Cost(0, 0, 0, 0)), count))
        result.update({"attach_mib": now["attach"].mib, "sshd_on_nodes": now["sshd"]._asdict()})
        result.update(await _idle(nodes, hub, idle))
        result.update(await _beside_flood([one for one in kernels if not one.error], len(names)))
    finally:
        nodes.close()
        await asyncio.gather(*(one.end() for one in [*first, *kernels]), return_exceptions=True)
    hub_client.close()
    return result


def _each(kind: str, more: Cost, count: int) -> dict[str, float]:
    return {f"{kind}_mib_each": more.mib / count, f"{kind}_threads_each": more.threads / count}


async def _idle(nodes: Nodes, hub: int, seconds: float) -> dict[str, float]:
    """Return the CPU that is used while nobody does anything, in percent of one."""
    then, hub_then, own = nodes.count(), cost(hub), cost(os.getpid())
    await asyncio.sleep(seconds)
    hub_now, own_now, now = cost(hub), cost(os.getpid()), nodes.count()
    used = {kind: now[kind].cpu - then[kind].cpu for kind in ("keepers", "kernels", "attach")}
    used.update(hub=hub_now.cpu - hub_then.cpu, server=own_now.cpu - own.cpu)
    return {f"idle_cpu_percent_{kind}": 100 * cpu / seconds for kind, cpu in used.items()}


async def _beside_flood(kernels: list[Kernel], step: int) -> dict[str, float]:
    """Return a cell's p50 alone, while another kernel of the same node prints, and while one of another node does."""
    if len(kernels) <= step:
        return {}
    alone = [await kernels[0].run("pass") for _ in range(CELLS)]
    result = {"cell_p50_ms": _ms(alone)}
    for what, other in (("same_node", kernels[step]), ("other_node", kernels[1])):
        flood = asyncio.create_task(other.run(FLOOD.format(seconds=4)))
        await asyncio.sleep(0.5)
        result[f"cell_p50_ms_flood_on_{what}"] = _ms([await kernels[0].run("pass") for _ in range(CELLS)])
        await flood
    return result


def _ms(seconds: list[float]) -> float:
    return 1e3 * statistics.median(seconds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="+", metavar="NAME")
    parser.add_argument("--kernels", type=int, default=50)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    parser.add_argument("--heartbeats", action="store_true", help="as jupyter_client's programs send them")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = asyncio.run(main(options.names, options.kernels, options.idle, options.heartbeats))
    if options.json:
        print(json.dumps(figures))
    else:
        for key, value in figures.items():
            print(f"{key:34}{value:12.2f}" if isinstance(value, float) else f"{key:34}{value!s:>12}")
    sys.exit(bool(figures["errors"]))
