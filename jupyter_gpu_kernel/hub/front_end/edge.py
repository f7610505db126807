"""The edge of one front end: verifies and signs messages with the front end's key, and maps the identities of its
clients to numbers.

On the wire to the node clients are numbers and messages are unsigned. This module knows no link.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
from collections.abc import Callable
from typing import Any

from ...errors import SettingsError
from ...wire.kernel_messages.compose import make
from ...wire.messages import Channel, Message
from ...wire.runtime import Runtime
from ..validate import MAX_HEADER
from .delivered import Clients
from .sockets import MAX_UNREAD, Bind, Sockets

DELIMITER = b"<IDS|MSG>"
_NAMES = {channel: channel.name.lower() for channel in Channel}
SUBSCRIBE_TIMEOUT = 15.0
"""Seconds in which a running client should have subscribed again; until then what is sent to it waits."""
_MAX_SIGNED = 64 * 1024 * 1024
"""Bytes of a request besides its buffers: they are hashed before the sender is known."""
_MAX_PARTS = 1000
_MAX_CLIENTS = (1 << 16) - 1
_MAX_SUBSCRIPTIONS = 1000
_SESSION = re.compile(rb'"session"\s*:\s*"(?:[^"\\]|\\.)*"')
_COLLECT = 0.02
"""Seconds in which several new subscribers are announced as one."""
_CLOCK_STEP = 0.02
"""Seconds by which a timer may end early, as the clock of Windows has steps."""
_OTHERS = 0.3
"""Seconds after the first of several clients of a killed hub has subscribed until the others have, too."""
_RECONNECT = 3.0
"""Seconds that iopub waits for clients that were disconnected: a running client is back by then."""


class Edge:
    """The sockets of one front end, bound when the constructor returns."""

    def __init__(
        self,
        runtime: Runtime,
        connection: dict[str, Any],
        on_message: Callable[[Message], None],
        on_subscribe: Callable[[], None],
        clients: Clients | None = None,
        known: bool = False,
        bind: Bind = Sockets,
    ) -> None:
        """`on_message(request)` is called for each request, and `on_subscribe()` for each new subscriber of iopub.

        `clients`: the clients that a killed hub knew; new clients are added. `known`: whether clients use these ports
        already.
        `bind`: binds the sockets.
        """
        self._runtime = runtime
        self._signer = _Signer(connection)
        # Not random, so that the next hub uses it, too.
        self._session = b'"session": "%s"' % self._signer.sign((b"session",))[:32]
        self._on_message = on_message
        self._on_subscribe = on_subscribe
        self._clients = clients
        self._identities = list(clients.known) if clients is not None else []
        self._numbers = {identity: number for number, identity in enumerate(self._identities, 1)}
        self._early = _EarlyMessages(runtime.monotonic)
        self._connected: set[tuple[Channel, int]] = set()  # what clients have sent requests with
        self._omitted = 0  # bytes of output that were dropped and not yet reported to subscribers
        self._last_parent = b"{}"
        self._subscriptions = 0
        self._announcing = False  # whether new subscribers are about to be announced
        self._closed = False
        self.last_request = 0.0
        """When a client that knows the key sent a request, by `Runtime.monotonic`."""
        if known:
            self._expect_clients(SUBSCRIBE_TIMEOUT)
        self._sockets = bind(connection, self._receive, runtime.monotonic)

    @property
    def connection(self) -> dict[str, Any]:
        """The connection file's content, with the ports that were bound."""
        return self._sockets.connection

    @property
    def is_ready(self) -> bool:
        """Whether no message waits for clients that have to connect again."""
        return self._early.messages is None

    def has_room(self, message: Message) -> bool:
        """Whether the clients that this message is for can receive more."""
        return self._early.has_room and self._sockets.has_room(_name(message))

    def stalled_since(self, message: Message) -> float:
        """The time (of `Runtime.monotonic`) since which the clients that this message is for have received nothing."""
        return self._sockets.stalled_since(_name(message))

    def send(self, message: Message) -> None:
        """Send a message to its client; a message on iopub to all clients. While clients may not have connected again,
        the message waits."""
        waits = message.channel is Channel.IOPUB or not self._early.has_room
        if waits and (message.channel, message.client) not in self._connected and self._keep_early(message):
            return
        # JupyterLab and VS Code drop a message if one with another session comes behind it before they have handled it.
        parts = (_SESSION.sub(self._session, message.parts[0]), *message.parts[1:])
        if message.channel is Channel.IOPUB:
            prefix, self._last_parent = b"kernel", parts[1]
            if self._omitted:
                self._omitted += _size(message)
        elif 0 < message.client <= len(self._identities):
            prefix = self._identities[message.client - 1]
        else:
            return  # the client's front end has left
        envelope = [prefix, DELIMITER, self._signer.sign(parts[:4])]
        self._sockets.send(_name(message), envelope, parts, message.client)

    def disconnect(self, message: Message) -> None:
        """Disconnect the clients that do not read the channel of this message. Running clients connect again. What the
        clients have not received is lost, which a notice on iopub says."""
        name = _name(message)
        size = self._sockets.unread(name)
        self._disconnect(name)
        if name == "iopub":
            self._omitted += max(1, size)
        else:
            self._send_omission_notice(size)

    def restore_ipc_files(self) -> None:
        """Before a restart: make the files of ipc sockets again that jupyter_client has removed."""
        self._sockets.restore_ipc_files()

    def close(self) -> None:
        """Unbind, after a moment in which messages can still be sent."""
        self._closed = True
        self._sockets.close()

    # -------------------------------------------------------------------------------------- requests

    def _receive(self, name: str, frames: list[bytes]) -> None:
        if name == "iopub":
            return self._subscription(frames)
        parts = self._signer.verified(frames)
        if parts is None:
            return
        self.last_request = self._runtime.monotonic()
        number = self._number(frames[0])
        if number:
            self._connected.add((Channel[name.upper()], number))
            self._on_message(Message(Channel[name.upper()], number, parts))

    def _number(self, identity: bytes) -> int:
        """Return the client's number; 0 if there are too many clients."""
        number = self._numbers.get(identity, 0)
        if not number and len(self._numbers) < _MAX_CLIENTS:
            number = self._numbers[identity] = len(self._numbers) + 1
            self._identities.append(identity)
            if self._clients is not None:
                self._clients.add(identity)
        return number

    # -------------------------------------------------------------------------------------- subscribers of iopub

    def _subscription(self, frames: list[bytes]) -> None:
        """A client has subscribed to a topic, or unsubscribed. A client needs one topic; a thousand are an attack."""
        self._subscriptions += {b"\x01": 1, b"\x00": -1}.get(frames[0][:1], 0)
        if self._subscriptions > _MAX_SUBSCRIPTIONS:
            return self._disconnect("iopub")
        if frames[0][:1] == b"\x01" and not self._announcing:
            self._announcing = True
            asyncio.get_running_loop().call_later(_COLLECT, self._announce_subscribers)

    def _announce_subscribers(self) -> None:
        self._announcing = False
        if self._closed:
            return
        omitted, self._omitted = self._omitted, 0
        if omitted:
            self._send_omission_notice(omitted)
        asyncio.get_running_loop().call_later(0.0 if self.is_ready else _OTHERS, self._send_early)

    def _expect_clients(self, seconds: float) -> None:
        """Messages wait from now on. `seconds`: the time in which running clients connect again."""
        self._early.begin(seconds)
        asyncio.get_running_loop().call_later(seconds + _CLOCK_STEP, self._send_early_replies)

    def _send_early_replies(self) -> None:
        """Clients had time to connect. One that does not read iopub never subscribes, and needs its replies."""
        if self._early.has_room and not self._closed:
            for message in self._early.take_replies():
                self.send(message)

    def _keep_early(self, message: Message) -> bool:
        if self._early.size >= MAX_UNREAD and self._early.has_room:  # no client has subscribed in time
            self._omitted += sum(map(_size, self._early.release()))
        return self._early.keep(message)

    def _send_early(self) -> None:
        for message in self._early.release():
            self.send(message)
        self._on_subscribe()

    def _disconnect(self, name: str) -> None:
        if name == "iopub":
            self._subscriptions = 0
            self._expect_clients(_RECONNECT)
        self._sockets.disconnect(name)

    def _send_omission_notice(self, size: int) -> None:
        text = f"\n[… {size / 1e6:.1f} MB left out here: this front end had not read for a while …]\n"
        notice = make(self._runtime, "stream", {"name": "stderr", "text": text}, self._last_parent)
        self.send(Message(Channel.IOPUB, 0, notice))


