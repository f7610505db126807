"""What waits for a hub: outputs are merged, the caps hold, what may never be lost is there, in order."""

from __future__ import annotations

import random
import resource
from operator import sub
from pathlib import Path
from typing import Iterator, List

import pytest
from outputs import NEVER, Waiting, kind_of, message, printed, stream
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.core.log import AHEAD
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.log.hub_queue import MIB
from jupyter_gpu_kernel.agent.log.log_file import SIZE
from jupyter_gpu_kernel.wire.kernel_messages.compose import PIECE, split
from jupyter_gpu_kernel.wire.messages import Lane, Message, keeper_message
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint
from jupyter_gpu_kernel.wire.stream.window import START

# ---------------------------------------------------------------------------------------------- merged, collapsed


def test_neighbours_are_merged_and_ids_differ(waiting: Waiting) -> None:
    lines = ["line %d\n" % number for number in range(20_000)]
    for line in lines:
        waiting.put(stream(line))
    taken = waiting.drain()
    assert printed(taken) == "".join(lines)
    assert len(taken) < 10
    assert len({m.header()["msg_id"] for m in taken}) == len(taken)


def test_one_long_message_becomes_smaller_ones(waiting: Waiting) -> None:
    text = "".join(random.Random(1).choices("ab\n", k=PIECE * 5 + 7))
    waiting.put(stream(text))
    taken = waiting.drain()
    assert printed(taken) == text
    assert max(len(m.content()["text"]) for m in taken) <= PIECE
    assert len({m.header()["msg_id"] for m in taken}) == len(taken) == 6
    assert printed(split(stream(text), "stream")) == text


def test_hours_of_progress_are_one_line(waiting: Waiting) -> None:
    for step in range(10_000):
        waiting.put(stream("\r%6d/10000 [===>   ]" % step, name="stderr"))
        waiting.put(message("update_display_data", data={"n": step}, transient={"display_id": "bar"}))
        waiting.put(message("comm_msg", comm_id="w", data={"method": "update", "state": {"value": step}}))
        waiting.put(message("clear_output", "b", wait=True))
        waiting.put(message("display_data", "b", data={"n": step}))
    assert waiting.size < 1_000_000
    last = waiting.drain()[-5:]
    assert [
        m.content() for m in last if kind_of(m) in ("update_display_data", "comm_msg", "display_data")
    ] == [
        {"data": {"n": 9_999}, "transient": {"display_id": "bar"}},
        {"comm_id": "w", "data": {"method": "update", "state": {"value": 9_999}}},
        {"data": {"n": 9_999}},
    ]


def test_what_a_widget_captures_is_not_cleared_with_it(waiting: Waiting) -> None:
    waiting.put(stream("before\n"))
    waiting.put(message("comm_msg", comm_id="out", data={"method": "update", "state": {"msg_id": "a"}}))
    waiting.put(stream("inside\n"))
    waiting.put(message("clear_output", wait=False))
    waiting.put(message("comm_msg", comm_id="out", data={"method": "update", "state": {"msg_id": ""}}))
    taken = waiting.drain()
    assert [kind_of(m) for m in taken] == ["stream", "comm_msg", "clear_output", "comm_msg"]
    assert printed(taken) == "before\n"


# ---------------------------------------------------------------------------------------------- beyond the cap


def test_head_and_tail_and_a_notice_between(waiting: Waiting) -> None:
    lines = ["line %07d\n" % number for number in range(2_000_000)]
    waiting.put(message("status", execution_state="busy"))
    for at in range(0, len(lines), 1000):
        waiting.put(stream("".join(lines[at : at + 1000])))
        assert waiting.size <= 4 * MIB
    for kind in ("error", "execute_reply", "status"):
        waiting.put(message(kind))
    taken = waiting.drain()
    assert [kind_of(m) for m in taken if kind_of(m) != "stream"] == [
        "status",
        "error",
        "execute_reply",
        "status",
    ]
    text = printed(taken).splitlines(keepends=True)
    assert text[:20_000] == lines[:20_000]
    assert text[-20_000:] == lines[-20_000:]
    (notice,) = [m for m in taken if m.content().get("name") == "stderr"]
    at = taken.index(notice)
    assert printed(taken[:at]) + printed(taken[at:]) == "".join(text)
    missing = len("".join(lines)) - len("".join(text))
    assert abs(int(notice.content()["text"].split()[1]) - missing / 1e6) <= 1  # "\n[… 431 MB of output …"
    assert notice.parent()["msg_id"] == "a"


