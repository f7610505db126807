"""The log of a killed keeper: its successor has the same state, wherever that was killed, and goes on."""

from __future__ import annotations

import json
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any, Callable, List, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from logs import FiledLog
from runtimes import RUNTIME, Clock, make

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.log.log_file import NAME, RETRY
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message, keeper_message
from jupyter_gpu_kernel.wire.stream.endpoint import Endpoint

CELLS = [Message(Channel.SHELL, 1, make("execute_request", {"code": code})) for code in "abc"]
SMALL = KernelSettings(journal_memory_mib=0.002, journal_cap_mib=0.05)


def opened(folder: Path, settings: KernelSettings = SMALL) -> FiledLog:
    return FiledLog(folder, settings)


def of(cell: int, msg_type: str, **content: Any) -> Message:
    channel = Channel.SHELL if msg_type == "execute_reply" else Channel.IOPUB
    return Message(channel, 1, make(msg_type, content, CELLS[cell].parts[0]))


def facts(log: FiledLog) -> Any:
    """What a successor must know. Notices have random ids."""
    state = log.state
    queue, waits = pickle.loads(pickle.dumps(log.file.queue)), []
    while queue:
        waits += [(one.msg_type, one.content()) for one in map(Message.decode, queue.take(RUNTIME, 1))]
    pending = [(one.key, one.forwarded, one.state, one.count) for one in state.requests.pending.values()]
    cells = [cell.summary() for cell in state.cells.cells.values()]
    return (
        [len(lane) for lane in state.lanes], state.serials, waits, pending, cells, state.hub, state.received_counts,
        state.unacknowledged_size - sum(len(data) for lane in state.lanes for data in lane),
        state.requests.orphaned, state.requests.aborts.unseen_failures(), state.requests.count,
    )  # fmt: skip


CELL = st.integers(0, 2)
STEP = st.one_of(
    st.tuples(st.just("receive"), CELL),
    st.tuples(st.just("forward"), CELL),
    st.tuples(st.just("stream"), CELL, st.integers(1, 3000)),
    st.tuples(st.just("waits"), CELL, st.integers(1, 3000)),
    st.tuples(st.just("status"), CELL, st.sampled_from(["busy", "idle"])),
    st.tuples(st.just("reply"), CELL, st.sampled_from(["ok", "error"])),
    st.tuples(st.just("take")),
    st.tuples(st.just("acknowledge"), st.integers(0, 3)),
    st.tuples(st.just("failure seen"), CELL),
    st.tuples(st.just("answer")),
    st.tuples(st.just("leave")),
    st.tuples(st.just("attach")),
)


def do(log: FiledLog, step: Tuple[Any, ...]) -> None:
    kind, *more = step
    state = log.state
    if kind == "receive":
        log.receive([0, 0, more[0]], CELLS[more[0]])
    elif kind == "forward":
        log.add("requests.forward", CELLS[more[0]].key)
    elif kind == "stream":
        log.number(Lane.ORDERED, of(more[0], "stream", name="stdout", text="x" * more[1]))
    elif kind == "waits":
        log.wait(of(more[0], "stream", name="stdout", text="x" * more[1] + "\n"))
    elif kind == "status":
        log.number(Lane.ORDERED, of(more[0], "status", execution_state=more[1]))
    elif kind == "reply":
        log.wait(of(more[0], "execute_reply", status=more[1], execution_count=1))
    elif kind == "take":
        log.take()
    elif kind == "acknowledge":
        ordered = state.serials[2] + min(more[0], len(state.lanes[2]))
        log.add("acknowledge", [*state.serials[:2], ordered])
    elif kind == "failure seen":
        log.receive([0, 0, 9], keeper_message(do="failure_seen", reply=CELLS[more[0]].msg_id))
    elif kind == "answer":
        log.receive([1, 0, 0], Message(Channel.STDIN, 1, make("input_reply", {"value": "s3cret"})))
    elif kind == "leave":
        log.leaves()
    else:
        log.add("attach", "hub", [1, 2, 3])


@settings(deadline=None, max_examples=150)
@given(st.lists(STEP, max_size=40), st.sampled_from([SMALL, KernelSettings()]), st.randoms())
def test_a_successor_has_the_same_state_wherever_the_keeper_was_killed(
    tmp_path_factory: pytest.TempPathFactory,
    steps: List[Tuple[Any, ...]],
    sizes: KernelSettings,
    chance: Any,
) -> None:
    """Also within the write of a change, which then has not happened; and again after that."""
    folder = tmp_path_factory.mktemp("log")
    log = opened(folder, sizes)
    for step in steps:
        do(log, step)
        if chance.random() < 0.5:
            log.flush()
        if chance.random() < 0.2:
            log.flush()
            before, path = facts(log), folder / NAME
            torn = pickle.dumps(("take", 0.0, (1,)))
            with path.open("ab") as file:
                file.write(torn[: chance.randrange(len(torn))])
            log = opened(folder, sizes)
            assert log.found and facts(log) == before
    log.flush()
    assert facts(opened(folder, sizes)) == facts(log)
    assert b"s3cret" not in (folder / NAME).read_bytes()


