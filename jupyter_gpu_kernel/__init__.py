"""Remote GPU kernels for Jupyter: the version, and the hooks that Jupyter calls. Imports nothing large."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """jupyter_server calls this when it loads extensions."""
    from .server.extension import GpuKernelExtension

    return [{"module": "jupyter_gpu_kernel", "app": GpuKernelExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """`jupyter labextension develop` calls this."""
    return [{"src": "labextension", "dest": "jupyter-gpu-kernel"}]
