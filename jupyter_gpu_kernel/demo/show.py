"""The demo as a story on the terminal: hop by hop, cell by cell, trouble on purpose, and the judgement.

A face like any other: it asks the hub through the client, and nbclient or JupyterLab start the kernel.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .. import kernelspecs
from ..client import HubClient
from ..errors import GpuKernelError, SettingsError
from . import gpus
from .cluster import LOGIN, ROUTE, WORK, Cluster, processes
from .sandbox import practice
from .terminal import Terminal

KERNEL = "gpu-demo"
_QUESTIONS = {"@jupyterlab/apputils-extension:announcements": True}  # it asks whether news may be fetched
_GONE_WITHIN = 15.0  # seconds for everything to end by itself


def show() -> int:
    """Run it all; 0 if everything that was promised held."""
    _require("nbclient", "runs a notebook with nbclient")
    terminal = Terminal()
    with practice() as cluster:
        settings = _introduce(cluster, terminal)
        held = _walk(settings, terminal) and _run_notebook(cluster, settings, terminal)
        held = _end(cluster, terminal) and held
    held = terminal.check(not cluster.folder.exists(), "the folder is gone") and held
    terminal.say("demo", "everything held" if held else "something did NOT hold")
    return 0 if held else 1


def show_lab() -> int:
    """JupyterLab on the cluster, until Ctrl-C. Its exit status."""
    _require("nbformat", "writes a notebook with nbformat")
    _require("jupyterlab", "opens JupyterLab")
    terminal = Terminal()
    with practice() as cluster:
        settings = _introduce(cluster, terminal)
        if not _walk(settings, terminal):
            return 1
        terminal.say("JupyterLab", "opens. Ctrl-C ends it, and the cluster with it.")
        status = _foreground(_lab_command(cluster.folder))
        _stop_kernels(settings)
        _end(cluster, terminal)
    return status


def _require(module: str, what: str) -> None:
    if importlib.util.find_spec(module) is None:
        remedy = f"{sys.executable} -m pip install {module}"
        raise SettingsError(f"the demo {what}, which is not installed", remedy=remedy)


# --- the steps


def _introduce(cluster: Cluster, terminal: Terminal) -> dict[str, Any]:
    """Say what there is, and write the kernelspec; its settings."""
    terminal.say("cluster", f"{LOGIN}: our own SSH server on 127.0.0.1 port {cluster.port}")
    terminal.say("cluster", f"{WORK}: no port at all, reached through {LOGIN} only (both are this machine)")
    if cluster.simulated:
        terminal.say("cluster", f"GPUs: SIMULATED, {gpus.COUNT} of them, somebody is on the first")
    else:
        terminal.say("cluster", "GPUs: the real ones of this machine")
    settings = {
        "route": list(ROUTE),
        "config": str(cluster.ssh_config),
        "python": sys.executable,
        "gpus": 1,
    }
    kernelspecs.write(KERNEL, settings, prefix=cluster.folder / "jupyter")
    terminal.say("kernelspec", f"Remote GPU ({KERNEL}), as “jupyter gpu-kernel add” writes it")
    return settings


def _walk(settings: dict[str, Any], terminal: Terminal) -> bool:
    """The way hop by hop, as `jupyter gpu-kernel check` goes it."""
    with HubClient() as client:
        rows = client.call("check", settings=settings, timeout=60)
    for row in rows:
        words = f"{row['step']}: {row['message'] or ('ok' if row['ok'] else 'failed')}"
        terminal.say(row["hop"] or "here", f"{words} ({row['seconds'] * 1000:.0f} ms)")
        if not row["ok"]:
            terminal.say("", row["remedy"])
    return all(row["ok"] for row in rows)


def _run_notebook(cluster: Cluster, settings: dict[str, Any], terminal: Terminal) -> bool:
    from . import notebook as nb  # needs nbclient
    from .trouble import Trouble

    trouble = Trouble(cluster, lambda text: terminal.say("!", text))

    def on_text(text: str) -> None:
        terminal.text(text)
        trouble.heard(text)

    notebook = nb.make(KERNEL)
    terminal.say("notebook", "nbclient starts the kernel; its first cell takes a GPU that nobody uses")
    try:
        nb.Runner(notebook, lambda number, code: terminal.say(f"In [{number}]", code), on_text).run()
    except Exception as error:  # nbclient's many, and ours through the provisioner: all mean the same here
        return terminal.check(False, f"the notebook did not come to its end: {error}")
    finally:
        trouble.end()
    where, gpu, long, alive, guard = nb.outputs(notebook)
    _tell_story(nb.kernel_in(guard), settings, terminal)
    checks = (
        (
            nb.numbers_in(long) == list(range(nb.NUMBERS)),
            f"all {nb.NUMBERS} numbers came, once each, in order",
        ),
        (trouble.signalled and "1 SIGTERM" in guard, "the kernel got one SIGTERM and stayed"),
        (trouble.cut, "the link was cut, and came back"),
        (nb.process_in(alive) == nb.process_in(where) > 0, "it is the same process"),
        (str(sum(range(nb.NUMBERS))) in alive, "its variables are alive"),
        (_fits(gpu, cluster.simulated), "it had a GPU that nobody else was on"),
    )
    held = [terminal.check(ok, text) for ok, text in checks]  # every one is told
    return all(held)


def _fits(gpu: str, simulated: bool) -> bool:
    """Whether `nvidia-smi -L` showed one GPU, of the right kind; of the simulated ones the first is taken."""
    return gpu.count("GPU-") == 1 and (gpus.NAME in gpu) == simulated and not (simulated and "GPU 0:" in gpu)


def _tell_story(kernel: str, settings: dict[str, Any], terminal: Terminal) -> None:
    """What the work node wrote down of the kernel, as `jupyter gpu-kernel logs` shows it."""
    with HubClient(start=False) as client:
        story = client.call("logs", kernel=kernel, specs=[{"settings": settings}], timeout=30)
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(line['time']))} {line['text']}" for line in story]
    terminal.say("logs", "\n".join(lines))


def _stop_kernels(settings: dict[str, Any]) -> None:
    """Those that JupyterLab left running."""
    specs = [{"settings": settings}]
    with HubClient() as client:
        for row in client.call("ps", specs=specs, timeout=30):
            if "id" in row and row.get("state") != "ended":
                client.call("stop", kernel=row["id"], specs=specs, timeout=30)


def _end(cluster: Cluster, terminal: Terminal) -> bool:
    """The kernel has been shut down by its front end; the hub ends when asked; then nothing may be left."""
    try:
        with HubClient(start=False) as client:
            client.call("shutdown", timeout=10)
    except GpuKernelError as error:
        return terminal.check(False, f"the hub did not end: {error}")
    deadline = time.monotonic() + _GONE_WITHIN
    while (left := processes(cluster.folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    names = [_command(pid) for pid in left]
    return terminal.check(not left, "kernel, agent and hub have ended by themselves" + "".join(names))


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:  # ended in this moment
        return ""
    return f"\nnot {pid}: {' '.join(words)[:100]}"


# --- JupyterLab


def _lab_command(folder: Path) -> list[str]:
    from . import notebook as nb

    file = folder / "notebooks" / "demo.ipynb"
    file.parent.mkdir()
    file.write_text(json.dumps(nb.make(KERNEL)))
    page = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": _QUESTIONS}))
    command = [sys.executable, "-m", "jupyterlab", "-y", f"--ServerApp.root_dir={file.parent}", str(file)]
    return [*command, "--allow-root"] if os.geteuid() == 0 else command


def _foreground(command: list[str]) -> int:
    """Run it to its end; Ctrl-C is for it, and it gets it from the terminal as we do."""
    process = subprocess.Popen(command)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue
        except BaseException:
            process.terminate()
            process.wait(10)
            raise