def test_the_cell_that_prints_most_gives_most(waiting: Waiting) -> None:
    small = "".join("small %d\n" % number for number in range(20_000))
    waiting.put(stream(small, "small"))
    for number in range(200):
        waiting.put(stream("large %d\n" % number * 10_000, "large"))
        waiting.put(message("execute_reply", "large", n=number))
    assert waiting.size <= 4 * MIB
    taken = waiting.drain()
    assert printed(taken, "small") == small
    replies = [m.content()["n"] for m in taken if kind_of(m) == "execute_reply"]
    assert replies == list(range(200))
    assert "left out here" in printed(taken, "large", "stderr")


def test_many_cells_fit(waiting: Waiting) -> None:
    for number in range(100):
        waiting.put(message("execute_input", str(number), code="x"))
        waiting.put(stream("%d\n" % number * 60_000, str(number)))
        waiting.put(message("status", str(number), execution_state="idle"))
        assert waiting.size <= 4 * MIB
    taken = waiting.drain()
    for number in range(100):
        texts = [m for m in taken if m.parent()["msg_id"] == str(number)]
        assert [kind_of(m) for m in texts if kind_of(m) in NEVER] == ["execute_input", "status"]
        assert printed(texts, str(number)).startswith("%d\n" % number)


@pytest.mark.parametrize("kind", ["display_data", "execute_result", "update_display_data"])
def test_large_displays_become_their_text_widgets_go_last(waiting: Waiting, kind: str) -> None:
    for number in range(20):
        data = {"text/plain": "<Figure %d>" % number, "image/png": "x" * MIB}
        waiting.put(message(kind, data=data, metadata={}, transient={"display_id": str(number)}))
    for _ in range(20):
        waiting.put(message("comm_msg", "b", comm_id="w", data={"method": "custom", "content": "x" * MIB}))
        waiting.put(message("status", "b", execution_state="busy"))
    assert waiting.size <= 4 * MIB
    taken = waiting.drain()
    texts = [m.content()["data"]["text/plain"] for m in taken if kind_of(m) == kind]
    assert len(texts) == 20
    assert (
        texts[0] == "<Figure 0>\n[… 1 MB of image/png left out here: the output exceeded journal_cap_mib …]"
    )
    assert [kind_of(m) for m in taken].count("status") == 20
    assert "left out here" in printed(taken, "b", "stderr")


def test_many_small_displays_fit(waiting: Waiting) -> None:
    for number in range(2000):
        data = {"text/plain": "figure %d" % number, "image/png": "x" * 10_000}
        waiting.put(message("display_data", data=data, metadata={}, transient={}))
        assert waiting.size <= 4 * MIB
    texts = [m.content()["data"]["text/plain"].split("\n")[0] for m in waiting.drain()]
    assert texts == ["figure %d" % number for number in range(2000)]


# ---------------------------------------------------------------------------------------------- the disk


def test_little_is_moved_to_disk_at_once(tmp_path: Path) -> None:
    """A control message waits meanwhile."""
    waiting, sizes = Waiting(tmp_path, KernelSettings()), [0]
    for number in range(150):
        waiting.put(message("display_data", data={"n": number, "text": "x" * 100_000}))
        sizes.append(waiting.log.file.queue.segments.size)
    assert sizes[-1] > 4 * MIB
    assert max(map(sub, sizes[1:], sizes)) < 1.5 * MIB
    assert [m.content()["data"]["n"] for m in waiting.drain()] == list(range(150))
    waiting.close()


def test_only_the_user_can_read_the_files(tmp_path: Path, waiting: Waiting) -> None:
    waiting.put(stream("x" * MIB))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert len(list(tmp_path.iterdir())) == 2 and waiting.size > MIB
    assert printed(waiting.drain()) == "x" * MIB


def test_files_that_were_read_are_removed_with_the_next_checkpoint(tmp_path: Path, waiting: Waiting) -> None:
    sizes = []
    for _ in range(50):
        waiting.put(stream("x" * 2 * MIB))
        assert printed(waiting.drain()) == "x" * 2 * MIB
        acknowledged = waiting.log.state.serials[Lane.ORDERED] + len(waiting.log.state.lanes[Lane.ORDERED])
        waiting.log.add("acknowledge", [0, 0, acknowledged])
        waiting.log.flush()
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    assert max(sizes) < SIZE + 5 * MIB
    assert sizes[-1] < 2 * SIZE / 3, "checkpoints were written"


def test_a_damaged_file_is_reported_and_the_rest_is_there(tmp_path: Path, waiting: Waiting) -> None:
    """Also when the cap is exceeded then, so that the middle of the lost text would be left out."""
    waiting.put(stream("lost\n" * 600_000))
    for path in tmp_path.glob("output-*"):
        path.write_bytes(path.read_bytes()[:-1])
    for number in range(20):
        waiting.put(stream("%d\n" % number * 100_000, "b"))
    waiting.put(message("status", "b"))
    taken = waiting.drain()
    assert "lost" not in printed(taken) and kind_of(taken[-1]) == "status"
    assert printed(taken, "b").startswith("0\n") and printed(taken, "b").endswith("19\n")
    assert [text for text in waiting.problems if "cannot be read from disk" in text]


