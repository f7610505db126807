"""A replay passes jupyter_server's own rate limit, in order; live messages wait for nothing."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Callable, Container
from typing import Any

import pytest
from jupyter_client.session import Session
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from runtimes import RUNTIME, make
from tornado.platform.asyncio import BaseAsyncIOLoop
from traitlets.config import LoggingConfigurable
from windows import fixed_window

from jupyter_gpu_kernel.hub.kernel.core.pacing import STALL, Pacer
from jupyter_gpu_kernel.wire.kernel_messages.compose import PIECE
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message, keeper_message, lane_of
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint, ProtocolError


class Timeless(selectors.DefaultSelector):
    """What waits is due at once: `now` jumps there."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0
        return super().select(0)


class Loop(asyncio.SelectorEventLoop):
    """A loop with a clock of its own."""

    def __init__(self) -> None:
        self.selector = Timeless()
        super().__init__(self.selector)

    def time(self) -> float:
        return self.selector.now


class TornadoLoop(BaseAsyncIOLoop):
    """What jupyter_server takes the time from, on that clock."""

    def time(self) -> float:
        return float(self.asyncio_loop.time())


class Server(ZMQChannelsWebsocketConnection):
    """jupyter_server's websocket, as far as its rate limit goes."""

    def __init__(self) -> None:
        LoggingConfigurable.__init__(self)
        self.session = Session()
        self.complaints: list[str] = []

    def write_stderr(self, error_message: str, parent_header: Any) -> None:
        self.complaints.append(error_message)

    def drops(self, message: Message) -> bool:
        nothing = dict.fromkeys(("header", "parent_header", "content"))
        return message.channel is Channel.IOPUB and self._limit_rate("iopub", nothing, list(message.parts))


def lane(message: Message) -> Lane:
    return lane_of(message, "" if message.channel is Channel.KEEPER else message.msg_type)


def now() -> float:
    return asyncio.get_running_loop().time()


def put(
    pacer: Pacer, message: Message, number: int, *, now: float = 0.0, pieces: int = 0, has_room: bool
) -> bool:
    return pacer.put(message, number, lane(message), pieces, has_room, now)


def passed(pacer: Pacer, *, unread: Container[Channel] = ()) -> list[Message]:
    """What is passed on now, without a limit of the rate."""
    messages: list[Message] = []
    while pacer.next_message is not None:
        has_room = pacer.next_message.channel not in unread
        message = pacer.next(0.0, has_room=has_room, rate_limited=False)
        if message is None:
            break
        messages.append(message)
    return messages


class Replay:
    """A pacer, and the server behind it; numbers are given as messages come."""

    def __init__(self) -> None:
        self.server = Server()
        self.passed: list[Message] = []
        self.held: list[int] = []
        self.number = 0
        self.reads = self.rate_limited = True
        self.pacer = Pacer()
        self._timer: asyncio.TimerHandle | None = None

    def _pass_on(self, message: Message) -> None:
        if message.channel is Channel.KEEPER and message.content()["state"] == "begin":
            self.pacer.begin_replay(rate_limited=self.rate_limited)
        elif message.channel is Channel.KEEPER:
            self.pacer.end_replay()
        assert not self.server.drops(message), self.server.complaints
        self.passed.append(message)

    def take(self, *messages: Message) -> None:
        for message in messages:
            self.number += 1
            if put(self.pacer, message, self.number, now=now(), has_room=self.reads):
                self._pass_on(message)
            elif self._timer is None:
                self.run()

    def run(self) -> None:
        """Pass on what is due, now and later."""
        waited = self.pacer.waiting
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self.pacer.look_at is not None and self.pacer.look_at <= now():
            message = self.pacer.next(now(), has_room=self.reads, rate_limited=self.rate_limited)
            if message is not None:
                self._pass_on(message)
        if waited:
            self.held.append(self.pacer.oldest)
        if self.pacer.look_at is not None:
            self._timer = asyncio.get_running_loop().call_at(self.pacer.look_at, self.run)

    def pauses(self, seconds: float) -> None:
        """The front end reads nothing for a while."""
        self.reads = False
        asyncio.get_running_loop().call_later(seconds, setattr, self, "reads", True)

    @property
    def text(self) -> str:
        streams = (m for m in self.passed if b'"stream"' in m.parts[0])
        return "".join(message.content()["text"] for message in streams)


