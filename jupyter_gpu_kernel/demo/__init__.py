"""`jupyter gpu-kernel demo`: the main job on this machine alone, told step by step.

A practice cluster (cluster.py, server.py, gpus.py) in a folder of its own (sandbox.py), a kernelspec for it,
a notebook run by nbclient (notebook.py) while its kernel gets a SIGTERM and its link is cut (trouble.py), and
a judgement (show.py); or JupyterLab on it (lab.py). It uses the product as any front end does, and must not
know how that works inside.
"""

from __future__ import annotations

import importlib.util
import sys

from ..errors import SettingsError


def run_demo(lab: bool = False) -> int:
    """Run the demo, or JupyterLab on its cluster until Ctrl-C. 0: all that was promised held; else 1.

    To be called in the main thread of a process that does nothing else: it changes the environment while it
    runs. Raises SettingsError where it cannot run.
    """
    if sys.platform != "linux":
        raise SettingsError(
            "the practice cluster needs Linux: its work node is this machine",
            remedy="Run the demo on Linux or in WSL. Real work nodes can be used from here all the same.",
        )
    try:
        return _lab() if lab else _story()
    except KeyboardInterrupt:  # everything is put away by now
        return 130


def _story() -> int:
    _require("nbclient")
    from .show import show

    return show()


def _lab() -> int:
    _require("nbclient", "jupyterlab")
    from .lab import show_lab

    return show_lab()


def _require(*modules: str) -> None:
    """What the demo alone needs, and the package does not bring."""
    missing = [module for module in modules if importlib.util.find_spec(module) is None]
    if missing:
        raise SettingsError(
            f"the demo needs {' and '.join(missing)}",
            remedy=f"{sys.executable} -m pip install {' '.join(missing)}",
        )