class _EarlyMessages:
    """The messages that wait until clients have subscribed again: the clients of a killed hub, and those that were
    disconnected.

    A client's iopub socket subscribes again when its program next uses it, which may be long after the hub has bound
    the port. By then its other sockets have connected; before, ZeroMQ would drop what is sent to them.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.messages: list[Message] | None = None
        """The messages that wait; None if messages do not have to wait."""
        self._deadline = 0.0
        self.size = 0
        """The bytes that wait."""

    def begin(self, seconds: float) -> None:
        """Messages wait from now on. `seconds`: the time in which running clients subscribe again."""
        self.messages = self.messages or []
        self._deadline = self._clock() + seconds

    @property
    def has_room(self) -> bool:
        """Whether messages of the kernel may come. Until then they stay with the keeper: what is kept here would be
        lost if this hub was killed, too, and a reply would overtake it."""
        return self.messages is None or self._clock() >= self._deadline

    def keep(self, message: Message) -> bool:
        """Keep this message, if messages have to wait. Return whether it was kept."""
        if self.messages is None:
            return False
        self.messages.append(message.unparsed())
        self.size += _size(message)
        return True

    def take_replies(self) -> list[Message]:
        """Return the messages that wait and that are not on iopub, in order. They do not wait any more."""
        if self.messages is None:
            return []
        replies = [one for one in self.messages if one.channel is not Channel.IOPUB]
        self.messages = [one for one in self.messages if one.channel is Channel.IOPUB]
        self.size -= sum(_size(one) for one in replies)
        return replies

    def release(self) -> list[Message]:
        """Return all messages that wait, in order. From now on no message is kept."""
        messages, self.messages, self.size = self.messages or [], None, 0
        return messages


class _Signer:
    """The signatures of one connection file's key, as in Jupyter's messaging protocol."""

    def __init__(self, connection: dict[str, Any]) -> None:
        self._key = str(connection.get("key") or "").encode()
        if not self._key:
            raise SettingsError(
                "the connection file has no key: anybody who can connect could run code",
                remedy="Remove the setting that empties it (Session.key), and start the kernel again.",
            )
        scheme = str(connection.get("signature_scheme", "hmac-sha256"))
        name = scheme.removeprefix("hmac-")
        if name not in hashlib.algorithms_available:
            raise SettingsError(
                f"the connection file has an unknown signature scheme: {scheme!r}",
                remedy="Use hmac-sha256 (Session.signature_scheme).",
            )
        self._empty = hmac.new(self._key, digestmod=name)

    def sign(self, parts: tuple[bytes, ...]) -> bytes:
        """Return the signature of header, parent, metadata and content."""
        mac = self._empty.copy()  # faster than a new one
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()

    def verified(self, frames: list[bytes]) -> tuple[bytes, ...] | None:
        """Return the parts of a message that a client sent; None if it is malformed or not signed with the key."""
        try:
            at = frames.index(DELIMITER)
        except ValueError:
            return None
        parts = tuple(frames[at + 2 :])
        if not 4 <= len(parts) <= _MAX_PARTS or len(parts[0]) > MAX_HEADER:
            return None
        if sum(map(len, parts[:4])) > _MAX_SIGNED:
            return None
        return parts if hmac.compare_digest(frames[at + 1], self.sign(parts[:4])) else None


def _size(message: Message) -> int:
    return sum(map(len, message.parts))


def _name(message: Message) -> str:
    return _NAMES[message.channel]
