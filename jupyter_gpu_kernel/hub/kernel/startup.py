"""A kernel on its way up: when it can be spoken to, and why it never will be. It knows no front end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from ...errors import ConnectError, GpuKernelError, KernelStartError
from .. import inert
from .remote_kernel import RemoteKernel

WITHIN = 120.0
"""Seconds for a slow file system; what is permanent is said much earlier."""


async def until_up(remote: RemoteKernel) -> None:
    """Returns when the kernel answers, or was shut down meanwhile; raises why it never will."""
    deadline = time.monotonic() + WITHIN
    changed = asyncio.Event()

    def watcher(_: dict[str, Any]) -> None:
        changed.set()

    remote.watchers.append(watcher)
    try:
        await remote.link.up()
        while remote.state["state"] not in ("idle", "busy", "waiting"):
            if remote.ended and remote.state.get("asked"):
                return
            if remote.ended:
                raise remote.error or _early_end(remote)
            if remote.taken:
                raise KernelStartError(remote.taken, hop=remote.link.name, remedy="Use it there.")
            if remote.link.problem is not None and remote.link.problem.login:
                raise remote.link.problem  # the link went down, and its owner alone can bring it back
            changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.1, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise _late(remote)
    finally:
        with contextlib.suppress(ValueError):  # it was ended meanwhile
            remote.watchers.remove(watcher)


async def until_attached(remote: RemoteKernel) -> None:
    """Returns when the link carries the kernel (again), or never will."""
    changed = asyncio.Event()

    def watcher(_: dict[str, Any]) -> None:
        changed.set()

    remote.watchers.append(watcher)
    try:
        while remote.link_state not in ("up", "lost", "taken") and not remote.closed:
            changed.clear()
            await changed.wait()
    finally:
        with contextlib.suppress(ValueError):  # it was ended meanwhile
            remote.watchers.remove(watcher)


def _late(remote: RemoteKernel) -> GpuKernelError:
    if remote.link_state != "up":
        cause = f"the connection has been down for {WITHIN:.0f} s"
        return ConnectError(cause, hop=remote.link.name, remedy="Try again when it is back.")
    return KernelStartError(f"the kernel did not answer in {WITHIN:.0f} s", hop=remote.link.name)


def _early_end(remote: RemoteKernel) -> GpuKernelError:
    said = inert.block(_gist(str(remote.state.get("stderr") or "")))
    cause = f"the kernel ended while it started: {remote.state.get('cause') or '?'}"
    remedy = "Try its Python by hand on the node: PYTHON -m ipykernel_launcher --version"
    return KernelStartError(
        f"{cause}; it says:\n{said}" if said else cause, hop=remote.link.name, remedy=remedy
    )


def _gist(said: str) -> str:
    """The exception without the way to it, which leads through Python's and our own files."""
    _, found, traceback = said.rpartition("Traceback (most recent call last):\n")
    if not found:
        return said
    lines = traceback.splitlines()
    at = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[at:]) or said
