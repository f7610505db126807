"""The sockets of a front end at the hub, without ZeroMQ, and the clients that are connected to them.

A client is one user of a kernel's five ports. It connects again by itself when the hub binds the ports anew, and what
it sends meanwhile waits. It may stop to read. Everything that it receives it gives to the oracle.
"""

from __future__ import annotations

import hmac
import json
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import Any, cast

from .oracle import Request, View
from .world import Failure, Process, World

KEY = "the key of the connection file"
DELIMITER = b"<IDS|MSG>"
_DECODER = json.JSONDecoder()
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
_OF_MANAGER = ("interrupt_request", "shutdown_request")
"""What a KernelManager sends itself."""
_RECONNECTED = 0.1
"""Seconds at most between the sockets of a client that connect again."""
_LOOPBACK = 0.0002
"""Seconds at most from the hub to a client."""
_EARLY = 4 * 1024 * 1024
"""Bytes that a hub keeps for clients of a killed hub until they have subscribed."""


def sign(parts: list[bytes]) -> bytes:
    """Return the signature of header, parent, metadata and content."""
    return hmac.digest(KEY.encode(), b"".join(parts[:4]), "sha256").hex().encode()


def _parsed(part: bytes) -> dict[str, Any]:
    return cast("dict[str, Any]", _DECODER.decode(part.decode()))


@lru_cache(maxsize=256)
def _parent(header: bytes) -> dict[str, Any]:
    """Return the header of a request, which is the parent of several messages."""
    return _parsed(header)


class Ports:
    """The ports of this computer: which sockets the hub has bound, and which clients use them."""

    def __init__(self, world: World, name: str = "loopback") -> None:
        self.world = world
        self.random = world.random(name)
        self.bound: dict[int, HubSockets] = {}
        self.clients: dict[int, list[Client]] = {}
        self.limit = 4 * 1024 * 1024
        self.sends_until_kill = 0
        """The hub is killed within the send of this number, from now on; 0: it is not."""
        self.writes_until_kill = 0
        """The hub is killed before the write of this number to a file: between two effects of a core."""
        self.parent = b"{}"
        """The parent of the message that was sent last."""
        self.on_kill: Callable[[], None] = lambda: None
        """Called within that send."""
        self.notebook = ""
        """The path of the notebook whose front ends come."""
        self._last = 49_000

    def new(self) -> int:
        """Return the first of five free ports."""
        self._last += 10
        return self._last

    def before_write(self) -> None:
        """The hub is about to write to a file."""
        if self.writes_until_kill:
            self.writes_until_kill -= 1
            if not self.writes_until_kill:
                self.kill()

    def kill(self) -> None:
        """Kill the hub. It has not noted that it has sent the last message."""
        asked = self.world.all_requests.get(json.loads(self.parent).get("date"))
        if asked is not None:
            asked.half_answered = True
        self.world.torn_sends += 1
        self.on_kill()

    def seconds(self) -> float:
        """Return how long something is under way."""
        return self.random.uniform(0, _LOOPBACK)


