"""Set-up and clean-up for both forms of the demo: the practice cluster, a kernelspec, the hub.

The demo is a client of the hub like any other. This module does not know what the demo shows.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from .. import kernelspecs
from ..client import HubClient
from ..errors import GpuKernelError
from . import gpus
from .cluster import LOGIN, ROUTE, WORK, Cluster, processes
from .sandbox import practice
from .terminal import Terminal

KERNEL = "gpu-demo"  # the kernelspec
_END_TIMEOUT = 15.0  # seconds for all processes to end by themselves


class Demo(NamedTuple):
    """A running demo: the cluster is up, the kernelspec is written, the hub is started."""

    terminal: Terminal
    cluster: Cluster
    hub: HubClient
    settings: dict[str, Any]

    @property
    def specs(self) -> list[dict[str, Any]]:
        """The kernelspecs to which the hub's operations apply."""
        return [{"settings": self.settings}]


@contextlib.contextmanager
def running_demo() -> Iterator[Demo]:
    """Set up a demo, and print each step. At the end, kill all processes that are left."""
    terminal = Terminal()
    with practice() as cluster:
        _introduce(cluster, terminal)
        settings = _write_kernelspec(cluster)
        terminal.say("kernelspec", f"Remote GPU ({KERNEL}), as “jupyter gpu-kernel add” writes it")
        with HubClient() as hub:
            terminal.say("hub", "one local process for all front ends, which holds the SSH connection")
            yield Demo(terminal, cluster, hub, settings)


def _introduce(cluster: Cluster, terminal: Terminal) -> None:
    terminal.say("cluster", f"all files of this demo are in the folder {cluster.folder} until it ends")
    terminal.say("cluster", f"{LOGIN}: the demo's SSH server on 127.0.0.1 port {cluster.port}")
    terminal.say(
        "cluster", f"{WORK}: has no port, can be reached only through {LOGIN} (both are this machine)"
    )
    if cluster.simulated:
        terminal.say("cluster", f"GPUs: {gpus.COUNT} SIMULATED ones; the first one is in use")
    else:
        terminal.say("cluster", "GPUs: the real GPUs of this machine")


def _write_kernelspec(cluster: Cluster) -> dict[str, Any]:
    settings = {
        "route": list(ROUTE),
        "config": str(cluster.ssh_config),
        "python": sys.executable,
        "gpus": 1,
    }
    return kernelspecs.write(KERNEL, settings, prefix=cluster.folder / "jupyter").settings


def check_connection(demo: Demo) -> bool:
    """Check the connection as `jupyter gpu-kernel check` does, and print the steps. Return whether all succeed."""
    rows = demo.hub.call("check", settings=demo.settings, timeout=60)
    for row in rows:
        text = f"{row['step']}: {row['message'] or ('ok' if row['ok'] else 'failed')}"
        demo.terminal.say(row["hop"] or "here", f"{text} ({row['seconds'] * 1000:.0f} ms)")
        if not row["ok"]:
            demo.terminal.say("", row["remedy"])
    return all(row["ok"] for row in rows)


def stop_kernels(demo: Demo) -> None:
    """Stop the kernels that are still running."""
    for row in demo.hub.call("ps", specs=demo.specs, timeout=30):
        if "id" in row and row.get("state") != "ended":
            demo.terminal.say("stop", f"kernel {row['id']}")
            demo.hub.call("stop", kernel=row["id"], specs=demo.specs, timeout=30)


def end(demo: Demo) -> bool:
    """Stop the hub. Return whether no process of the demo is left."""
    try:
        demo.hub.call("shutdown", timeout=10)
    except GpuKernelError as error:
        return demo.terminal.check(False, f"the hub did not stop: {error}")
    deadline = time.monotonic() + _END_TIMEOUT
    while (left := processes(demo.cluster.folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = "".join(f"\nstill running: {pid} {_command(pid)}" for pid in left)
    return demo.terminal.check(not left, f"kernel, agent and hub ended by themselves{names}")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")[:100]
    except OSError:  # it has just ended
        return ""