def test_what_was_not_written_has_not_happened(tmp_path: Path) -> None:
    opened(tmp_path).receive([0, 0, 1], CELLS[0])
    log = opened(tmp_path)
    assert not log.state.requests.pending
    log.receive([0, 0, 1], CELLS[0])
    log.flush()
    assert list(opened(tmp_path).state.requests.pending) == [CELLS[0].key]


def test_messages_go_on_at_the_last_number_and_come_once(tmp_path: Path) -> None:
    """The hub has the first two of five messages, and part of the third."""
    sent = [of(0, "stream", name="stdout", text=f"{n}\n" * 40_000 * (n == 2)) for n in range(5)]
    hub, got = Endpoint(RUNTIME, first=True), []  # type: ignore[var-annotated]

    def connect(log: FiledLog, chunks: int) -> None:
        keeper = Endpoint(RUNTIME, first=False, peer=log.state.hub, delivered=log.state.received_counts)
        for lane in Lane:
            keeper.outbox.restore(lane, log.state.serials[lane], log.state.lanes[lane])
        for end in (keeper, hub):
            end.closed()
            end.opened()
        for here, there in ((hub, keeper), (keeper, hub)):
            for frame in here.outgoing(1):
                there.receive(frame)
        log.hub_attached(keeper.peer, keeper.delivered)
        log.hub_reads(log.state.serials, 1 << 20)
        if not got:
            for one in sent:
                log.send(Lane.ORDERED, one)
            for data in log.flush()[1:]:  # without the mark
                keeper.send(Lane.ORDERED, data)
        for _ in range(chunks):
            for frame in keeper.outgoing(1):
                got.extend(map(Message.decode, hub.receive(frame)))

    log = opened(tmp_path, KernelSettings())
    connect(log, 3)
    log.flush()
    assert len(got) == 2
    connect(opened(tmp_path, KernelSettings()), 20)
    assert got == sent


def test_requests_that_a_killed_keeper_has_received_are_not_sent_again(tmp_path: Path) -> None:
    hub, received = Endpoint(RUNTIME, first=True), []  # type: ignore[var-annotated]
    for cell in CELLS:
        hub.send(Lane.ORDERED, cell.encode())
    log = opened(tmp_path)
    for most in (2, 9):
        keeper = Endpoint(RUNTIME, first=False, peer=log.state.hub, delivered=log.state.received_counts)
        for end in (keeper, hub):
            end.closed()
            end.opened()
        for here, there in ((hub, keeper), (keeper, hub)):
            for frame in here.outgoing():
                there.receive(frame)
        log.add("attach", keeper.peer, keeper.delivered)
        for frame in hub.outgoing()[:most]:
            for data in keeper.receive(frame):
                received.append(Message.decode(data))
                log.receive(keeper.delivered, received[-1])
        log.flush()
        log = opened(tmp_path)
    assert received == CELLS and list(log.state.requests.pending) == [one.key for one in CELLS]


def test_a_request_that_comes_again_is_known(tmp_path: Path) -> None:
    log = opened(tmp_path)
    assert log.receive([0, 0, 1], CELLS[0]) and not log.receive([0, 0, 2], CELLS[0])
    log.wait(of(0, "execute_reply", status="ok"))
    log.flush()
    assert not opened(tmp_path).receive([0, 0, 3], CELLS[0])


def test_clients_of_one_manager_use_the_same_ids(tmp_path: Path) -> None:
    """Their sessions are copies of the manager's, and each counts its own messages."""
    log = opened(tmp_path)
    first = make("execute_request", {"code": "1"})
    header = dict(json.loads(first[0]), date="2026-01-01T00:00:00Z")
    another = (json.dumps(header).encode(), *first[1:])
    assert log.receive([0, 0, 1], Message(Channel.SHELL, 1, first))
    assert log.receive([0, 0, 2], Message(Channel.SHELL, 2, another))
    assert log.receive([1, 0, 2], Message(Channel.CONTROL, 3, make("interrupt_request", {}, b"{}")))
    assert not log.receive([1, 0, 3], Message(Channel.SHELL, 1, first))


def test_what_the_kernel_repeats_is_known(tmp_path: Path) -> None:
    log, output, reply = opened(tmp_path), of(0, "stream", name="stdout", text="x"), of(0, "execute_reply")
    again = of(0, "execute_reply")
    log.receive([0, 0, 1], CELLS[0])
    log.number(Lane.ORDERED, output)
    log.flush()
    log = opened(tmp_path)
    assert log.has_received(output, True) and not log.has_received(reply, True)
    log.number(Lane.ORDERED, reply)
    log.flush()
    log = opened(tmp_path)
    assert log.has_received(reply, True) and log.has_received(again, True)