class HubSockets:
    """In place of `Sockets`. What clients have not received counts as unread."""

    def __init__(
        self,
        ports: Ports,
        process: Process,
        connection: dict[str, Any],
        receive: Any,
        clock: Callable[[], float],
    ) -> None:
        self.connection = dict(connection)
        first = int(self.connection.get("shell_port") or 0) or ports.new()
        for number, channel in enumerate(CHANNELS):
            self.connection[f"{channel}_port"] = first + number
        self._ports, self.process, self._receive, self._clock = ports, process, receive, clock
        self._port = first
        self._world = ports.world
        self._queues: dict[tuple[str, str], deque[tuple[int, list[bytes]]]] = {}
        self._unread: dict[tuple[str, str], int] = {}
        self._progress: dict[str, float] = dict.fromkeys(CHANNELS, clock())
        self._draining: set[tuple[str, str]] = set()
        self._clients: dict[str, dict[str, Client]] = {channel: {} for channel in CHANNELS}
        if first in ports.bound:
            raise Failure("ports", f"port {first} is bound twice")
        ports.bound[first] = self
        for client in ports.clients.get(first, []):
            client.connect_soon()

    def has_room(self, channel: str) -> bool:
        return self.unread(channel) < self._ports.limit

    def unread(self, channel: str) -> int:
        largest = 0
        for (name, _), size in self._unread.items():
            if size > largest and name == channel:
                largest = size
        return largest

    def stalled_since(self, channel: str) -> float:
        return self._progress[channel] if self.unread(channel) else self._clock()

    def send(self, channel: str, envelope: list[bytes], parts: Any, client: int) -> None:
        ports = self._ports
        ports.parent = parts[1]
        self._put(channel, envelope, parts)
        if ports.sends_until_kill:
            ports.sends_until_kill -= 1
            if not ports.sends_until_kill:
                ports.kill()

    def _put(self, channel: str, envelope: list[bytes], parts: Any) -> None:
        frames = [*envelope, *parts]
        wanted = None if channel == "iopub" else envelope[0].decode()
        self._world.sends += 1
        for identity in list(self._clients[channel]) if wanted is None else [wanted]:
            key = (channel, identity)
            if wanted is not None and identity not in self._clients[channel]:
                continue  # as ROUTER drops what is for nobody
            if not self._unread.get(key):
                self._progress[channel] = self._clock()
            self._queues.setdefault(key, deque()).append((self._world.sends, frames))
            self._unread[key] = self._unread.get(key, 0) + sum(map(len, parts))
            self.drain_soon(key)
        # The last messages of a kernel that is lost, or was taken, are sent whether they are read or not.
        world = self._world
        lost = world.reboots or world.takes or world.times["kernel gone"]
        early = _EARLY if world.kills or world.keeper_kills or lost else 0
        if self.unread(channel) > self._ports.limit + world.largest + world.asked + early:
            raise Failure("bound", f"{self.unread(channel)} bytes are unread on {channel}")

    def drain_soon(self, key: tuple[str, str]) -> None:
        """The client reads soon what has come."""
        if key not in self._draining:
            self._draining.add(key)
            self._world.later(self._ports.seconds(), self.drain, key)

    def drain(self, key: tuple[str, str]) -> None:
        """The client reads what has come."""
        self._draining.discard(key)
        channel, identity = key
        client = self._clients[channel].get(identity)
        queue = self._queues.get(key)
        while queue and client is not None and client.reads(channel):
            number, frames = queue.popleft()
            self._unread[key] -= sum(map(len, frames[frames.index(DELIMITER) + 2 :]))
            self._progress[channel] = self._world.now
            client.receive(channel, number, frames)

    def connect(self, client: Client, channel: str) -> None:
        """A client's socket has connected."""
        self._clients[channel][client.name] = client
        if channel == "iopub" and self.process.alive:
            self._world.soon(self.process, self._receive, "iopub", [b"\x01"])

    def has_connected(self, client: Client, channel: str) -> bool:
        """Whether the client's socket is connected."""
        return self.process.alive and client.name in self._clients[channel]

    def arrive(self, client: Client, channel: str, parts: list[bytes]) -> None:
        """A client's request arrives; another hub gets it if this one has been killed."""
        if not self.process.alive or self._ports.bound.get(self._port) is not self:
            return client.send_again(channel, parts)
        frames = [client.name.encode(), DELIMITER, sign(parts), *parts]
        self._world.soon(self.process, self._read, client, channel, frames)

    def _read(self, client: Client, channel: str, frames: list[bytes]) -> None:
        """The hub reads a request. If it is killed meanwhile, the request may be lost."""
        kills = self._world.kills
        client.arrived(frames[3])
        try:
            self._receive(channel, frames)
        finally:
            if self._world.kills > kills:
                client.lost_request(frames[3])

    def disconnect(self, channel: str) -> None:
        """What clients have not received is lost, and they connect again."""
        for identity, client in self._clients[channel].items():
            client.left_out(channel)
            queue = self._queues.pop((channel, identity), None)
            self._unread.pop((channel, identity), None)
            for _, frames in queue or ():
                client.missed(frames)
        clients, self._clients[channel] = list(self._clients[channel].values()), {}
        for client in clients:
            self._world.later(0.1 + self._ports.seconds(), client.reconnect, self, channel)

    def restore_ipc_files(self) -> None:
        """There are none."""

    def close(self) -> None:
        """Unbind. What was sent can still be read."""
        if self._ports.bound.get(self._port) is self:
            del self._ports.bound[self._port]

    killed = close