def output(kind: str, **content: Any) -> Message:
    return Message(Channel.IOPUB, 0, make(kind, content, json.dumps({"msg_id": "cell"}).encode()))


def stream(text: str) -> Message:
    return output("stream", name="stdout", text=text)


def on_a_loop(*plays: Callable[[Replay], None]) -> tuple[Replay, float]:
    """What became of it, and how many seconds that would have taken. Each waits until all before has passed."""
    loop = Loop()
    tornado = TornadoLoop(asyncio_loop=loop, make_current=False)
    replay = Replay()

    async def run() -> None:
        for play in plays:
            play(replay)
            while replay.pacer.oldest:
                await asyncio.sleep(0.01)

    try:
        loop.run_until_complete(run())
    finally:
        tornado.close(all_fds=True)
    return replay, loop.time()


BEGIN, END = keeper_message(event="replay", state="begin"), keeper_message(event="replay", state="end")
MANY = [stream("line %d\n" % number) for number in range(20_000)]


@pytest.mark.parametrize(
    "messages",
    [MANY, [stream("x" * PIECE)] * 300, [stream("y" * 15_000_000)], [output("display_data", data={})] * 9000],
    ids=["lines", "pieces", "one", "displays"],
)
def test_a_replay_stays_below_the_limit(messages: list[Message]) -> None:
    def play(replay: Replay) -> None:
        replay.take(BEGIN, *messages, output("status", execution_state="idle"), END)

    replay, seconds = on_a_loop(play)
    assert not replay.server.complaints
    if b'"stream"' in messages[0].parts[0]:
        assert replay.text == "".join(message.content()["text"] for message in messages)
    counted = sum(1 for m in replay.passed if m.channel is Channel.IOPUB)
    size = sum(sum(map(len, m.parts)) for m in replay.passed if b'"stream"' in m.parts[0])
    assert max(counted / 1000, size / 1e6) < seconds < 1.6 * max(counted / 1000, size / 1e6)
    assert replay.passed[-1] == END


def test_the_limit_is_one() -> None:
    """Without a pace the server drops these, so the test above can fail."""

    def play(replay: Replay) -> None:
        replay.rate_limited = False
        replay.take(BEGIN, *MANY)

    with pytest.raises(AssertionError, match="message rate exceeded"):
        on_a_loop(play)


def test_live_messages_pass_at_once() -> None:
    def play(replay: Replay) -> None:
        live = [stream(str(number)) for number in range(1000)]
        replay.take(END, *live)
        assert replay.passed == [END, *live]

    replay, seconds = on_a_loop(play)
    assert (replay.held, seconds) == ([], 0)


def test_urgent_messages_overtake_a_replay_and_a_reply_does_not() -> None:
    request = Message(Channel.STDIN, 1, make("input_request", {}))
    reply = Message(Channel.SHELL, 1, make("execute_reply", {}))
    completion = Message(Channel.SHELL, 1, make("complete_reply", {}))

    def play(replay: Replay) -> None:
        replay.take(BEGIN, *[stream("x" * PIECE)] * 30, reply, request, completion)
        assert replay.passed[-2:] == [request, completion]
        assert replay.pacer.waiting > 20

    replay, _ = on_a_loop(play)
    assert replay.passed[-1] == reply


def test_what_waits_can_be_hurried_or_dropped() -> None:
    def play(replay: Replay) -> None:
        replay.take(BEGIN, *[output("display_data", data={})] * 500)
        assert 0 < replay.pacer.waiting < 500
        replay.pacer.end_replay()
        replay.run()
        assert replay.pacer.waiting == 0
        assert len(replay.passed) == 501
        replay.take(BEGIN, *[output("display_data", data={})] * 500)
        replay.pacer.close()
        assert replay.pacer.waiting == 0

    replay, seconds = on_a_loop(play)
    assert len(replay.passed) < 600 and seconds < 0.1


