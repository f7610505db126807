"""The kernels that one link carries. This module opens and reopens the stream to each keeper, routes the frames, and
lets only one attachment have a kernel.

This module does not dial, ping or reconnect the link; `link.py` does.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from ...errors import AgentError, AgentRefusal, GpuKernelError
from ...wire.messages import Data, MessageError
from ...wire.runtime import Runtime
from ...wire.stream.compression import FEATURE as COMPRESSION
from ...wire.stream.endpoint import ACKNOWLEDGE_WITHIN, Endpoint, EndpointState, ProtocolError, VersionError
from ...wire.stream.frames import CHUNK, Frame, Kind
from ..kernel_settings import KernelSettings
from .stream_threads import StreamThreads

MAX_UNGREETED = 10
"""Attempts in a row to open one attachment without a HELLO from the keeper, until it counts as lost: about 30 s."""
STABLE_AFTER = 10.0
"""Seconds after which a reopened attachment counts as stable, so that the next reopening is not delayed."""
MAX_OPENING = 32
"""Attachments that are opened at a time. The agent refuses more than 64 requests at once."""
MAX_ASSEMBLING = 1024 * 1024 * 1024
"""Bytes of incomplete messages of one node, whose attachments may have 256 MiB each."""
UNCOUNTED = 16 * 1024 * 1024
"""Bytes of an attachment's incomplete messages for which those of the others are not counted: there may be hundreds."""
_FINAL = ("gone", "taken", "protocol")
"""Refusals after which an attachment that was open cannot be opened again. All others may be temporary."""


class Attachment(Protocol):
    """What a link carries for one kernel."""

    @property
    def kernel_id(self) -> str:
        """The kernel that is requested, and then the one that was opened."""

    @property
    def endpoint(self) -> Endpoint:
        """The hub's end of the message stream to the keeper."""

    def open_request(self) -> dict[str, Any]:
        """Return arguments for the agent's `open`, such as {"create": settings}; {} to return to a known keeper."""

    def opened(self, kernel_id: str) -> None:
        """The agent has opened a stream to the kernel with this id, which may be one that the notebook had left."""

    def deliver(self, data: Data) -> None:
        """Take a message of the keeper. Raise MessageError or ProtocolError if a keeper may not send it."""

    def attached(self) -> None:
        """The stream to the keeper is open, for the first time or after an outage."""

    def detached(self, reason: str) -> None:
        """The link is down, and reconnects by itself."""

    def lost(self, error: GpuKernelError) -> None:
        """The keeper cannot be reached any more."""


