"""A folder for one demo, and an environment in which Jupyter and our hub use nothing outside it.

Every process of the demo has a variable in its environment that names the folder, so that all of them can be ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

from . import gpus
from .cluster import MARK, Cluster, end_processes


@contextlib.contextmanager
def practice() -> Iterator[Cluster]:
    """Start a cluster and set this process's environment. Undo both at the end, also if SIGTERM ends this process."""
    # The paths of sockets are short: do not use a long TMPDIR.
    parent = "/tmp" if os.access("/tmp", os.W_OK | os.X_OK) else None
    folder = Path(tempfile.mkdtemp(prefix="jgk-demo-", dir=parent))
    with _ended_by_sigterm(), contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(end_processes, folder)
        cluster = Cluster(folder, real_gpus=gpus.spare_real_gpu())
        stack.callback(cluster.stop)
        stack.enter_context(_environment(_jupyter_folders(folder)))
        cluster.start()
        yield cluster


def _jupyter_folders(folder: Path) -> dict[str, str]:
    places = {
        "JUPYTER_DATA_DIR": "jupyter/data",
        "JUPYTER_PATH": "jupyter/share/jupyter",
        "JUPYTER_CONFIG_DIR": "jupyter/config",
        "JUPYTER_RUNTIME_DIR": "jupyter/runtime",
        "IPYTHONDIR": "jupyter/ipython",
        "XDG_RUNTIME_DIR": "run",  # the hub's folder is here
    }
    for path in places.values():
        (folder / path).mkdir(mode=0o700, parents=True)
    # The demo finds its processes by a variable in their environment, which the hub otherwise hides.
    config = folder / places["JUPYTER_CONFIG_DIR"] / "jupyter_gpu_kernel_config.json"
    config.write_text(json.dumps({"HubApp": {"private_memory": False}}))
    return {MARK: str(folder), **{name: str(folder / path) for name, path in places.items()}}


@contextlib.contextmanager
def _environment(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Turn SIGTERM into SystemExit, so that everything is cleaned up."""

    def end(number: int, frame: FrameType | None) -> None:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
