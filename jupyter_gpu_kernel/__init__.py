"""Remote GPU kernels for Jupyter: version and the hooks Jupyter looks for. Imports nothing heavy."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    """Called by jupyter_server when it loads extensions."""
    from .server.extension import GpuKernelExtension

    return [{"module": "jupyter_gpu_kernel", "app": GpuKernelExtension}]


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    """Called by `jupyter labextension develop`."""
    return [{"src": "labextension", "dest": "jupyter-gpu-kernel"}]