def test_of_a_lost_log_front_ends_get_only_the_replies_that_the_hub_lacks(tmp_path: Path) -> None:
    log, output, reply = opened(tmp_path), of(0, "stream"), of(0, "execute_reply")
    assert log.has_received(output, False) and not log.has_received(output, True)
    assert log.has_received(reply, False)
    log.add("keep", reply)
    log.receive([0, 0, 1], CELLS[0])
    assert not log.has_received(reply, True), "the hub lacks it"


@pytest.mark.parametrize(
    "damage", [lambda data: b"", lambda data: b"\x80" + data[5:], lambda data: data[:20]]
)
def test_a_damaged_file_is_reported_and_the_log_begins_anew(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    log, problems = opened(tmp_path), []  # type: ignore[var-annotated]
    log.receive([0, 0, 1], CELLS[0])
    log.flush()
    (tmp_path / NAME).write_bytes(damage((tmp_path / NAME).read_bytes()))
    log = FiledLog(tmp_path, SMALL, problems.append)
    assert not log.found and not log.state.requests.pending and len(problems) == 1


def test_a_log_is_used_when_its_keeper_has_learned_what_the_lost_one_had(tmp_path: Path) -> None:
    """A successor without a log writes another one, which begins without the requests of the killed keeper."""
    for is_complete in (False, True):
        log = opened(tmp_path)
        log.add("set_complete", is_complete)
        log.receive([0, 0, 1], CELLS[0])
        log.flush()
        next_log = opened(tmp_path)
        assert next_log.found == is_complete == bool(next_log.state.requests.pending)


def test_a_large_display_is_copied_once(tmp_path: Path) -> None:
    log, size = opened(tmp_path, KernelSettings()), 20_000_000
    display = of(0, "display_data", data={"image/png": "x" * size})
    tracemalloc.start()
    log.number(Lane.ORDERED, display)
    log.flush()
    copied = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size < copied < 1.2 * size
    (data,) = opened(tmp_path, KernelSettings()).state.lanes[Lane.ORDERED]
    assert Message.decode(data) == display


def test_no_checkpoint_repeats_a_large_display_that_is_on_its_way(tmp_path: Path) -> None:
    log, sizes = opened(tmp_path, KernelSettings()), []
    for number in range(1, 4):
        log.number(Lane.ORDERED, of(0, "display_data", data={"image/png": "x" * 50_000_000}))
        log.flush()
        sizes.append(os.path.getsize(tmp_path / NAME))
        log.add("acknowledge", [0, 0, number])
        log.flush()
    assert [size // 50_000_000 for size in sizes] == [1, 2, 1] and os.path.getsize(
        tmp_path / NAME
    ) < 60_000_000


def test_large_headers_of_requests_that_have_a_reply_are_not_kept(tmp_path: Path) -> None:
    log = opened(tmp_path, KernelSettings())
    for number in range(100):
        parts = make("kernel_info_request", {})
        request = Message(Channel.SHELL, 1, (parts[0][:-1] + b', "x": "' + b"x" * 60_000 + b'"}', *parts[1:]))
        assert log.receive([0, 0, number], request) and not log.receive([0, 0, number], request)
        reply = make("kernel_info_reply", {}, json.dumps(request.header()).encode())
        log.number(Lane.PROMPT, Message(Channel.SHELL, 1, reply))
    log.add("acknowledge", [0, 100, 0])
    assert len(pickle.dumps(log.state)) < 100_000
    assert not log.receive([0, 0, 100], request)


def test_the_file_does_not_grow_without_bound(tmp_path: Path) -> None:
    log = opened(tmp_path)
    for number in range(100):
        log.number(Lane.ORDERED, of(0, "display_data", data={"text/plain": "x" * 1_000_000}))
        log.add("acknowledge", [0, 0, number + 1])
        log.flush()
        assert os.path.getsize(tmp_path / NAME) < 70_000_000


def test_when_the_disk_works_again_the_file_has_everything(tmp_path: Path) -> None:
    clock, folder, problems = Clock(), tmp_path / "missing", []  # type: ignore[var-annotated]
    log = FiledLog(folder, SMALL, problems.append, clock)
    log.number(Lane.ORDERED, of(0, "stream", text="before"))
    log.flush()
    folder.mkdir()
    log.number(Lane.ORDERED, of(0, "stream", text="meanwhile"))
    log.flush()
    assert not list(folder.iterdir()) and len(problems) == 1
    clock.seconds += RETRY
    log.number(Lane.ORDERED, of(0, "stream", text="after"))
    log.flush()
    log.number(Lane.ORDERED, of(0, "stream", text="later"))
    log.flush()
    log.close()
    successor = opened(folder)
    texts = [Message.decode(data).content()["text"] for data in successor.state.lanes[Lane.ORDERED]]
    assert successor.found and texts == ["before", "meanwhile", "after", "later"]
