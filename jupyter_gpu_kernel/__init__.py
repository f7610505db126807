"""Remote GPU kernels for Jupyter. This module has the version and the hooks that Jupyter calls, and imports little.

`provisioner.py` and `launcher.py` start kernels for front ends, by `served_kernel.py` and `client.py`, which calls the
hub. `settings/`, `kernelspecs/` and `adding.py` are about what users configure; `saved_answers.py` stores their answers
to a host that they sign in to; `program.py` finds our program. `cli/` has the commands, `server/` Jupyter's server
extension. `hub/` is the user's one process for all kernels, `agent/` what runs on the work node, `wire/` the protocol
of both, `demo/` a practice cluster. `errors.py` has the errors that users see.
"""

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
