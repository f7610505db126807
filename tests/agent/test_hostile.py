"""What no hub of ours sends, at a real keeper's socket: it ends a connection or gets an error; the keeper
lives on, its kernel runs the next cell, and neither memory nor story grow without end."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keepers import Hub, Place
from malformed import DEEP, HELLO, few, frames, values
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.story import BURST, Limited, Story, read_story
from jupyter_gpu_kernel.wire import PROTOCOL
from jupyter_gpu_kernel.wire.messages import Channel, Message, keeper_message
from jupyter_gpu_kernel.wire.stream.frames import Frame, FrameReader, Kind, json_frame

MUCH = 64 * 1024 * 1024


class Victim:
    """A keeper, and its kernel."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.id = "h1"
        self.keeper = 0
        hub = place.start(self.id)
        self.keeper = hub.keeper
        hub.sock.close()

    def connect(self) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.connect(str(self.place.folder(self.id) / "keeper"))  # waits for room in its queue
        sock.settimeout(DEADLINE)
        return sock

    def send(self, data: bytes) -> List[Frame]:
        """What comes back on a connection of its own, until it is closed."""
        with self.connect() as sock:
            try:
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                reader, got = FrameReader(greeting=False), []
                while True:
                    data = sock.recv(1 << 16)
                    if not data:
                        return got
                    got += reader.feed(data)
            except OSError:  # closed with something unread
                return []

    def ask(self, request: bytes) -> Dict[str, Any]:
        """The answer to a request."""
        with self.connect() as sock:
            sock.sendall(Frame(Kind.REQUEST, number=1, payload=request).encode())
            reader = FrameReader(greeting=False)
            while True:
                for frame in reader.feed(sock.recv(1 << 16)):
                    assert (frame.kind, frame.number) == (Kind.REPLY, 1)
                    return frame.json()

    def lives(self) -> None:
        """Its kernel runs a cell, under the same keeper."""
        hub = Hub(self.connect())
        assert hub.run("print(6 * 7)").endswith("42\n") and hub.keeper == self.keeper
        hub.sock.close()


@pytest.fixture(scope="module")
def victim() -> Iterator[Victim]:
    with tempfile.TemporaryDirectory(
        prefix="jgk", dir="/tmp"
    ) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))
        patch.setattr(sys, "argv", ["agent"])
        patch.setenv("JUPYTER_GPU_KERNEL_ROOT", folder)
        place = Place(Path(folder))
        victim = Victim(place)
        before = psutil.Process(victim.keeper).memory_info().rss
        yield victim
        victim.lives()
        assert psutil.Process(victim.keeper).memory_info().rss - before < MUCH
        reported = place.story(victim.id)
        assert len([one for one in reported if one["event"] in ("refused", "fault", "x")]) < 5 * BURST
        assert not [one["text"] for one in reported if one["event"] == "fault"], (
            "a fault of ours, and no refusal"
        )
        place.clear()


@few
@given(st.booleans(), st.lists(frames.map(Frame.encode) | st.binary(max_size=100), max_size=5))
def test_frames(victim: Victim, greets: bool, pieces: List[bytes]) -> None:
    hello = json_frame(Kind.HELLO, HELLO).encode() if greets else b""
    victim.send(hello + b"".join(pieces))


def test_a_hello_that_is_refused_leaves_the_one_who_is_there(victim: Victim) -> None:
    hub = Hub(victim.connect())
    hub.run("1")
    for payload in (DEEP, json.dumps({**HELLO, "protocol": PROTOCOL + 1}).encode()):
        assert victim.send(Frame(Kind.HELLO, payload=payload).encode()) == []
    assert hub.run("print('still here')") == "still here\n"
    hub.sock.close()


def test_a_second_hello_ends_the_connection(victim: Victim) -> None:
    hello = json_frame(Kind.HELLO, HELLO).encode()
    assert [frame.kind for frame in victim.send(hello + hello)][1:].count(Kind.HELLO) == 0


def test_a_computer_from_which_the_kernel_was_taken_since_it_was_opened_cannot_attach(victim: Victim) -> None:
    victim.ask(b'{"do": "return", "owner": "one", "by": "alice@one"}')
    hellos = [json_frame(Kind.HELLO, {**HELLO, "owner": owner}).encode() for owner in ("another", "one")]
    refused, accepted = map(victim.send, hellos)
    assert refused == [] and accepted[0].kind is Kind.HELLO
    victim.ask(b'{"do": "return", "owner": "", "by": ""}')


