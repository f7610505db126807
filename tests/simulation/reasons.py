"""Why a cell did not run to its end. Each such cell needs a reason that concerns it, by the words of its reply: an
interrupt that the hub got after the cell, a failed cell of the same client before it, or the end of its kernel.

That a hub or a keeper was killed, or that a link was down, is no reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from .kernel import Executed
from .oracle import Disturbance, Request, fails, was_taken
from .world import Failure

if TYPE_CHECKING:
    from .world import World

ENDS = ("crash", "ended", "reboot", "host left", "job ended", "taken")
"""What ends a kernel, or takes it from its front ends."""
_OF_AN_END = ("DeadKernelError", "KernelStartError")
"""The names of errors that tell of such an end."""
REQUESTED_ENDS = ("restart", "shutdown")
"""What users do to end a kernel, which takes its time."""
_TAKES_TIME = 30.0
"""Seconds at most until a kernel has ended that its user ends, and another one runs."""


class Interrupt(NamedTuple):
    """A user has interrupted the kernel of a notebook. `name`: of the request; "" for a command."""

    notebook: str
    at_hub: float
    name: str = ""


class Reasons:
    """`check` each request at the end of an episode."""

    def __init__(
        self,
        world: World,
        requests: list[Request],
        disturbances: list[Disturbance],
        commands: list[Interrupt],
    ) -> None:
        """`commands`: the interrupts that were no requests."""
        self._world, self._requests, self._disturbances = world, requests, disturbances
        self._interrupts = [*commands, *_requested(requests)]

    def check(self, request: Request) -> None:
        """Raise Failure if the request is a cell that has ended without a reason."""
        if request.cell is None or not request.replies or request.client.gone or was_taken(request):
            return
        if not self._ran(request) and not any(self._reasons(request)):
            raise Failure("did not run", f"{request}: {request.replies[0]} {json.dumps(request.cell)[:100]}")

    def interrupted_at(self, request: Request) -> list[float]:
        """Return when a hub has got interrupts of the kernel that this request is for."""
        return [one.at_hub for one in self._interrupts if one.notebook == request.client.notebook]

    def _runs(self, request: Request) -> list[Executed]:
        return self._world.executed.get(request.name, [])

    def _ran(self, request: Request) -> bool:
        runs = self._runs(request)
        return bool(runs) and runs[0].status == ("error" if fails(request.cell) else "ok")

    def _reasons(self, request: Request) -> Iterator[bool]:
        reply = request.replies[0]
        name = reply.get("ename", "")
        if reply["status"] == "ok":  # code of the front end itself, which was answered before it ran
            yield not request.user_cell and any(self._ends(request, 0.0, 1e9))
            yield not request.user_cell and any(one.at_hub >= request.at_hub for one in self._interrupts)
            yield not request.user_cell and request.name in self._world.aborted
            yield not request.user_cell and self._is_forgotten(request)
            yield not request.user_cell and any(
                self._is_failure_before(one, request) for one in self._requests
            )
            return
        if name in _OF_AN_END:
            yield from self._ends(request, 0.0, request.replied_at)
            yield self._may_have_no_host(request)
        elif reply["status"] == "aborted":
            yield from self._ends(request, request.sent_at, request.replied_at)
        if name not in _OF_AN_END:
            yield any(self._concerns(one, request) for one in self._interrupts)
        if reply["status"] == "aborted":
            failed = self._world.all_requests.get(self._world.aborted.get(request.name, ""))
            # Without the log a successor does not know that the front end of the cell that failed has left.
            unknown = request.was_pending("log lost")
            yield failed is not None and (unknown or failed.client not in request.client.former)
            yield any(self._is_failure_before(other, request) for other in self._requests)
            yield any(_was_not_started_before(other, request) for other in self._requests)

    def _is_forgotten(self, request: Request) -> bool:
        """Whether a killed hub has answered the request before the start, and could not write that on a full disk."""
        killed = (at for at in self._world.times["hub killed"] if request.sent_at <= at)
        return self._world.starts_later and self._world.disk_was_full and any(killed)

    def _may_have_no_host(self, request: Request) -> bool:
        """Whether all hosts may have been out of reach, and one of them in the moment when its agent started."""
        cut = (one.at for one in self._disturbances if one.kind == "cut")
        told = "did not send its greeting" in request.replies[0]["evalue"]
        return told and any(request.sent_at <= at <= request.replied_at for at in cut)

    def _ends(self, request: Request, since: float, until: float) -> Iterator[bool]:
        """The kernel has ended in this time, or was about to."""
        for one in self._disturbances:
            if one.notebook in ("", request.client.notebook) and one.at <= until:
                yield one.kind in ENDS and one.at >= since
                yield one.kind in REQUESTED_ENDS and one.at >= request.sent_at - _TAKES_TIME

    def _concerns(self, interrupt: Interrupt, request: Request) -> bool:
        """Whether the hub has got the interrupt after the cell, and before the cell had ended."""
        return interrupt.notebook == request.client.notebook and (
            request.at_hub <= interrupt.at_hub <= request.replied_at
        )

    def _is_failure_before(self, other: Request, request: Request) -> bool:
        """Whether the front end has sent `request` when it did not know yet that its cell `other` had failed; or when
        a killed hub had not told the keeper that the front end knew, and no cell has run since."""
        if other is request or other.client is not request.client or not other.content.get("stop_on_error"):
            return False
        failed = any(one.get("status") == "error" for one in other.replies)
        if not failed or other.sent_at > request.sent_at:
            return False
        killed = (at for at in self._world.times["hub killed"] if other.sent_at <= at <= request.replied_at)
        return request.sent_at < other.replied_at or (
            any(killed) and not self._has_run_between(other, request)
        )

    def _has_run_between(self, first: Request, last: Request) -> bool:
        between = (
            one for one in first.client.requests.values() if first.sent_at < one.sent_at < last.sent_at
        )
        return any(self._runs(one) for one in between)


def _was_not_started_before(other: Request, request: Request) -> bool:
    """Whether no kernel was started for the cell `other` of any client, behind which `request` waited."""
    name = other.replies[0].get("ename", "") if other.replies else ""
    is_same = other.client.notebook == request.client.notebook
    return is_same and name in _OF_AN_END and other.sent_at < request.sent_at <= other.replied_at


def _requested(requests: Iterable[Request]) -> Iterator[Interrupt]:
    """Return the interrupts among these requests that were not refused."""
    for one in requests:
        refused = any(reply.get("ename") == "NotOwner" for reply in one.replies)
        if one.msg_type == "interrupt_request" and not refused:
            yield Interrupt(one.client.notebook, one.at_hub, one.name)
