"""Remote GPU kernels for Jupyter: version and the hooks Jupyter looks for. Imports nothing heavy."""

from __future__ import annotations

__version__ = "0.1.0"
