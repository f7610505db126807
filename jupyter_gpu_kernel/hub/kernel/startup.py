"""Waits until a starting kernel can be used, or raises why it never will be. It knows no front end."""

from __future__ import annotations

import asyncio
import contextlib
import time

from ...errors import ConnectError, GpuKernelError, KernelStartError
from .. import sanitize
from .remote_kernel import RemoteKernel
from .states import LinkState

START_TIMEOUT = 120.0
"""Seconds, for a slow file system; permanent errors are raised much earlier."""


async def until_up(remote: RemoteKernel) -> None:
    """Return when the kernel answers, or was shut down meanwhile; raise why it never will."""
    deadline = time.monotonic() + START_TIMEOUT
    changed = asyncio.Event()
    with remote.watched(changed.set):
        await remote.link.up()
        while remote.status["state"] not in ("idle", "busy", "waiting"):
            if remote.ended and remote.status.get("asked"):
                return
            _raise_if_failed(remote)
            changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.1, deadline - time.monotonic()))
            if time.monotonic() > deadline:
                raise _timed_out(remote)


async def until_attached(remote: RemoteKernel) -> None:
    """Return when the link carries the kernel (again), or never will."""
    changed = asyncio.Event()
    settled = (LinkState.UP, LinkState.LOST, LinkState.TAKEN)
    with remote.watched(changed.set):
        while remote.link_state not in settled and not remote.closed:
            changed.clear()
            await changed.wait()


def _raise_if_failed(remote: RemoteKernel) -> None:
    if remote.ended:
        raise remote.error or _ended_early(remote)
    if remote.taken_cause:
        raise KernelStartError(remote.taken_cause, hop=remote.link.name, remedy="Use it there.")
    if remote.link.problem is not None and remote.link.problem.login:
        raise remote.link.problem  # the link is down, and only its user can sign in again


def _timed_out(remote: RemoteKernel) -> GpuKernelError:
    if remote.link_state is not LinkState.UP:
        cause = f"the connection has been down for {START_TIMEOUT:.0f} s"
        return ConnectError(cause, hop=remote.link.name, remedy="Try again when the connection is back.")
    return KernelStartError(f"the kernel did not answer in {START_TIMEOUT:.0f} s", hop=remote.link.name)


def _ended_early(remote: RemoteKernel) -> GpuKernelError:
    stderr = sanitize.block(_without_traceback(str(remote.status.get("stderr") or "")))
    cause = f"the kernel ended while it started: {remote.status.get('cause') or '?'}"
    remedy = "Try its Python by hand on the node: PYTHON -m ipykernel_launcher --version"
    return KernelStartError(
        f"{cause}; its output:\n{stderr}" if stderr else cause, hop=remote.link.name, remedy=remedy
    )


def _without_traceback(stderr: str) -> str:
    """Return the exception without its traceback, which leads through Python's and our own files."""
    _, found, traceback = stderr.rpartition("Traceback (most recent call last):\n")
    if not found:
        return stderr
    lines = traceback.splitlines()
    at = next((n for n, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return "\n".join(lines[at:]) or stderr
