"""Starts the hub's process without a parent, so that a front end that kills all its descendants, as VS Code does, does
not kill the hub.

A process between the two starts it and exits at once. Whoever starts a first kernel waits for all this, so the process
between is the shell where there is one, and this module imports little.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import IO

from .paths import hub_folder

START_LOG = "start.log"
_READY = b"ready"
_SERVE = [sys.executable, "-m", "jupyter_gpu_kernel.hub", "serve"]


def spawn(timeout: float) -> bool:
    """Start a hub, and wait until clients can connect to it or to another one. Return False if it ended before that;
    True also if it takes longer than `timeout` seconds. Raises OSError."""
    folder = hub_folder()
    if sys.platform == "win32":
        between, cwd = [sys.executable, "-m", "jupyter_gpu_kernel.hub.spawn"], str(folder)
    else:
        between, cwd = ["/bin/sh", "-c", 'exec "$@" &', "sh", *_SERVE], "/"
    with open(folder / START_LOG, "wb") as log:  # `python -m` searches cwd first: no folder of others
        process = subprocess.Popen(
            between,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=cwd,
            start_new_session=True,
        )
    assert process.stdout is not None
    output: list[bytes] = []
    reader = threading.Thread(target=_read, args=(process.stdout, output), name="hub start", daemon=True)
    reader.start()
    process.wait()
    reader.join(timeout)
    return output != [b""]


def say_ready() -> None:
    """Tell who waits for this hub that clients can connect. Nobody reads its output from now on."""
    with contextlib.suppress(OSError):  # nobody waits any more
        os.write(1, _READY)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _read(pipe: IO[bytes], output: list[bytes]) -> None:
    with pipe:
        output.append(pipe.read(len(_READY)))


if __name__ == "__main__" and sys.platform == "win32":
    subprocess.Popen(
        _SERVE,
        stdin=subprocess.DEVNULL,
        stdout=sys.stdout,
        stderr=sys.stderr,
        creationflags=subprocess.DETACHED_PROCESS | subprocess.CREATE_NEW_PROCESS_GROUP,
    )