class Client:
    """A client of a kernel's ports. `requests`: its own, by name. `views`: what it has seen on iopub, by parent.

    A request's name is its date: as in jupyter_client, whose KernelManager has the session of its client and counts its
    own messages, an interrupt or shutdown may have the msg_id of another request (if the plan says so).
    """

    def __init__(self, ports: Ports, name: str, port: int) -> None:
        self.ports, self.world, self.name, self.port = ports, ports.world, name, port
        self.notebook = ports.notebook
        self.random = self.world.random(f"client {name}")
        self.requests: dict[str, Request] = {}
        self.views: dict[str, View] = {}
        self.ended_after: dict[str, int] = {}
        """How many messages hubs had sent when it was told that the kernel had ended that ran this cell."""
        self.subscribed_at = -1.0
        self.last_status = ""
        self.lossy = False
        self.paused = self.gone = False
        self.former: set[Client] = set()
        """Whose kernel it has: the front ends of the notebook that left before it came."""
        self.session = f"{self.random.getrandbits(64):016x}"
        self.answers_input = True
        self._sockets: HubSockets | None = None
        self._earlier_sockets: list[HubSockets] = []
        """Those of killed hubs, from which it may still have to read."""
        self._connecting = False
        self._sent_by: dict[str, int] = {}
        """How many requests its KernelManager and its client have sent."""
        self._arrives_at: dict[str, float] = {}
        """When the last request arrives, by channel: the next one does not overtake it."""
        self._unsent: list[tuple[str, list[bytes]]] = []
        self._received: set[str] = set()
        """The channels and ids of the messages that have come."""
        self._repeated = 0
        """How many have come again."""
        ports.clients.setdefault(port, []).append(self)

    def __repr__(self) -> str:
        return self.name

    # ------------------------------------------------------------------------------------ its connections

    def connect_soon(self) -> None:
        """The hub has bound the ports."""
        if not self._connecting and not self.gone:
            self._connecting = True
            self.world.later(self.random.uniform(0.001, 0.2), self._connect)

    def _connect(self) -> None:
        self._connecting = False
        sockets = self.ports.bound.get(self.port)
        if sockets is None or self.gone:
            return
        if self._sockets is not None:
            self._earlier_sockets.append(self._sockets)
        self._sockets = sockets
        if self.subscribed_at < 0:
            for channel in ("shell", "stdin", "control", "iopub"):
                self.reconnect(sockets, channel)
            return
        for channel in ("shell", "stdin", "control"):
            self.world.later(self.random.uniform(0, _RECONNECTED), self.reconnect, sockets, channel)
        late = self.random.choice((0, 0, 0, 2.0))
        self.world.later(
            late, self.reconnect, sockets, "iopub"
        )  # it subscribes again when its program next uses it

    def _connected(self, channel: str) -> None:
        if channel == "iopub":
            if self.subscribed_at < 0:
                self.subscribed_at = self.world.now
            return
        unsent, self._unsent = self._unsent, []
        for name, parts in unsent:
            self._transmit(name, parts)

    def reconnect(self, sockets: HubSockets, channel: str) -> None:
        """One of its sockets connects again."""
        if self._sockets is sockets and not self.gone:
            sockets.connect(self, channel)
            self._connected(channel)

    def leave(self) -> None:
        """The front end is closed."""
        self.gone = True

    def reads(self, channel: str) -> bool:
        """Whether it receives what has come."""
        return not self.paused and not self.gone

    def resume(self) -> None:
        """It reads again."""
        self.paused = False
        if self._sockets is not None:
            for channel in CHANNELS:
                for sockets in self._earlier_sockets:  # what a killed hub had sent
                    sockets.drain((channel, self.name))
                self._sockets.drain_soon((channel, self.name))

    # ------------------------------------------------------------------------------------ requests

    def send(
        self, channel: str, msg_type: str, content: dict[str, Any], cell: list[Any] | None = None
    ) -> Request:
        """Send a request. `cell`: the actions of a cell."""
        name = f"{self.name}-{len(self.requests)}"
        header = {
            "msg_id": self._new_id(msg_type) if self.world.ids_collide else name,
            "msg_type": msg_type,
            "session": self.session,
            "username": "u",
            "version": "5.3",
            "date": name,
        }
        parts = [json.dumps(header).encode(), b"{}", b"{}", json.dumps(content).encode()]
        request = self.requests[name] = Request(self, header, self.world.now, content, cell)
        self.world.all_requests[name] = request
        self.world.asked += sum(map(len, parts))
        self.world.note(self.name, "sends", msg_type, name)
        self._transmit(channel, parts)
        return request

    def _new_id(self, msg_type: str) -> str:
        """Return a msg_id, which counts the messages of the KernelManager, or of its client."""
        sender = "manager" if msg_type in _OF_MANAGER else "client"
        self._sent_by[sender] = self._sent_by.get(sender, 0) + 1
        return f"{self.session}-{self._sent_by[sender]}"

    def _transmit(self, channel: str, parts: list[bytes]) -> None:
        if self._sockets is None or not self._sockets.has_connected(self, channel):
            self._unsent.append((channel, parts))
            return
        self.world.later(self._delay(channel), self._sockets.arrive, self, channel, parts)

    def _delay(self, channel: str) -> float:
        """Each socket keeps the order of its messages."""
        at = max(self._arrives_at.get(channel, 0.0), self.world.now + self.ports.seconds())
        self._arrives_at[channel] = at
        return at - self.world.now

    def send_again(self, channel: str, parts: list[bytes]) -> None:
        """It did not reach the hub, which was killed."""
        if self._sockets is not None and self.ports.bound.get(self.port) is self._sockets:
            return self._transmit(channel, parts)
        self._unsent.append((channel, parts))

    # ------------------------------------------------------------------------------------ what comes

    def receive(self, channel: str, number: int, frames: list[bytes]) -> None:
        """A message comes. `number`: its place among all that the hub has sent."""
        at = frames.index(DELIMITER)
        parts = frames[at + 2 :]
        if frames[at + 1] != sign(parts):
            raise Failure("signature", f"{self.name} got a message with a wrong signature")
        header, content = _parsed(parts[0]), _parsed(parts[3])
        parent = _parent(parts[1])
        msg_id, msg_type = str(header["msg_id"]), str(header["msg_type"])
        if (key := f"{channel}{msg_id}") in self._received:
            self._repeated += 1
            counts_lost = self.world.disk_was_full and self.world.kills > 0
            asked_again = channel == "stdin" and self.world.kills and self.world.keeper_kills
            if self._repeated <= self.world.torn_sends or counts_lost or asked_again:
                return  # it was being sent when a hub was killed, or neither hub nor keeper knows of it
            raise Failure("twice", f"{self.name} got {msg_type} {content} of {parent.get('date')} twice")
        self._received.add(key)
        self.world.absorb(parts[3])
        parent_id = str(parent.get("date", ""))
        self.world.note(self.name, "gets", msg_type, parent_id, str(content.get("execution_state", ""))[:40])
        if channel == "iopub":
            if msg_type == "status":
                self.last_status = str(content["execution_state"])
            if parent_id:
                asked = self.world.all_requests.get(parent_id)
                log_lost = self.world.disk_was_full and self.world.keeper_kills
                if asked is not None and asked.client in self.former and not log_lost:
                    raise Failure("former output", f"{self.name} got {msg_type} of {parent_id}")
                if parent_id not in self.views:
                    self.views[parent_id] = View(self, parent_id)
                self.views[parent_id].add(number, msg_type, content)
        elif channel == "stdin":
            self._asked(parent_id)
        else:
            self._replied(parent_id, number, msg_type, content)

    def _replied(self, parent_id: str, number: int, msg_type: str, content: dict[str, Any]) -> None:
        request = self.requests.get(parent_id)
        if request is None:
            raise Failure("wrong client", f"{self.name} got a {msg_type} to {parent_id}")
        request.reply(number, msg_type, content)

    def _asked(self, parent_id: str) -> None:
        request = self.requests.get(parent_id)
        if request is None:
            raise Failure("wrong client", f"{self.name} is asked for {parent_id}")
        request.asked += 1
        if self.answers_input:
            self.world.later(self.random.uniform(0.01, 1.0), self._answer, request)

    def _answer(self, request: Request) -> None:
        if not request.replies and not self.gone:
            request.answered = True
            parts = [
                json.dumps({"msg_id": f"{request.msg_id}-answer", "msg_type": "input_reply", "session": self.session}),
                "{}", "{}", json.dumps({"value": "yes", "status": "ok"}),
            ]  # fmt: skip
            self._transmit("stdin", [part.encode() for part in parts])

    def kernel_ended(self) -> None:
        """Its front end is told that the kernel has ended: the output of the cells that ran was sent before."""
        for name in self.requests:
            runs = self.world.executed.get(name)
            if runs and not runs[-1].status:
                self.ended_after.setdefault(name, self.world.sends)

    def arrived(self, header: bytes) -> None:
        """The hub reads this request."""
        request = self.requests.get(json.loads(header).get("date"))
        if request is not None:
            request.at_hub = min(request.at_hub, self.world.now)

    def lost_request(self, header: bytes) -> None:
        """The hub was killed while it read this request."""
        request = self.requests.get(json.loads(header).get("date"))
        if request is not None:
            request.lost = True

    def left_out(self, channel: str) -> None:
        """The hub disconnects it, because it does not read."""
        self.lossy = True

    def missed(self, frames: list[bytes]) -> None:
        """This message is lost with the connection."""
        self.lossy = True
