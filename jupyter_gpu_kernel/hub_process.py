"""Connect to the hub's local socket, and start the hub's process if none answers."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection, answer_challenge, deliver_challenge
from typing import Any

from .errors import HubError
from .hub.paths import hub_address, hub_folder, hub_key

START_TIMEOUT = 30.0
SPAWN_INTERVAL = 3.0
"""Seconds until a hub is started again: the first process may have found one that was just ending."""
_POLL_INTERVAL = 0.02
_LONGEST_LOG = 2000  # characters of a log in a message


def connect_or_start() -> Connection[Any, Any]:
    """An authenticated connection to the hub, which is started if none answers. HubError.

    Several processes may call this at the same time: the hub's lock file decides whose hub stays.
    """
    deadline = time.monotonic() + START_TIMEOUT
    command = [sys.executable, "-m", "jupyter_gpu_kernel.hub.app", "spawn"]
    spawned_at = -SPAWN_INTERVAL
    while (connection := _try_to_connect()) is None:
        now = time.monotonic()
        if now > deadline:
            raise _start_error()
        if now - spawned_at > SPAWN_INTERVAL:
            # `python -m` searches the current folder first, which may contain a module named like ours.
            done = subprocess.run(command, stderr=subprocess.PIPE, check=False, cwd=str(hub_folder()))
            if done.returncode:
                raise _start_error(done.stderr.decode("utf-8", "replace"))
            spawned_at = time.monotonic()
        time.sleep(_POLL_INTERVAL)
    return connection


def connect() -> Connection[Any, Any]:
    """An authenticated connection to the hub. HubError if none is running."""
    connection = _try_to_connect()
    if connection is None:
        raise HubError("there is no local hub: no remote kernel is in use")
    return connection


def _try_to_connect() -> Connection[Any, Any] | None:
    try:
        connection = Client(hub_address())
    except OSError:
        return None
    try:
        key = hub_key()
        answer_challenge(connection, key)
        deliver_challenge(connection, key)
    except (AuthenticationError, OSError, EOFError):
        connection.close()
        return None
    return connection


def _start_error(output: str = "") -> HubError:
    with contextlib.suppress(OSError):
        output = output or (hub_folder() / "start.log").read_text(errors="replace")
    output = output[-_LONGEST_LOG:].strip()
    return HubError(
        "the local hub did not start" + (f":\n{output}" if output else ""),
        remedy=f"Its log is in {hub_folder()}.",
    )