class ReopenBackoff:
    """The delays between attempts to open one attachment whose keeper hangs up or breaks the protocol.

    `next_delay(previous)` returns the delay that follows another one, in seconds.
    """

    def __init__(self, runtime: Runtime, next_delay: Callable[[float], float]) -> None:
        self._runtime = runtime
        self._next_delay = next_delay
        self._ungreeted = 0
        self._greeted_at: float | None = None
        self._delay = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether the keeper failed to answer HELLO too many times in a row."""
        return self._ungreeted >= MAX_UNGREETED

    def opened(self) -> None:
        """The keeper has answered HELLO."""
        self._ungreeted, self._greeted_at = 0, self._runtime.monotonic()

    def delay(self) -> float:
        """Return the seconds until the next attempt, with jitter: 0 after a stable attachment, else ever more."""
        greeted_at, self._greeted_at = self._greeted_at, None
        if greeted_at is None:
            self._ungreeted += 1
        elif self._runtime.monotonic() - greeted_at > STABLE_AFTER:
            self._delay = 0.0
        delay, self._delay = self._delay, self._next_delay(self._delay)
        return delay * self._runtime.random.uniform(0.7, 1.3)


class _AttachedKernel(NamedTuple):
    attachment: Attachment
    backoff: ReopenBackoff


class Attachments:
    """The attachments of one link, by number. The link reports `connected`, `disconnected` and frames.

    `request(do, …)` asks the agent, as `Link.request` does.
    """

    def __init__(
        self,
        runtime: Runtime,
        hop: str,
        request: Callable[..., Awaitable[dict[str, Any]]],
        next_delay: Callable[[float], float],
        log: logging.Logger,
    ) -> None:
        self._runtime = runtime
        self._hop = hop
        self._request = request
        self._next_delay = next_delay
        self._log = log
        self._stream: StreamThreads | None = None
        self._entries: dict[int, _AttachedKernel] = {}
        # The numbers of those that may have something to send, in the order of their turns:
        self._ready: dict[int, None] = {}
        self._numbers = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Semaphore(MAX_OPENING)
        self._owing: set[int] = set()  # numbers of those whose acknowledgements a timer sends

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def kernel_ids(self) -> list[str]:
        """The kernels that are attached, or about to be."""
        return [entry.attachment.kernel_id for entry in self._entries.values()]

    def add(self, attachment: Attachment) -> None:
        """Carry this attachment from now on, over every reconnect, until `remove`."""
        self._entries[next(self._numbers)] = _AttachedKernel(
            attachment, ReopenBackoff(self._runtime, self._next_delay)
        )
        if self._stream is not None:
            self._open_anew(attachment)

    def remove(self, attachment: Attachment) -> None:
        """Stop to carry this attachment. The keeper lives on."""
        for number, entry in list(self._entries.items()):
            if entry.attachment is attachment:
                attachment.endpoint.acknowledge()  # what the front end has got must not be sent to the next one
                for frame in attachment.endpoint.outgoing(CHUNK):
                    self._write(frame)
                del self._entries[number]
                attachment.endpoint.closed()
                self._write(Frame(Kind.CLOSE, number))

    def connected(self, stream: StreamThreads) -> None:
        """The link is up over this stream: open every attachment."""
        self._stream = stream
        for entry in list(self._entries.values()):
            self._open_anew(entry.attachment)

    def disconnected(self, reason: str) -> None:
        """The link is down."""
        self._stream = None
        self._ready.clear()
        for entry in list(self._entries.values()):
            entry.attachment.endpoint.closed()
            entry.attachment.detached(reason)

    def pump(self, number: int = 0) -> None:
        """Write frames that attachments have to send, a chunk of each attachment in turn, so that none starves.
        `number`: the attachment that has something new to send. The others are not looked at, as there may be
        hundreds."""
        if number in self._entries:
            self._ready[number] = None
        stream = self._stream
        while stream is not None and self._ready and stream.has_room():
            number = next(iter(self._ready))
            del self._ready[number]
            entry = self._entries.get(number)
            if entry is None:
                continue
            endpoint = entry.attachment.endpoint
            if frames := endpoint.outgoing(CHUNK):
                stream.write(b"".join(frame.encode() for frame in frames))  # one write: one packet of SSH
                if endpoint.has_more:
                    self._ready[number] = None  # behind the others
            elif endpoint.owes_acknowledgement:
                self._acknowledge_soon(number)

    def _acknowledge_soon(self, number: int) -> None:
        if not self._owing:
            asyncio.get_running_loop().call_later(ACKNOWLEDGE_WITHIN, self._acknowledge)
        self._owing.add(number)

    def _acknowledge(self) -> None:
        owing, self._owing = self._owing, set()
        for number in owing & self._entries.keys():
            self._entries[number].attachment.endpoint.acknowledge_overdue()
            self._ready[number] = None
        self.pump()

    def receive(self, frame: Frame) -> bool:
        """Take a frame from the node; return False if it belongs to no attachment."""
        entry = self._entries.get(frame.attachment)
        if entry is None:
            return False
        attachment = entry.attachment
        if frame.kind is Kind.CLOSE:
            self._reopen(attachment, "it closed the attachment")
            return True
        self._ready[frame.attachment] = None  # an acknowledgement, or what may be sent after one
        try:
            for data in attachment.endpoint.receive(frame):
                self._deliver(attachment, data)
            self._limit_assembling(attachment.endpoint)
            if frame.kind is Kind.HELLO and attachment.endpoint.state is EndpointState.OPEN:
                entry.backoff.opened()
                attachment.attached()
        except VersionError as error:
            text = f"the keeper of kernel {attachment.kernel_id} runs another version of jupyter-gpu-kernel: {error}"
            self._write(Frame(Kind.CLOSE, frame.attachment))
            self._lose(frame.attachment, AgentRefusal(text, code="protocol", hop=self._hop))
        except (ProtocolError, MessageError) as error:
            self._log.error("%s: kernel %s: protocol error: %s", self._hop, attachment.kernel_id, error)
            self._write(Frame(Kind.CLOSE, frame.attachment))
            self._reopen(attachment, str(error))
        return True

    def _limit_assembling(self, endpoint: Endpoint) -> None:
        if endpoint.assembling <= UNCOUNTED:
            return
        if sum(entry.attachment.endpoint.assembling for entry in self._entries.values()) > MAX_ASSEMBLING:
            raise ProtocolError(f"the node's incomplete messages have more than {MAX_ASSEMBLING} bytes")

    def _deliver(self, attachment: Attachment, data: Data) -> None:
        try:
            attachment.deliver(data)
        except (ProtocolError, MessageError):
            raise
        except Exception:  # a bug of ours costs this message, not those after it
            self._log.exception("%s: kernel %s: a message was lost", self._hop, attachment.kernel_id)

    def _write(self, frame: Frame) -> None:
        if self._stream is not None:
            self._stream.write(frame.encode())

    # ------------------------------------------------------------------------- opening and reopening

    def _open_anew(self, attachment: Attachment) -> None:
        task = asyncio.get_running_loop().create_task(self._open(self._renumber(attachment), attachment))
        self._tasks.add(task)  # the loop itself holds tasks weakly
        task.add_done_callback(self._tasks.discard)

    def _renumber(self, attachment: Attachment) -> int:
        """Give the attachment a new number, so that frames which still arrive under the old number are not mistaken for
        new ones."""
        backoff = ReopenBackoff(self._runtime, self._next_delay)
        for number, entry in list(self._entries.items()):
            if entry.attachment is attachment:
                backoff = self._entries.pop(number).backoff
        number = next(self._numbers)
        self._entries[number] = _AttachedKernel(attachment, backoff)
        attachment.endpoint.closed()
        return number

    async def _open(self, number: int, attachment: Attachment) -> None:
        stream = self._stream
        if stream is None:  # lost already; a request would make the link reconnect without a delay
            return
        arguments = attachment.open_request()
        try:
            async with self._opening:
                if stream is not self._stream or number not in self._entries:
                    return
                more = {"kernel": attachment.kernel_id, "attachment": number, "attached_ids": self.kernel_ids}
                if "attach" in arguments:  # before the keeper dismisses the other, which might reopen first
                    self._take_from_others(attachment)
                answer = await self._request("open", **arguments, **more)
        except AgentRefusal as error:
            return self._open_refused(number, attachment, arguments, error)
        except AgentError as error:  # the agent did not answer, which concerns this kernel only
            if number in self._entries:
                self._reopen(attachment, error.cause)
            return
        except GpuKernelError:
            return  # the link went down meanwhile, which `disconnected` reports
        if stream is not self._stream:
            return
        if number not in self._entries:  # removed, or opened again, meanwhile
            return self._write(Frame(Kind.CLOSE, number))
        attachment.opened(answer.get("kernel", attachment.kernel_id))
        self._take_from_others(attachment)
        attachment.endpoint.opened(number)
        self.pump(number)

    def _open_refused(
        self, number: int, attachment: Attachment, arguments: dict[str, Any], error: AgentRefusal
    ) -> None:
        if number not in self._entries:
            return
        was_open = "create" not in arguments and "attach" not in arguments
        if error.code == "busy" or (was_open and error.code not in _FINAL):
            return self._reopen(attachment, error.cause)
        self._lose(number, error)

    def _reopen(self, attachment: Attachment, reason: str) -> None:
        """Open the attachment again after the keeper has hung up or broken the protocol, with growing delays."""
        number = self._renumber(attachment)
        backoff = self._entries[number].backoff
        delay = backoff.delay()
        if backoff.exhausted:
            text = f"the keeper of kernel {attachment.kernel_id} accepts no connection: {reason}"
            return self._lose(number, AgentRefusal(text, code="hangs up", hop=self._hop))
        if delay:
            attachment.detached(reason)
        asyncio.get_running_loop().call_later(delay, self._open_if_pending, number)

    def _open_if_pending(self, number: int) -> None:
        entry = self._entries.get(number)
        if self._stream is not None and entry is not None:  # else removed, or opened meanwhile
            self._open_anew(entry.attachment)

    def _take_from_others(self, attachment: Attachment) -> None:
        """Lose every other attachment to the kernel of this attachment. There is one if a notebook is opened again
        after a drop. A keeper has one attachment at a time, so two would replace each other indefinitely."""
        for number, entry in list(self._entries.items()):
            other = entry.attachment
            if other is not attachment and other.kernel_id == attachment.kernel_id:
                self._write(Frame(Kind.CLOSE, number))
                text = f"kernel {other.kernel_id} was taken over by another front end of its notebook"
                self._lose(number, AgentRefusal(text, code="taken", hop=self._hop))

    def _lose(self, number: int, error: AgentRefusal) -> None:
        attachment = self._entries.pop(number).attachment
        error.fill_in("ID", attachment.kernel_id)
        attachment.endpoint.closed()
        attachment.lost(error)


def open_arguments(how: str, settings: KernelSettings) -> dict[str, Any]:
    """Return arguments for the agent's `open`. `how`: see `kernel_state.py: Origin`."""
    if how == "create":
        return {"create": settings.to_json()}
    return {"attach": {}} if how == "attach" else {}


def new_endpoint(runtime: Runtime, delivered: list[int] | None, owner: str = "") -> Endpoint:
    """Return the hub's endpoint for one kernel. `delivered`: how many of the kernel's messages a killed hub had
    delivered, per lane. `owner`: the id of this user and computer."""
    features = ["failure_seen", "unanswered", COMPRESSION]
    return Endpoint(runtime, first=True, delivered=delivered, features=features, owner=owner)
