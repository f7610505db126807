"""`demo --lab`: JupyterLab on the practice cluster, in the foreground, until Ctrl-C."""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import threading
from pathlib import Path

from . import control
from .setup import NOTEBOOKS, Demo, check_connection, end, running_demo, stop_kernels

_DISABLED = {"@jupyterlab/apputils-extension:announcements": True}  # it asks whether to fetch news
_EXTENSION = "jupyter-gpu-kernel"
_NOT_BUILT = """the JupyterLab extension is not built: npm was not found, or the build failed. Without it, JupyterLab
has no item in the status bar, and does not restore outputs after a reload of the page.
Install Node.js (20.19 or newer), end this with Ctrl-C, and run it again."""


def run_in_lab() -> int:
    """Run JupyterLab. Return 0 if it ends normally and leaves nothing behind, else 1."""
    with running_demo() as demo:
        if not check_connection(demo):
            return 1
        command = _prepared(demo)
        demo.terminal.say("JupyterLab", "starts. Ctrl-C stops it, and the cluster.")
        threading.Thread(target=_cut_on_request, args=(demo,), name="demo cut", daemon=True).start()
        signal.signal(signal.SIGINT, lambda number, frame: None)  # JupyterLab gets it, too, and asks the user
        status = subprocess.call(command)
        demo.cluster.restore()
        stop_kernels(demo)
        return 0 if end(demo) and status == 0 else 1


def _prepared(demo: Demo) -> list[str]:
    """Write the notebooks and JupyterLab's settings. Return the command that starts it."""
    if not _link_extension():
        demo.terminal.say("JupyterLab", _NOT_BUILT)
    folder = demo.cluster.folder / "notebooks"
    folder.mkdir()
    for name in ("demo.ipynb", "trouble.ipynb"):
        shutil.copy(NOTEBOOKS / name, folder)
    page = Path(os.environ["JUPYTER_CONFIG_DIR"]) / "labconfig" / "page_config.json"
    page.parent.mkdir()
    page.write_text(json.dumps({"disabledExtensions": _DISABLED}))
    command = [sys.executable, "-m", "jupyterlab", "-y", f"--ServerApp.root_dir={folder}"]
    # Looking for language servers runs npm, which writes into the home folder.
    command += ["--LanguageServerManager.autodetect=False"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    return [*command, str(folder / "demo.ipynb")]


def _link_extension() -> bool:
    """Let JupyterLab find our extension, which a checkout does not install. Return whether it is built."""
    shared = Path("share", "jupyter", "labextensions", _EXTENSION)
    in_package = Path(__file__).parents[1] / "labextension"
    for folder in (in_package, sys.prefix / shared, site.getuserbase() / shared):
        if (folder / "package.json").exists():
            link = Path(os.environ["JUPYTER_PATH"], "labextensions", _EXTENSION)
            link.parent.mkdir()
            link.symlink_to(folder.resolve())
            return True
    return False


def _cut_on_request(demo: Demo) -> None:
    """Cut the link while a notebook is connected to the socket for that, until this process ends."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(demo.cluster.folder / control.SOCKET))
        listener.listen()
        while True:
            notebook, _ = listener.accept()
            with notebook:
                demo.cluster.cut()
                demo.terminal.say("!", "the link is cut; the kernel keeps running on the work node")
                notebook.sendall(b".")
                notebook.recv(1)
            demo.cluster.restore()
            demo.terminal.say("!", "the link is restored")