DOINGS = ("status", "owner", "missed", "fresh", "journal", "nothing", "return", "stop")
KEYS = ("why", "notebook", "owner", "by", "cell", "parent", "first", "msg_id", "cell_id")


@few
@given(st.sampled_from(DOINGS), st.dictionaries(st.sampled_from(KEYS), values, max_size=4))
def test_requests(victim: Victim, do: str, more: Dict[str, Any]) -> None:
    if do == "stop":
        more["why"] = [more.get("why")]  # else it would be one
    if do == "fresh":
        more["cell"] = {}
    answer = victim.ask(json.dumps(dict(more, do=do)).encode())
    assert answer and answer.get("error", {}).get("code") in (None, "malformed", "unknown")


@pytest.mark.parametrize("request_", [b"nonsense", DEEP, b"{}", b'{"do": "journal", "first": -1}'])
def test_what_is_no_request(victim: Victim, request_: bytes) -> None:
    """tests/wire/test_hostile.py has all kinds of JSON that is not read."""
    assert victim.ask(request_)["error"]["code"] == "malformed"


COMMANDS: List[Dict[str, Any]] = [
    {},
    {"do": 5},
    {"do": ["stop"]},
    {"do": "failure_seen"},
    {"do": "failure_seen", "reply": {}},
    {"do": "kill", "number": 1000},
    {"do": "signal", "number": "9"},
    {"do": "signal", "number": -9},
    {"do": "signal", "number": 0},
    {"do": "signal", "number": True},
    {"do": "stop", "why": {}},
    {"do": "tell"},
    {"do": "tell", "event": "x", "text": None},
    {"do": "notebook"},
    {"do": "notebook", "notebook": "n" * 100_000},
]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_malformed_ends_its_connection(victim: Victim, command: Dict[str, Any]) -> None:
    hub = Hub(victim.connect())
    hub.run("1")
    hub.tell(keeper_message(**command))
    while hub.sock.recv(1 << 16):
        pass
    hub.sock.close()


def header(**wrong: Any) -> bytes:
    return json.dumps({"msg_id": "m", "msg_type": "execute_request", **wrong}).encode()


REQUESTS: List[Tuple[Channel, Tuple[bytes, ...]]] = [
    (Channel.SHELL, ()),
    (Channel.SHELL, (b"",)),
    (Channel.SHELL, (b"{}",) * 4),
    (Channel.SHELL, (b"[]",) * 4),
    (Channel.SHELL, (header(), b"{}", b"{}", b"no json")),
    (Channel.SHELL, (header(), b"{}", b"[]", b"{}")),
    (Channel.SHELL, (header(), b"{}", b"{}", DEEP)),
    (Channel.SHELL, (header(msg_id=["m"]), b"{}", b"{}", b"{}")),
    (Channel.SHELL, (header(msg_id="m" * 1000), b"{}", b"{}", b"{}")),
    (Channel.SHELL, (header(msg_type={}), b"{}", b"{}", b"{}")),
    (Channel.CONTROL, (header(msg_type="shutdown_request"), b"{}", b"{}", b"5")),
    (Channel.STDIN, (header(msg_type="input_reply"), b"{}", b"{}", b"5")),
    (Channel.IOPUB, (header(), b"{}", b"{}", b"{}")),
]


@pytest.mark.parametrize(("channel", "parts"), REQUESTS)
def test_a_front_ends_request_that_is_none(
    victim: Victim, channel: Channel, parts: Tuple[bytes, ...]
) -> None:
    """It is passed over, as a kernel would; the front end is served."""
    hub = Hub(victim.connect())
    hub.tell(Message(channel, 1, parts))
    assert hub.run("print('served')") == "served\n"
    hub.sock.close()


PUBLISHES = """
from IPython import get_ipython
import json
kernel = get_ipython().kernel
session, iopub = kernel.session, kernel.iopub_socket
def header(msg_type): return json.dumps({"msg_type": msg_type, "msg_id": "x", "session": "y"}).encode()
def publish(*parts):
    iopub.send_multipart([b"topic", b"<IDS|MSG>", session.sign(list(parts[:4])), *parts])
deep = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
iopub.send_multipart([b"<IDS|MSG>"])
iopub.send_multipart([b"topic"])
mine = json.dumps(kernel.get_parent()["header"], default=str).encode()
types = "status execute_input execute_reply display_data error clear_output comm_msg stream"
for msg_type in types.split():
    for content in (b"", b"5", b"[]", b"{}", deep, b'{"execution_state": [], "execution_count": {}, "name": 3}'):
        for parent in (b"{}", b"[]", b'{"msg_id": {}}', mine):
            publish(header(msg_type), parent, b"{}", content)
publish(b"[]", b"{}", b"{}", b"{}")
publish(*[b"{}"] * 70_000)
"""