def test_what_waits_is_not_acknowledged() -> None:
    """So the keeper sends no more than its window, and keeps it for another hub."""
    chunk = 64 * 1024
    keeper = Endpoint(RUNTIME, first=False, window=fixed_window(32 * chunk))
    hub = Endpoint(RUNTIME, first=True)
    for end in (keeper, hub):
        end.opened()

    def exchange() -> list[bytes]:
        came: list[bytes] = []
        for _ in range(3):
            for here, there in ((hub, keeper), (keeper, hub)):
                here.acknowledge()
                for frame in here.outgoing():
                    came += there.receive(frame)
        return came

    exchange()
    for number in range(100):
        keeper.send(Lane.ORDERED, bytes([number]) * chunk)
    hub.hold_acknowledgements(1)
    assert len(exchange()) == 32
    assert exchange() == []
    hub.hold_acknowledgements(11)
    assert len(exchange()) == 10
    for end in (keeper, hub):
        end.closed()
        end.opened()
    assert exchange() == []  # seen before, and still not acknowledged
    assert keeper.outbox.size == 90 * chunk
    hub.hold_acknowledgements(0)
    rest = exchange() + exchange() + exchange()
    assert rest[-1] == bytes([99]) * chunk and keeper.outbox.size == 0


def test_what_was_held_of_one_keeper_says_nothing_about_its_successor() -> None:
    """Whose numbers begin anew."""
    hub = Endpoint(RUNTIME, first=True)
    for _ in range(2):
        keeper = Endpoint(RUNTIME, first=False)
        for end in (keeper, hub):
            end.closed()
            end.opened()
        for number in range(5):
            keeper.send(Lane.ORDERED, bytes([number]))
        for here, there in ((hub, keeper), (keeper, hub), (hub, keeper)):
            here.acknowledge()
            for frame in here.outgoing():
                there.receive(frame)
        assert keeper.outbox.size == 0
        hub.hold_acknowledgements(3)


def test_what_is_held_is_the_oldest_that_waits_whatever_numbering_follows() -> None:
    """Of one message that was cut into pieces, too: it is acknowledged with its last piece."""

    def play(replay: Replay) -> None:
        replay.take(BEGIN, *[stream("x" * PIECE)] * 30)
        assert replay.pacer.oldest == replay.number - replay.pacer.waiting + 1
        replay.take(stream("x" * PIECE * 20))
        assert replay.pacer.oldest == replay.number - replay.pacer.waiting + 1
        replay.pacer.keeper_changed()
        put(replay.pacer, stream("from a successor"), 1, now=now(), has_room=True)
        assert replay.pacer.oldest == 1, (
            "nothing of the new numbering is acknowledged before the old was passed on"
        )

    replay, _ = on_a_loop(play)
    assert replay.text.endswith("from a successor")
    assert replay.pacer.waiting_by_lane == [0, 0, 0], "a message in pieces counts once"


def test_what_a_front_end_did_not_read_for_long_is_a_replay_until_all_of_it_was_read() -> None:
    def unread(replay: Replay) -> None:
        replay.take(*MANY[:1])
        replay.pauses(STALL + 1)
        replay.take(*MANY[1:])

    live = [output("display_data", data={})] * 200

    def then(replay: Replay) -> None:
        before = len(replay.passed)
        replay.take(*live)
        assert len(replay.passed) == before + len(live)

    replay, seconds = on_a_loop(unread, then)
    assert replay.text == "".join(message.content()["text"] for message in MANY)
    assert seconds > len(MANY) / 1000


