"""Functions for the demo's notebook trouble.ipynb, which cause failures. They run in a local kernel of JupyterLab."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

from .. import kernelspecs
from ..client import HubClient
from .cluster import MARK, WORK

SOCKET = "cut"
"""The socket in the demo's folder, which no other user can enter. The link is cut while somebody is connected to it."""
RESTART = "restart"
"""The file in the demo's folder that says how JupyterLab is started again: {"seconds", "port"}."""


def cut(seconds: float = 10) -> None:
    """Cut the link between this machine and the practice cluster."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(Path(os.environ[MARK], SOCKET)))
        sock.recv(1)
        print(f"The link is cut for {seconds:g} s. The kernel keeps running on the work node.", flush=True)
        time.sleep(seconds)
    print("The link is restored.")


def sigterm() -> None:
    """Send SIGTERM to the kernels on the practice work node."""
    spec = kernelspecs.find(WORK)
    with HubClient() as hub:
        rows = hub.call("ps", specs=[spec.for_hub], timeout=30)
    pids = [row["pid"] for row in rows if row.get("pid") and row["state"] != "ended"]
    for pid in pids:
        print(f"kill -TERM {pid}")
        os.kill(pid, signal.SIGTERM)
    if not pids:
        print("No kernel runs on the work node, or the link is cut. Run a cell of demo.ipynb first.")


def restart_server(seconds: float = 5) -> None:
    """Stop the Jupyter server, and with it the kernel of the calling cell; the demo starts the server again later, on
    the same port, so that an open page finds it."""
    server = os.getppid()
    file = Path(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{server}.json")
    port = json.loads(file.read_text())["port"]
    Path(os.environ[MARK], RESTART).write_text(json.dumps({"seconds": seconds, "port": port}))
    print(f"The Jupyter server stops now, and starts again in {seconds:g} s.")
    os.kill(server, signal.SIGTERM)
