"""The edge: the five ZMQ sockets a front end connects to, its key, its identities. Here messages are
verified and signed.

Front ends come and go with identities of their own; on the wire they are numbers. This file knows no link.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from zmq.eventloop.zmqstream import ZMQStream

from ...errors import HubError, SettingsError
from ...wire.compose import make
from ...wire.messages import Channel, Message
from ...wire.queues import MAX_MESSAGE
from ..validate import HEADER
from . import local_peers
from .delivered import Clients
from .early_output import EarlyOutput
from .unread import Unread

DELIMITER = b"<IDS|MSG>"
_TYPES = {
    "shell": zmq.ROUTER,
    "iopub": zmq.XPUB,
    "stdin": zmq.ROUTER,
    "control": zmq.ROUTER,
    "hb": zmq.ROUTER,
}

_ROOMS = ("shell", "iopub", "stdin", "control")
_SIGNED = 64 * 1024 * 1024
"""Bytes of a request besides its buffers: they are hashed before it is known who sent them."""
_PARTS = 1000
_CLIENTS = (1 << 16) - 1
_SUBSCRIPTIONS = 1000
_TOGETHER = 0.02
"""Seconds in which subscribers are told of as one."""
_OTHERS = 0.3
"""Seconds after the first of several clients of a killed hub has subscribed until the others have, too."""
_COME_BACK = 3.0
"""Seconds that iopub waits for those who were hung up on: whoever is alive is back by then."""
_AGAIN = 0.02
"""Seconds until a port that we have just let go of is asked for again."""

_ADDRESS_REMEDY = (
    "Use an address of this computer, such as 127.0.0.1 (KernelManager.ip), and ports from 1024 on."
)
_PORT_REMEDY = "Another program has the port; start the kernel again for new ones."
_IPC_REMEDY = "Choose a shorter path, in a folder that you can write to, for the front end's setting “ip”."


class Edge:
    """Bound as soon as it is made. `on_message(Message)` for requests, `on_subscribe()` for each new
    iopub subscriber."""

    def __init__(
        self,
        connection: dict[str, Any],
        on_message: Callable[[Message], None],
        on_subscribe: Callable[[], None],
        clients: Clients | None = None,
        known: bool = False,
    ) -> None:
        """`clients`: those a killed hub knew; new ones are added there. `known`: they have these ports already."""
        self.connection = dict(connection)
        self._on_message = on_message
        self._on_subscribe = on_subscribe
        self._key = str(connection.get("key") or "").encode()
        self._refuse_open_doors()
        self._digest = _digest(str(connection.get("signature_scheme", "hmac-sha256")))
        self._clients = clients
        self._identities = list(clients.known) if clients is not None else []
        self._numbers = {identity: number for number, identity in enumerate(self._identities, 1)}
        self._streams: dict[str, ZMQStream] = {}
        self._unread = {name: Unread() for name in _ROOMS}
        self._early = EarlyOutput(awaited=known)
        self._left_out = 0
        self._about = b"{}"
        self._subscriptions = 0
        self._told = True
        self._awaited = 0.0  # until when those who were hung up on may come back to iopub before it goes on
        self._before = 0  # how many they were
        self._closed = False
        self.heard = 0.0
        """When a client proved that it knows the key, the last time: time.monotonic()."""
        try:
            for name in _TYPES:
                self._bind(name)
        except BaseException:
            self.close()
            raise

    def _refuse_open_doors(self) -> None:
        """Without a key anybody who connects could run code; on other addresses than loopback anybody could listen."""
        if not self._key:
            raise SettingsError(
                "the connection file has no key: anybody who can connect could run code",
                remedy="Remove the setting that empties it (Session.key), and start the kernel again.",
            )
        if not self._is_ipc and ":" in self._ip:
            raise SettingsError(
                f"the connection file has the IPv6 address {self._ip}: Jupyter's clients use IPv4 only",
                remedy="Use 127.0.0.1 (KernelManager.ip).",
            )
        if not (self._is_ipc or self.connection.get("curve_secretkey") or _is_loopback(self._ip)):
            raise SettingsError(
                f"the connection file has the address {self._ip}: others could read what the kernel prints",
                remedy="Use 127.0.0.1, or encrypt what is sent (KernelManager.transport_encryption).",
            )

    def room(self, message: Message) -> bool:
        """Whether those whom it is for take more."""
        if message.channel is Channel.IOPUB and (time.monotonic() < self._awaited or not self._early.room):
            return False
        return self._unread[message.channel.name.lower()].room

    def stalled(self, message: Message) -> float:
        """Since when those whom it is for have taken nothing: time.monotonic()."""
        return self._unread[message.channel.name.lower()].stalled

    def send(self, message: Message) -> None:
        """To the client it is for; on iopub to all, once there is somebody who may have to hear it."""
        if message.channel is Channel.IOPUB and self._waits(message):
            return
        name = message.channel.name.lower()
        parts = message.parts
        if message.channel is Channel.IOPUB:
            prefix, self._about = [b"kernel"], parts[1]
            if self._left_out:
                self._left_out += sum(map(len, parts))
        else:
            if not 0 < message.client <= len(self._identities):
                return  # asked by a front end that has left
            prefix = [self._identities[message.client - 1]]
        if name not in self._streams:
            return  # closed
        watched = self._unread[name].watched(parts, message.client)
        signed = [*prefix, DELIMITER, self._sign(parts[:4]), *watched]
        self._streams[name].send_multipart(signed, copy=len(watched) == 0 or watched[-1] is parts[-1])

    def _waits(self, message: Message) -> bool:
        if self._early.hopeless:
            self._left_out += sum(len(part) for one in self._early.take() for part in one.parts)
        return self._early.keeps(message)

    def hang_up(self, message: Message) -> None:
        """On those who do not take what this message is one of; who is alive comes back by itself. What they have not
        taken is gone, and they are told so on iopub."""
        name = message.channel.name.lower()
        size = self._unread[name].size
        self._expel(name)
        if name == "iopub":
            self._left_out += max(1, size)
        else:
            self._tell_left_out(size)

    def restore_paths(self) -> None:
        """Before a restart: jupyter_client removes the files of ipc sockets then, and reuses their names.

        The sockets are bound once more, as unbinding would close the connections of clients that stay.
        """
        for name, stream in self._streams.items():
            path = Path(self._address(name).removeprefix("ipc://"))
            if self._is_ipc and not path.exists():
                self._bind_address(stream.socket, name)

    def close(self) -> None:
        """Unbinds, after what was sent had a moment to leave."""
        self._closed = True
        for stream in self._streams.values():
            stream.flush(zmq.POLLOUT)  # what waits for the next turn of the loop would be lost
            stream.close(linger=1000)
        self._streams.clear()

    # -------------------------------------------------------------------------------------- sockets

    def _bind(self, name: str) -> None:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(_TYPES[name])
        socket.linger = 1000
        if name == "hb":
            socket.maxmsgsize = 1024
        elif name == "iopub":
            socket.maxmsgsize = 1024  # what comes in is subscriptions
            socket.sndhwm = 0  # messages are not counted, but their bytes: see `room`
            socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        else:
            socket.maxmsgsize = MAX_MESSAGE
            socket.sndhwm = 0
        if name != "iopub":
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if self.connection.get("curve_secretkey"):
            socket.curve_server = True
            socket.curve_secretkey = str(self.connection["curve_secretkey"]).encode()
            socket.curve_publickey = str(self.connection["curve_publickey"]).encode()
        elif not self._is_ipc:
            local_peers.guard(socket)
        try:
            self._bind_address(socket, name)
        except HubError:
            socket.close(linger=0)
            raise
        stream = self._streams[name] = ZMQStream(socket)
        stream.on_recv({"hb": self._echo, "iopub": self._subscription}.get(name) or self._receiver(name))

    def _expel(self, name: str) -> None:
        self._streams.pop(name).close(linger=0)
        self._unread[name] = Unread()
        if name == "iopub":
            self._before, self._subscriptions, self._awaited = self._subscriptions, 0, math.inf
        self._bind_again(name)

    def _bind_again(self, name: str) -> None:
        """libzmq lets go of a port a moment after its socket was closed."""
        if not self._closed:
            try:
                self._bind(name)
                self._awaited = min(self._awaited, time.monotonic() + _COME_BACK)
            except HubError:
                asyncio.get_running_loop().call_later(_AGAIN, self._bind_again, name)

    def _bind_address(self, socket: zmq.Socket[bytes], name: str) -> None:
        port = int(self.connection.get(f"{name}_port") or 0)
        try:
            if port or self._is_ipc:
                self.connection[f"{name}_port"] = port or list(_TYPES).index(name) + 1
                socket.bind(self._address(name))
            else:
                self.connection[f"{name}_port"] = socket.bind_to_random_port(f"tcp://{self._ip}")
        except zmq.ZMQError as error:
            raise HubError(
                f"cannot listen on the {name} port {self._address(name)}: {error.strerror}",
                remedy=self._bind_remedy(error),
            ) from None

    def _bind_remedy(self, error: zmq.ZMQError) -> str:
        if self._is_ipc:
            return _IPC_REMEDY
        return _PORT_REMEDY if error.errno == zmq.EADDRINUSE else _ADDRESS_REMEDY

    @property
    def _ip(self) -> str:
        return str(self.connection.get("ip") or "127.0.0.1")

    @property
    def _is_ipc(self) -> bool:
        return bool(self.connection.get("transport") == "ipc")

    def _address(self, name: str) -> str:
        port = self.connection.get(f"{name}_port") or 0
        return f"ipc://{self._ip}-{port}" if self._is_ipc else f"tcp://{self._ip}:{port}"

    # -------------------------------------------------------------------------------------- messages

    def _receiver(self, name: str) -> Callable[[list[bytes]], None]:
        channel = Channel[name.upper()]

        def receive(frames: list[bytes]) -> None:
            try:
                at = frames.index(DELIMITER)
            except ValueError:
                return
            parts = tuple(frames[at + 2 :])
            if not 4 <= len(parts) <= _PARTS or sum(map(len, parts[:4])) > _SIGNED or len(parts[0]) > HEADER:
                return
            if not hmac.compare_digest(frames[at + 1], self._sign(parts[:4])):
                return  # not from anybody who knows the key
            self.heard = time.monotonic()
            number = self._number(frames[0])
            if number:
                self._on_message(Message(channel, number, parts))

        return receive

    def _number(self, identity: bytes) -> int:
        """The client's number; 0 if there are too many."""
        number = self._numbers.get(identity, 0)
        if not number and len(self._numbers) < _CLIENTS:
            number = self._numbers[identity] = len(self._numbers) + 1
            self._identities.append(identity)
            if self._clients is not None:
                self._clients.add(identity)
        return number

    def _echo(self, frames: list[bytes]) -> None:
        self._streams["hb"].send_multipart(frames)

    def _subscription(self, frames: list[bytes]) -> None:
        """Of a topic by one client, or its end. Clients subscribe to one: a thousand is a flood."""
        self._subscriptions += {b"\x01": 1, b"\x00": -1}.get(frames[0][:1], 0)
        if self._subscriptions > _SUBSCRIPTIONS:
            return self._expel("iopub")
        if frames[0][:1] == b"\x01" and self._told:
            self._told = False
            asyncio.get_running_loop().call_later(_TOGETHER, self._tell_of_subscribers)

    def _tell_of_subscribers(self) -> None:
        self._told = True
        if self._closed:
            return
        if self._subscriptions >= self._before:
            self._awaited = 0.0
        left_out, self._left_out = self._left_out, 0
        if left_out:
            self._tell_left_out(left_out)
        self._on_subscribe()
        asyncio.get_running_loop().call_later(_OTHERS, self._send_early)

    def _send_early(self) -> None:
        for message in self._early.take():
            self.send(message)

    def _tell_left_out(self, size: int) -> None:
        text = f"\n[… {size / 1e6:.1f} MB left out here: this front end had not read for a while …]\n"
        notice = make("stream", {"name": "stderr", "text": text}, self._about)
        self.send(Message(Channel.IOPUB, 0, notice))

    def _sign(self, parts: tuple[bytes, ...]) -> bytes:
        mac = hmac.new(self._key, digestmod=self._digest)
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()


def _is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(ip).is_loopback
    except ValueError:
        return ip == "localhost"


def _digest(scheme: str) -> Any:
    name = scheme.removeprefix("hmac-")
    if name not in hashlib.algorithms_available:
        raise SettingsError(
            f"the connection file asks for the signature scheme {scheme!r}, which is unknown here"
        )
    return getattr(hashlib, name)
