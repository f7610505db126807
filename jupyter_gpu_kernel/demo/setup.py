"""Set-up and clean-up for both forms of the demo: a folder, the practice cluster, a kernelspec, the hub, the output.

Jupyter and our hub use nothing outside the demo's folder. Every process of the demo has a variable in its environment
that names the folder, so that all of them can be ended. The demo is a client of the hub like any other. This module
does not know what the demo shows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .. import kernelspecs
from ..client import HubClient
from ..errors import GpuKernelError
from ..wire.kernel_settings import KernelSettings
from . import gpus
from .cluster import LOGIN, MARK, ROUTE, WORK, Cluster, end_processes, processes

NOTEBOOKS = Path(__file__).parent / "notebooks"
_END_TIMEOUT = 15.0  # seconds for all processes to end by themselves


class Demo(NamedTuple):
    """A running demo: the cluster is up, the kernelspec is written, the hub is started."""

    terminal: Terminal
    cluster: Cluster
    hub: HubClient
    spec: kernelspecs.Kernelspec


@contextlib.contextmanager
def running_demo() -> Iterator[Demo]:
    """Set up a demo, and print each step. At the end, kill all processes that are left."""
    terminal = Terminal()
    with _practice() as cluster:
        _introduce(cluster, terminal)
        settings = KernelSettings(ROUTE, config=str(cluster.ssh_config), python=sys.executable, gpus=1)
        spec = kernelspecs.write(WORK, settings, prefix=cluster.folder / "jupyter")
        terminal.say("kernelspec", f"Remote GPU ({WORK}), as “jupyter gpu-kernel add” writes it")
        with HubClient() as hub:
            terminal.say("hub", "one local process for all front ends, which holds the SSH connection")
            yield Demo(terminal, cluster, hub, spec)


def _introduce(cluster: Cluster, terminal: Terminal) -> None:
    simulated = f"{gpus.COUNT} SIMULATED ones; the first one is in use"
    for text in (
        f"all files of this demo are in the folder {cluster.folder} until it ends",
        f"{LOGIN}: the demo's SSH server on 127.0.0.1 port {cluster.port}",
        f"{WORK}: has no port, can be reached only through {LOGIN} (both are this machine)",
        f"GPUs: {simulated if cluster.simulated else 'the real GPUs of this machine'}",
    ):
        terminal.say("cluster", text)


def check_connection(demo: Demo) -> bool:
    """Check the connection as `jupyter gpu-kernel check` does, and print the steps. Return whether all succeed."""
    demo.terminal.say(
        "check", f"the connection to {WORK}, hop by hop; it sends the agent, our code on the work node"
    )
    rows = demo.hub.call("check", timeout=60, **demo.spec.for_hub)
    for row in rows:
        text = f"{row['step']}: {row['message'] or ('ok' if row['ok'] else 'failed')}"
        demo.terminal.say(row["hop"] or "here", f"{text} ({row['seconds'] * 1000:.0f} ms)")
        if not row["ok"]:
            demo.terminal.say("", row["remedy"])
    return all(row["ok"] for row in rows)


def stop_kernels(demo: Demo) -> None:
    """Stop the kernels that are still running."""
    for row in demo.hub.call("ps", specs=[demo.spec.for_hub], timeout=30):
        if "id" in row and row.get("state") != "ended":
            demo.terminal.say("stop", f"kernel {row['id']}")
            demo.hub.call("stop", kernel=row["id"], specs=[demo.spec.for_hub], timeout=30)


def end(demo: Demo) -> bool:
    """Stop the hub. Return whether no process of the demo is left."""
    try:
        demo.hub.call("shutdown", timeout=10)
    except GpuKernelError as error:
        return demo.terminal.check(False, f"the hub did not stop: {error}")
    deadline = time.monotonic() + _END_TIMEOUT
    while (remaining := processes(demo.cluster.folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    running = f"; still running: {remaining}" if remaining else ""
    return demo.terminal.check(not remaining, f"kernel, agent and hub ended by themselves{running}")


# --- the folder and its environment


@contextlib.contextmanager
def _practice() -> Iterator[Cluster]:
    """Start a cluster, and set this process's environment. At the end, also by SIGTERM, end and remove the cluster."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    # The paths of sockets are short: do not use a long TMPDIR.
    parent = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="jgk-demo-", dir=parent))
    try:
        _set_environment(folder)
        cluster = Cluster(folder, real_gpus=gpus.spare_real_gpu())
        yield cluster
        cluster.cut()
    finally:
        end_processes(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _set_environment(folder: Path) -> None:
    """Let Jupyter and our hub use folders of the demo only."""
    places = {
        "JUPYTER_DATA_DIR": "jupyter/data",
        "JUPYTER_PATH": "jupyter/share/jupyter",
        "JUPYTER_CONFIG_DIR": "jupyter/config",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "IPYTHONDIR": "jupyter/ipython",
        "XDG_RUNTIME_DIR": "run",  # the hub's folder is here
    }
    for variable, path in places.items():
        (folder / path).mkdir(mode=0o700, parents=True)
        os.environ[variable] = str(folder / path)
    os.environ[MARK] = str(folder)
    # The demo finds its processes by a variable in their environment, which the hub otherwise hides.
    config = folder / places["JUPYTER_CONFIG_DIR"] / "jupyter_gpu_kernel_config.json"
    config.write_text(json.dumps({"HubApp": {"private_memory": False}}))


# --- the output


class Terminal:
    """The demo's output: lines with the time since its start, and between them the kernel's output. Thread-safe."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._at_line_start = True

    def say(self, who: str, text: str) -> None:
        """Print one or more lines about `who`, a hop or a part of the package."""
        seconds = f"{time.monotonic() - self._began:5.1f} s"
        with self._lock:
            if not self._at_line_start:
                self._write("\n")
            first, *more = text.splitlines() or [""]
            self._write(f"{seconds}  {who:<11} {first}\n")
            for line in more:
                self._write(f"{'':20} {line}\n")

    def check(self, ok: bool, text: str) -> bool:
        """Print the result of a check, and return the result."""
        self.say("ok" if ok else "FAILED", text)
        return ok

    def text(self, text: str) -> None:
        """Print the kernel's output, indented."""
        with self._lock:
            for line in text.splitlines(keepends=True):
                self._write(f"{'':20} | {line}" if self._at_line_start else line)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
        self._at_line_start = text.endswith("\n")