def test_a_kernel_that_publishes_anything(victim: Victim) -> None:
    hub = Hub(victim.connect())
    cell = hub.ask(PUBLISHES)
    hub.until(lambda message: message.channel is Channel.SHELL and message.parent().get("msg_id") == cell)
    assert hub.run("print('on')") == "on\n"
    hub.sock.close()
    victim.lives()


@few
@given(values.map(lambda value: json.dumps(value).encode()) | st.binary(max_size=80))
def test_datagrams_of_any_process(victim: Victim, datagram: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto(datagram, str(victim.place.folder(victim.id) / "story"))


@pytest.mark.parametrize(
    "wrong", [{"pid": "1"}, {"uid": -1}, {"user": 5}, {"command": "c" * 1000}, {"action": None}, {"kind": []}]
)
def test_a_sigterm_that_was_none(victim: Victim, wrong: Dict[str, Any]) -> None:
    sender = {"pid": 1, "uid": 1, "user": "u", "command": "c"}
    report = {"event": "sigterm", "kind": "owner", **sender, "action": "a"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        for datagram in (json.dumps({**report, **wrong}).encode(), DEEP[:60_000]):
            sock.sendto(datagram, str(victim.place.folder(victim.id) / "story"))
    victim.lives()
    assert not victim.place.story(victim.id, "sigterm")


def test_more_connections_than_anybody_needs(victim: Victim) -> None:
    """The oldest that says nothing has to go, and never the hub's."""
    hub = Hub(victim.connect())
    hub.run("1")
    socks = [victim.connect() for _ in range(200)]
    assert victim.ask(b'{"do": "status"}')["id"] == victim.id
    assert hub.run("print('there')") == "there\n"
    assert socks[0].recv(1) == b""
    for sock in [hub.sock, *socks]:
        sock.close()


def test_who_asks_and_does_not_read_is_closed(victim: Victim) -> None:
    hub = Hub(victim.connect())
    cell = hub.ask("print('x' * 1_000_000)")
    hub.run("1")
    hub.sock.close()
    with victim.connect() as sock:
        sock.sendall(json_frame(Kind.REQUEST, {"do": "journal", "msg_id": cell}, number=1).encode() * 100)
        poll = select.poll()
        poll.register(sock, 0)  # the other end's closing is told all the same
        assert poll.poll(DEADLINE * 1000)


def test_a_story_has_room_for_so_many_lines_of_others(tmp_path: Path) -> None:
    now = [0.0]
    limited = Limited(Story(tmp_path / "story", RUNTIME.time), lambda: now[0])
    for number in range(1000):
        limited.tell("refused", f"line {number}\nand \x1b[31mmore")
    reported = read_story(tmp_path / "story")
    assert len(reported) == BURST and "\n" not in reported[0]["text"] and "\x1b" not in reported[0]["text"]
    now[0] = 3600.0
    limited.tell("refused", "after an hour")
    assert f"{1000 - BURST} such lines" in read_story(tmp_path / "story")[-1]["text"]


def test_requests_that_are_more_than_may_wait_are_answered(place: Place) -> None:
    """The others run."""
    small = "from jupyter_gpu_kernel.agent.log import requests; requests.MAX_SIZE = 20_000"
    (place.path / "sitecustomize.py").write_text(small)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{place.path}:{os.environ['PYTHONPATH']}")
        hub = place.start("k10")
    stop = place.path / "stop"
    hub.ask(f"import os, time\nwhile not os.path.exists({str(stop)!r}): time.sleep(0.01)")
    cells = [hub.ask(f"print({number})  # " + "x" * 6000) for number in range(6)]
    for cell in cells[3:]:
        hub.until(lambda one, cell=cell: of(one, cell) == "execute_reply" and b"QueueFull" in one.parts[3])  # type: ignore[misc]
    stop.touch()
    assert hub.run("print('all')").endswith("all\n")
    for number, cell in enumerate(cells[:3]):
        assert [one.content()["text"] for one in hub.got if of(one, cell) == "stream"] == [f"{number}\n"]
    hub.sock.close()


def of(message: Message, cell: str) -> str:
    """The type of a message that belongs to this cell."""
    if message.channel is Channel.KEEPER or message.parent().get("msg_id") != cell:
        return ""
    return str(message.header()["msg_type"])
