"""What both ways of the demo stand on: the practice cluster, a kernelspec, the hub; and how all of it ends.

A face like any other: it asks the hub through the client. Knows nothing of what is played on it.
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
_GONE_WITHIN = 15.0  # seconds for everything to end by itself


class Stage(NamedTuple):
    """The cluster is up, the kernelspec written, the hub started."""

    terminal: Terminal
    cluster: Cluster
    hub: HubClient
    settings: dict[str, Any]

    @property
    def specs(self) -> list[dict[str, Any]]:
        """Where the hub looks for kernels."""
        return [{"settings": self.settings}]


@contextlib.contextmanager
def stage() -> Iterator[Stage]:
    """Set it up, telling so; whatever has not ended by itself ends here."""
    terminal = Terminal()
    with practice() as cluster:
        _introduce(cluster, terminal)
        settings = _write_kernelspec(cluster)
        terminal.say("kernelspec", f"Remote GPU ({KERNEL}), as “jupyter gpu-kernel add” writes it")
        with HubClient() as hub:
            terminal.say("hub", "one local process for all front ends: it alone holds the connection")
            yield Stage(terminal, cluster, hub, settings)


def _introduce(cluster: Cluster, terminal: Terminal) -> None:
    terminal.say("cluster", f"everything of this demo is in the folder {cluster.folder} until it ends")
    terminal.say("cluster", f"{LOGIN}: our own SSH server on 127.0.0.1 port {cluster.port}")
    terminal.say("cluster", f"{WORK}: no port at all, reached through {LOGIN} only (both are this machine)")
    if cluster.simulated:
        terminal.say("cluster", f"GPUs: SIMULATED, {gpus.COUNT} of them, somebody is on the first")
    else:
        terminal.say("cluster", "GPUs: the real ones of this machine")


def _write_kernelspec(cluster: Cluster) -> dict[str, Any]:
    settings = {
        "route": list(ROUTE),
        "config": str(cluster.ssh_config),
        "python": sys.executable,
        "gpus": 1,
    }
    return kernelspecs.write(KERNEL, settings, prefix=cluster.folder / "jupyter").settings


def walk(at: Stage) -> bool:
    """The way hop by hop, as `jupyter gpu-kernel check` goes it; whether it leads to the end."""
    rows = at.hub.call("check", settings=at.settings, timeout=60)
    for row in rows:
        words = f"{row['step']}: {row['message'] or ('ok' if row['ok'] else 'failed')}"
        at.terminal.say(row["hop"] or "here", f"{words} ({row['seconds'] * 1000:.0f} ms)")
        if not row["ok"]:
            at.terminal.say("", row["remedy"])
    return all(row["ok"] for row in rows)


def stop_kernels(at: Stage) -> None:
    """Those that a front end left running."""
    for row in at.hub.call("ps", specs=at.specs, timeout=30):
        if "id" in row and row.get("state") != "ended":
            at.terminal.say("stop", f"kernel {row['id']}")
            at.hub.call("stop", kernel=row["id"], specs=at.specs, timeout=30)


def end(at: Stage) -> bool:
    """End the hub; whether nothing at all is left that was started here."""
    try:
        at.hub.call("shutdown", timeout=10)
    except GpuKernelError as error:
        return at.terminal.check(False, f"the hub did not end: {error}")
    deadline = time.monotonic() + _GONE_WITHIN
    while (left := processes(at.cluster.folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = "".join(f"\nnot {pid}: {_command(pid)}" for pid in left)
    return at.terminal.check(not left, f"kernel, agent and hub have ended by themselves{names}")


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ")[:100]
    except OSError:  # ended in this moment
        return ""