def test_what_a_front_end_did_not_read_for_a_moment_passes_at_once_again_and_again() -> None:
    def unread(replay: Replay) -> None:
        asyncio.get_running_loop().selector.now += 60  # type: ignore[attr-defined]
        replay.pauses(STALL / 2)
        replay.take(*MANY[:500])

    replay, _ = on_a_loop(unread, unread, unread)
    assert len(replay.passed) == 1500
    assert {number for number in replay.held if number} == {1, 501, 1001}, "all of it, or nothing"


def test_another_keepers_messages_come_behind_all_that_waits_read_or_not() -> None:
    def play(replay: Replay) -> None:
        replay.reads = False
        replay.take(BEGIN, *MANY[:100])
        assert list(replay.pacer.flush(now())) == [BEGIN, *MANY[:100]]
        assert replay.pacer.waiting_by_lane == [0, 0, 0] and replay.pacer.look_at is None

    on_a_loop(play)


def test_a_long_text_is_passed_on_in_pieces_whether_it_waits_or_not() -> None:
    """If its hub is killed meanwhile, the next hub sends the last piece again: a client knows its signature."""
    text, live, late = stream("x" * PIECE * 3), Pacer(), Pacer()
    for pacer, has_room in ((live, True), (late, False)):
        assert not put(pacer, text, 1, has_room=has_room)
    pieces = [piece.parts for piece in passed(live)]
    assert len(pieces) == 3 and pieces == [piece.parts for piece in passed(late)]


def test_pieces_that_a_killed_hub_has_passed_on_are_left_out() -> None:
    """The next hub gets the whole message, and goes on between the same pieces, also if it is killed, too."""
    text = "".join(f"{number:9}\n" for number in range(PIECE * 7 // 20))
    reply = Message(Channel.CONTROL, 1, make("interrupt_reply", {}))
    for passed_on, shown in ((0, text), (1, text[PIECE:]), (3, text[3 * PIECE :])):
        pacer = Pacer()
        assert not put(pacer, stream(text), 1, pieces=passed_on, has_room=False)
        assert put(pacer, reply, 2, has_room=True) and pacer.pieces == passed_on
        counts: list[int] = []
        pieces: list[Message] = []
        while message := pacer.next(0.0, has_room=True, rate_limited=False):
            pieces.append(message)
            counts.append(pacer.pieces)
        assert "".join(piece.content()["text"] for piece in pieces) == shown
        assert counts == [*range(passed_on + 1, 4), 0]


def test_what_is_not_read_waits_in_order_and_is_bounded() -> None:
    reply = Message(Channel.CONTROL, 1, make("interrupt_reply", {}))
    question = Message(Channel.STDIN, 1, make("input_request", {}))
    waits = [stream(str(number)) for number in range(100)]
    pacer = Pacer()
    assert not any(put(pacer, message, number, has_room=False) for number, message in enumerate(waits, 1))
    assert put(pacer, reply, 101, has_room=True)
    assert not put(pacer, question, 102, has_room=False)
    assert pacer.oldest == 1 and pacer.waiting_by_lane == [1, 0, 100]
    pacer.end_replay()
    assert not passed(pacer, unread=[Channel.IOPUB]), "what is not read does not go, hurried or not"
    assert pacer.look_at and passed(pacer) == [*waits, question] and pacer.oldest == 0
    large = output("display_data", data={"text/plain": "x" * 30_000_000})
    for number in range(103, 113):  # what was read makes room
        put(pacer, large, number, has_room=False)
        assert passed(pacer) == [large]
    with pytest.raises(ProtocolError, match="more than was acknowledged"):
        for number in range(113, 133):
            put(pacer, large, number, has_room=False)


def test_what_the_keeper_says_in_another_lane_overtakes_what_waits() -> None:
    """And it is not counted as output that waits: a killed hub's successor would get a message twice."""
    pacer = Pacer()
    put(pacer, stream("waits"), 1, has_room=False)
    said = keeper_message(event="state", state="busy")
    assert pacer.put(said, 2, Lane.PROMPT, 0, True, 0.0) and pacer.waiting_by_lane == [0, 0, 1]
