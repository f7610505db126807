"""The edge: the five ZMQ sockets a front end connects to, its key, its identities. Here messages are
verified and signed.

Front ends come and go with identities of their own; on the wire they are numbers. This file knows no link.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from zmq.eventloop.zmqstream import ZMQStream

from ..errors import HubError, SettingsError
from ..wire.messages import Channel, Message
from .delivered import Clients

DELIMITER = b"<IDS|MSG>"
_TYPES = {
    "shell": zmq.ROUTER,
    "iopub": zmq.XPUB,
    "stdin": zmq.ROUTER,
    "control": zmq.ROUTER,
    "hb": zmq.ROUTER,
}

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
    ) -> None:
        """`clients`: those a killed hub knew; new ones are added there."""
        self.connection = dict(connection)
        self._on_message = on_message
        self._on_subscribe = on_subscribe
        self._key = str(connection.get("key", "")).encode()
        self._digest = _digest(str(connection.get("signature_scheme", "hmac-sha256")))
        self._clients = clients
        self._identities = list(clients.known) if clients is not None else []
        self._numbers = {identity: number for number, identity in enumerate(self._identities, 1)}
        self._streams: dict[str, ZMQStream] = {}
        try:
            for name in _TYPES:
                self._bind(name)
        except BaseException:
            self.close()
            raise

    def send(self, message: Message) -> None:
        """To the front end it is for; on iopub to all."""
        name = message.channel.name.lower()
        parts = message.parts
        if message.channel is Channel.IOPUB:
            prefix = [b"kernel"]
        else:
            if not 0 < message.client <= len(self._identities):
                return  # asked by a front end that has left
            prefix = [self._identities[message.client - 1]]
        if name not in self._streams:
            return  # closed
        self._streams[name].send_multipart([*prefix, DELIMITER, self._sign(parts[:4]), *parts])

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
        for stream in self._streams.values():
            stream.close(linger=1000)
        self._streams.clear()

    # -------------------------------------------------------------------------------------- sockets

    def _bind(self, name: str) -> None:
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(_TYPES[name])
        socket.sndhwm = socket.rcvhwm = 0
        socket.linger = 1000
        if name == "iopub":
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        else:
            socket.setsockopt(zmq.ROUTER_HANDOVER, 1)
        if self.connection.get("curve_secretkey"):
            socket.curve_server = True
            socket.curve_secretkey = str(self.connection["curve_secretkey"]).encode()
            socket.curve_publickey = str(self.connection["curve_publickey"]).encode()
        try:
            self._bind_address(socket, name)
        except HubError:
            socket.close(linger=0)
            raise
        stream = self._streams[name] = ZMQStream(socket)
        stream.on_recv({"hb": self._echo, "iopub": self._subscription}.get(name) or self._receiver(name))

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
                remedy=_IPC_REMEDY
                if self._is_ipc
                else "Another program has the port; start the kernel again for new ones.",
            ) from None

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
            if len(parts) < 4 or not hmac.compare_digest(frames[at + 1], self._sign(parts[:4])):
                return  # not from anybody who knows the key
            self._on_message(Message(channel, self._number(frames[0]), parts))

        return receive

    def _number(self, identity: bytes) -> int:
        number = self._numbers.get(identity)
        if number is None:
            number = self._numbers[identity] = len(self._numbers) + 1
            self._identities.append(identity)
            if self._clients is not None:
                self._clients.add(identity)
        return number

    def _echo(self, frames: list[bytes]) -> None:
        self._streams["hb"].send_multipart(frames)

    def _subscription(self, frames: list[bytes]) -> None:
        if frames[0][:1] == b"\x01":
            self._on_subscribe()

    def _sign(self, parts: tuple[bytes, ...]) -> bytes:
        if not self._key:
            return b""
        mac = hmac.new(self._key, digestmod=self._digest)
        for part in parts:
            mac.update(part)
        return mac.hexdigest().encode()


def _digest(scheme: str) -> Any:
    name = scheme.removeprefix("hmac-")
    if name not in hashlib.algorithms_available:
        raise SettingsError(
            f"the connection file asks for the signature scheme {scheme!r}, which is unknown here"
        )
    return getattr(hashlib, name)
