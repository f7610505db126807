"""The core of a keeper is a pure function of its events, and its effects are carried out in order."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List

import pytest
from relays import Exchange
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.core import effects, events
from jupyter_gpu_kernel.agent.core.keeper_core import KeeperCore
from jupyter_gpu_kernel.agent.core.log import AHEAD, Log
from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.log import log_file
from jupyter_gpu_kernel.agent.log.log_file import LogFile
from jupyter_gpu_kernel.agent.log.state import LogState
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message
from jupyter_gpu_kernel.wire.runtime import EventRuntime


def core() -> KeeperCore:
    return KeeperCore(Log(EventRuntime("ids"), LogState(), False), KernelSettings(id="k"), "node")


def life(cells: List[Message]) -> List[Any]:
    """What happens while two cells run, of which the second waits for GPUs until the kernel ends."""
    replies = [make("execute_reply", {"status": "ok", "execution_count": 1}, cells[0].parts[0])]
    idle = make("status", {"execution_state": "idle"}, cells[0].parts[0])
    return [
        events.HubAttached("hub", [0, 0, 0]),
        events.HubReads([0, 0, 0], 1 << 20),
        events.KernelStarting(),
        events.KernelUp({}),
        events.GpusChanged(True, ["GPU 0"]),
        events.GreetingChanged("notice", "It has moved."),
        events.HubSent([0, 0, 1], cells[0]),
        *[events.KernelSent(Message(Channel.SHELL, 1, parts)) for parts in replies],
        events.KernelSent(Message(Channel.IOPUB, 0, idle)),
        events.GpusChanged(False, []),
        events.HubSent([0, 0, 2], cells[1]),
        events.GpusChanged(False, [], "Waiting for 1 GPU."),
        events.TimerDue("wait text"),
        events.TimerDue("greeting"),
        events.KernelGone(),
        events.KernelEnded("it has crashed", True),
    ]


def test_the_same_events_have_the_same_effects() -> None:
    cells = [Message(Channel.SHELL, 1, make("execute_request", {"code": code})) for code in "ab"]
    happened, first, second = life(cells), core(), core()
    seen = []
    for time, event in enumerate(happened):
        done = first.handle(event, float(time), 1e9 + time)
        first.validate()
        assert second.handle(event, float(time), 1e9 + time) == done
        seen += [type(effect) for effect in done]
    assert {effects.ToHub, effects.ToKernel, effects.Want, effects.SetTimer, effects.ReplySent} <= {*seen}
    assert "busy with" in repr(first) and "ended" in repr(first)


def test_messages_that_wait_are_read_outside_of_the_core_as_far_as_the_hub_has_room() -> None:
    keeper = core()
    output = [Message(Channel.IOPUB, 0, make("stream", {"name": "stdout", "text": text})) for text in "abc"]
    keeper.handle(events.HubReads([0, 0, 0], 1000), 0.0, 0.0)
    for one in output:
        (logged,) = keeper.handle(events.KernelSent(one), 0.0, 0.0)
        assert isinstance(logged, effects.Logged) and (logged.change, logged.arguments) == ("wait", (one,))
    keeper.handle(events.HubAttached("hub", [0, 0, 0]), 0.0, 0.0)
    *_, read = keeper.handle(events.HubReads([0, 0, 0], 2000), 0.0, 0.0)
    assert isinstance(read, effects.ReadQueue) and AHEAD < read.size <= AHEAD + 2000
    first, second = b"x" * read.size, b"y"
    assert keeper.handle(events.QueueRead([first], True), 0.0, 0.0) == [effects.ToHub(Lane.ORDERED, first)]
    sent, *_, mark = keeper.handle(events.QueueRead([second], False), 0.0, 0.0)
    assert sent == effects.ToHub(Lane.ORDERED, second)
    assert isinstance(mark, effects.ToHub) and b'"end"' in mark.data


def test_an_event_within_an_effect_follows_the_effects_before(tmp_path: Path) -> None:
    exchange, done = Exchange(tmp_path), []

    def to_kernel(request: Message) -> None:
        done.append("to the kernel")
        exchange.handle(events.CellsFailed("Error", "none waits"))
        exchange.lose_gpus()
        exchange.asks("execute_request", code="g()")  # which waits for GPUs

    exchange.runner.actions[effects.ToKernel] = to_kernel
    exchange.runner.actions[effects.RequestReceived] = lambda request, by_user: done.append("received")
    exchange.runner.actions[effects.Want] = lambda code, gpus: done.append("wanted")
    exchange.asks("execute_request", code="f()")
    assert done == ["received", "to the kernel", "received", "wanted"]


def test_an_effect_that_fails_does_not_keep_the_next_ones_back(tmp_path: Path) -> None:
    exchange, done = Exchange(tmp_path), []

    def received(request: Message, by_user: bool) -> None:
        raise OSError("too many open files")

    exchange.runner.actions[effects.RequestReceived] = received
    exchange.runner.actions[effects.ToKernel] = done.append
    with pytest.raises(OSError):
        exchange.asks("execute_request", code="f()")
    assert len(done) == 1


def test_what_no_hub_gets_is_in_the_file_at_the_end_of_the_turn(tmp_path: Path) -> None:
    """A keeper that is killed while it is detached must not run again what has ended."""
    exchange = Exchange(tmp_path)
    exchange.asks("execute_request", code="f()")
    exchange.runner.log_file.flush()
    exchange.handle(events.HubDetached())
    exchange.handle(events.KernelGone())
    exchange.handle(events.KernelEnded("it has crashed", False))
    exchange.end_turn()
    kept = LogFile(RUNTIME, tmp_path, KernelSettings(id="k"), print)
    assert kept.found and not kept.state.requests.pending


def test_a_checkpoint_within_the_effects_of_an_event_has_each_change_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is written before the kernel gets a request, while later effects of the same event are still to come."""
    monkeypatch.setattr(log_file, "SIZE", 0)
    exchange = Exchange(tmp_path)
    flush = exchange.runner.log_file.flush
    exchange.runner.actions[effects.ToKernel] = lambda request: flush()
    exchange.handle(events.KernelGone())
    for code in "abc":
        exchange.asks("execute_request", code=code)
    exchange.handle(events.KernelUp({}))
    cell = exchange.core.log.state.requests.pending
    flush()
    for key in list(cell):
        reply = make("execute_reply", {"status": "ok"}, cell[key].request.parts[0])
        exchange.kernel_sends(Message(Channel.SHELL, 1, reply))
        exchange.is_("idle", cell[key].request.parts[0]) if key in cell else None
        flush()
    kept = LogFile(RUNTIME, tmp_path, KernelSettings(id="k"), print)
    ours = exchange.core.log.state
    assert kept.found and [*map(len, kept.state.lanes)] == [*map(len, ours.lanes)]
    assert kept.state.unacknowledged_size == ours.unacknowledged_size
