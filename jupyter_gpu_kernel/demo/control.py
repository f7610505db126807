"""Functions for the demo's notebook trouble.ipynb, which cause failures. They run in a local kernel of JupyterLab."""

from __future__ import annotations

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
