"""The environment of a kernel's process: the user's, as if their Python was activated, with our own variables."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Dict

from ..kernel_context import KernelContext

_PRIVATE = ("JPY_PARENT_PID", "JPY_SESSION_NAME", "JUPYTER_GPU_KERNEL_SPARE", "JUPYTER_GPU_KERNEL_SPARE_IDLE")


def kernel_environment(context: KernelContext, gpus: Dict[str, str]) -> Dict[str, str]:
    """Return the environment. The setting `env` overrides everything but our own variables."""
    settings, root = context.settings.now, context.root.path
    env = {key: value for key, value in context.loop.runtime.environ.items() if key not in _PRIVATE}
    env.update(_activated(env))
    env.update(_ipython_folder(env, root))
    env.update(settings.env)
    env.update(gpus)
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["JUPYTER_GPU_KERNEL_ID"] = settings.id
    env["JUPYTER_GPU_KERNEL_ROOT"] = str(root)  # shows which agent a leftover process belongs to
    env["JUPYTER_GPU_KERNEL_STORY"] = str(context.folder / "story")
    env["JUPYTER_GPU_KERNEL_SIGTERM"] = settings.sigterm
    if settings.job:
        env["JUPYTER_GPU_KERNEL_JOB"] = settings.job
        # With sbatch --export this keeps the variables of the kernel from what `srun` starts.
        env.pop("SLURM_EXPORT_ENV", None)
    if settings.guard_linger is not None:
        env["JUPYTER_GPU_KERNEL_LINGER"] = str(settings.guard_linger)
    return env


def _activated(env: Dict[str, str]) -> Dict[str, str]:
    """The variables that `conda activate` or `source bin/activate` sets, as far as programs use them."""
    folder = os.path.dirname(sys.executable)
    found = {"PATH": os.pathsep.join([folder, env.get("PATH", os.defpath)])}
    if os.path.isdir(os.path.join(sys.prefix, "conda-meta")):
        found["CONDA_PREFIX"] = sys.prefix
        found["CONDA_DEFAULT_ENV"] = os.path.basename(sys.prefix)
    elif sys.prefix != sys.base_prefix:
        found["VIRTUAL_ENV"] = sys.prefix
    return found


def _ipython_folder(env: Dict[str, str], root: Path) -> Dict[str, str]:
    """The user's IPython folder if it has a profile and is writable, else ours: a full home must not end a kernel."""
    own = Path(env.get("IPYTHONDIR") or os.path.expanduser("~/.ipython"))
    if (own / "profile_default").is_dir() and _writable(own / "profile_default"):
        return {}
    return {"IPYTHONDIR": str(root / "ipython")}


def _writable(folder: Path) -> bool:
    probe = folder / ".jupyter-gpu-kernel-probe"
    try:
        with open(str(probe), "wb") as file:
            file.write(b"x" * 4096)
        probe.unlink()
    except OSError:
        return False
    return True