@pytest.fixture
def small_disk() -> Iterator[None]:
    """No file of this process may be larger than 16 KiB: the system says so in the middle of a write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 * 1024, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_disk_that_takes_no_more(tmp_path: Path, folder: str, small_disk: None) -> None:
    """Nor one that is not there: it is the cap, and no more."""
    waiting = Waiting(tmp_path / folder, KernelSettings(journal_memory_mib=2, journal_cap_mib=64))
    lines = ["%060d\n" % number for number in range(400_000)]
    for at in range(0, len(lines), 100):
        waiting.put(stream("".join(lines[at : at + 100])))
        waiting.put(message("status", n=at))
    assert waiting.size < 8 * MIB
    taken = waiting.drain()
    assert [m.content()["n"] for m in taken if kind_of(m) == "status"] == list(range(0, len(lines), 100))
    text = printed(taken).splitlines(keepends=True)
    assert (text[0], text[-1]) == (lines[0], lines[-1])
    assert "left out here" in printed(taken, name="stderr")
    assert [text for text in waiting.problems if "waits for a front end cannot be written" in text]
    assert len(waiting.problems) == len(set(waiting.problems)), "each problem is reported once"
    waiting.close()
    assert [text for text in waiting.problems if "the log cannot be written" in text]


# ---------------------------------------------------------------------------------------------- the flow


class Hub:
    """The other end of a flow, which takes what it is given."""

    def __init__(self, waiting: Waiting) -> None:
        self.keeper, self.end = Endpoint(RUNTIME, first=False), Endpoint(RUNTIME, first=True)
        self.log = waiting.log
        self.got: List[Message] = []

    def attach(self) -> None:
        self.keeper.opened()
        self.end.opened()
        for here, there in ((self.end, self.keeper), (self.keeper, self.end)):
            for frame in here.outgoing():
                there.receive(frame)
        self.log.hub_attached("hub", [0, 0, 0])
        self.reads()

    def reads(self) -> None:
        """The keeper's end gets what the log has sent, and tells what the hub has acknowledged."""
        self.log.hub_reads(list(self.keeper.outbox.serials), self.keeper.outbox.window)
        self.log.carry_out()
        for effect in self.log.sent:
            self.keeper.send(*effect)
        self.log.flush()

    def leave(self) -> None:
        self.log.hub_detached()
        self.keeper.closed()
        self.end.closed()

    def read(self) -> None:
        """Until nothing more comes."""
        frames = True
        while frames:
            self.reads()
            frames = bool(outgoing := self.keeper.outgoing())
            for frame in outgoing:
                self.got += map(Message.decode, self.end.receive(frame))
            self.end.acknowledge()
            for frame in self.end.outgoing():
                self.keeper.receive(frame)


def test_live_messages_pass_as_they_are_and_a_replay_is_marked(waiting: Waiting) -> None:
    hub = Hub(waiting)
    hub.attach()
    live = [stream("a"), stream("b")]
    for one in live:
        hub.log.send(Lane.ORDERED, one)
    hub.read()
    assert hub.got == [keeper_message(event="replay", state="end"), *live]
    hub.leave()
    for _ in range(2):
        hub.log.send(Lane.ORDERED, stream("c"))
    hub.got.clear()
    hub.attach()
    hub.log.send(Lane.ORDERED, message("status"))
    hub.read()
    assert [kind_of(m) for m in hub.got] == ["", "stream", "", "status"]
    assert [m.content()["state"] for m in hub.got if not kind_of(m)] == ["begin", "end"]
    assert printed(hub.got) == "cc"
    assert hub.log.file.unacknowledged == 0


def test_the_connection_holds_little_where_nobody_reads(waiting: Waiting) -> None:
    hub = Hub(waiting)
    hub.attach()
    hub.read()
    for _ in range(200):
        hub.log.send(Lane.ORDERED, stream("x" * 100_000))
        hub.reads()
    ahead = AHEAD + START  # of which nothing was acknowledged yet
    assert hub.keeper.outbox.size < ahead + 200_000
    hub.log.send(Lane.URGENT, message("status", "urgent"))
    assert ahead < hub.log.file.unacknowledged < ahead + 5 * MIB
    hub.leave()
    for _ in range(200):
        hub.log.send(Lane.PROMPT, message("complete_reply", "asked", text="x" * 100_000))
        hub.reads()
    assert hub.keeper.outbox.size < ahead + 300_000, "nor of replies, while no hub is there"
    waiting.drain()
    kinds = [kind_of(Message.decode(data)) for lane in hub.log.state.lanes for data in lane]
    assert len(kinds) > 220 and kinds.count("complete_reply") == 200
    hub.log.leaves()
    hub.log.flush()
    assert hub.log.file.unacknowledged == 0
