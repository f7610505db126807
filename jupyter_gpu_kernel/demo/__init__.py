"""`jupyter gpu-kernel demo`: a demo of this package on one machine.

It starts a practice cluster (cluster.py, server.py, gpus.py) in a folder of its own, and writes a kernelspec for it
(setup.py). Then nbclient runs a notebook while the kernel gets a SIGTERM and the link is cut, and the results are
checked (show.py); or JupyterLab opens on the cluster (lab.py, control.py). The notebooks are in notebooks/. The demo
uses this package as any front end does, and does not know its internals.
"""

from __future__ import annotations

import importlib.util
import sys

from ..errors import SettingsError


def run_demo(lab: bool = False) -> int:
    """Run the demo, or JupyterLab on its cluster until Ctrl-C. Return 0 if all checks pass, else 1.

    Call it in the main thread of a process that does nothing else, because it changes the environment and the
    handlers of signals. Raises SettingsError if the demo cannot run here.
    """
    if sys.platform != "linux":
        raise SettingsError(
            "the practice cluster needs Linux: its work node is this machine",
            remedy="Run the demo on Linux or in WSL. Real work nodes can be used from this machine.",
        )
    needed = ("nbclient", "jupyterlab") if lab else ("nbclient",)
    missing = [module for module in needed if importlib.util.find_spec(module) is None]
    if missing:
        raise SettingsError(
            f"the demo needs {' and '.join(missing)}",
            remedy=f"“{sys.executable} -m pip install {' '.join(missing)}” installs what is missing.",
        )
    print(
        "A demo on this machine, in a folder of its own. First it starts an SSH server, and looks for GPUs.",
        flush=True,
    )
    from .lab import run_in_lab
    from .show import run_in_terminal

    try:
        return run_in_lab() if lab else run_in_terminal()
    except KeyboardInterrupt:  # everything has been cleaned up by now
        return 130
