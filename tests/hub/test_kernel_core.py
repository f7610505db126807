"""The core of a kernel: which effects follow which events, and in which order."""

from __future__ import annotations

from typing import Any

import pytest
from runtimes import make

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.front_end.requests import FrontEndFacts, SavedRequest
from jupyter_gpu_kernel.hub.kernel.core import effects, events, late_subscribers
from jupyter_gpu_kernel.hub.kernel.core.effects import Effect
from jupyter_gpu_kernel.hub.kernel.core.kernel_core import KernelCore
from jupyter_gpu_kernel.hub.kernel.core.life import Life, LinkState, Phase
from jupyter_gpu_kernel.hub.kernel.core.relay import CoreSetup
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel, Lane, Message, id_of, keeper_message

OWNER, OTHER = 1, 2
GONE = AgentError("the node was rebooted", remedy="Start it again.")


def cell(code: str = "1") -> Message:
    return Message(Channel.SHELL, 1, make("execute_request", {"code": code}))


def about(request: Message, msg_type: str, channel: Channel = Channel.IOPUB, **content: Any) -> Message:
    return Message(channel, 1, make(msg_type, content, request.parts[0]))


def types(done: list[Effect]) -> list[str]:
    return [type(effect).__name__ for effect in done]


def shown(done: list[Effect]) -> list[str]:
    """The types of the messages to front ends."""
    return [one.message.msg_type for one in done if isinstance(one, effects.ToFrontEnds)]


class Core:
    """A kernel with two front ends, of which the first one owns the kernel. `now` is the time of the next event."""

    def __init__(self, *, has_starter: bool = False) -> None:
        self.life = Life()
        settings = KernelSettings(name="gpu")
        self.core = KernelCore(CoreSetup("hub", "node", settings, None, False, has_starter), self.life)
        self.now = 100.0
        facts = FrontEndFacts("a notebook", rate_limited=True, revives=True)
        self(events.FrontEndsChanged({OWNER: facts, OTHER: facts._replace(label="a console")}))

    def __call__(self, event: events.Event) -> list[Effect]:
        done = self.core.handle(event, self.now, 1e9 + self.now)
        self.core.validate()
        return done

    def attach(self) -> None:
        """The kernel is attached, and its messages are live."""
        self(events.Attached("keeper", ""))
        self.arrives(keeper_message(event="replay", state="end"))

    def arrives(self, message: Message, number: int = 1, *, has_room: bool = True) -> list[Effect]:
        done = self(events.Arrived(message, number, Lane.ORDERED, 0, has_room))
        while done[-1] == effects.WakeAt(self.now) and has_room:
            done = done[:-1] + self(events.Woken(has_room))
        return done

    def sends(self, request: Message, front_end: int = OWNER) -> list[Effect]:
        return self(events.Requested(front_end, request, unsent=0, is_away=False, was_held=self.core.held))


@pytest.fixture
def core() -> Core:
    core = Core()
    core.attach()
    return core


def test_a_request_is_in_the_file_before_it_is_sent_and_out_of_it_before_its_reply_is(core: Core) -> None:
    asked = cell()
    assert types(core.sends(asked)) == ["WriteRequests", "ToKeeper"]
    reply = about(asked, "execute_reply", Channel.SHELL, status="ok")
    assert types(core.arrives(reply)) == ["WriteRequests", "ToFrontEnds", "SaveProgress"]


def test_the_keeper_hears_of_a_failure_when_the_front_end_has_its_reply(core: Core) -> None:
    asked = cell()
    core.sends(asked)
    *_, progress, seen = core.arrives(about(asked, "execute_reply", Channel.SHELL, status="error"))
    assert progress == effects.SaveProgress(0, (0, 0, 0), 0)
    assert isinstance(seen, effects.ToKeeper) and seen.message.content()["do"] == "failure_seen"


def test_what_a_front_end_has_no_room_for_waits_and_is_not_acknowledged(core: Core) -> None:
    output = about(cell(), "stream", name="stdout", text="1")
    assert core.arrives(output, 7, has_room=False) == [
        effects.SaveProgress(7, (0, 0, 1), 0),
        effects.WakeAt(core.now),
    ]
    assert types(core(events.Woken(has_room=False))) == ["WakeAt"]
    done = core(events.Woken(has_room=False))
    assert isinstance(done[0], effects.WakeAt) and done[0].at is not None and done[0].at > core.now
    core.now = done[0].at
    assert core(events.Woken(has_room=True)) == [
        effects.ToFrontEnds(output),
        effects.SaveProgress(0, (0, 0, 0), 0),
        effects.WakeAt(None),
    ]


def test_a_bug_costs_one_message_that_waited_and_not_the_next(core: Core) -> None:
    broken = about(cell(), "status")
    broken = broken.replace(parts=(*broken.parts[:3], b"[" * 5000))
    output = about(cell(), "stream", name="stdout", text="1")
    for number, message in enumerate((broken, output), 1):
        core.arrives(message, number, has_room=False)
    first, second = core(events.Woken(has_room=True)), core(events.Woken(has_room=True))
    assert "LogText" in types(first) and shown(first) == []
    assert shown(second) == ["stream"] and types(second)[-1] == "WakeAt"


def test_a_lost_kernel_ends_all_cells_also_one_that_cannot_be_read(core: Core) -> None:
    """The keeper drops the latter, and so there is no reply to it."""
    header = make("execute_request", {})[0]
    core.sends(Message(Channel.SHELL, 1, (header, b"{}", b"{}", b"no JSON")))
    core.sends(cell())
    assert shown(core(events.KeeperLost(GONE))).count("execute_reply") == 2
    assert core.life.link_state is LinkState.LOST


def test_what_a_killed_hub_has_sent_ends_once_with_the_kernel_that_is_not_found() -> None:
    core, sent = Core(), cell()
    core(events.Recalled([SavedRequest(0, sent)]))
    core(events.Detached(None, 0.0, "12:00:00", was_attached=True, waits=False))
    done = core(events.KeeperLost(GONE, for_good=True))
    assert shown(done) == ["status", "execute_input", "error", "execute_reply", "status"]
    assert shown(core(events.KeeperLost(GONE, for_good=True))) == []


def test_a_kernel_that_could_not_be_started_answers_all_but_kernel_info() -> None:
    """To VS Code that answer means that the kernel is ready, whatever is in it."""
    core = Core()
    core.sends(Message(Channel.SHELL, 1, make("kernel_info_request", {})))
    core.sends(cell())
    done = shown(core(events.KernelRefused("login: asks for a password or code")))
    assert "execute_reply" in done and "kernel_info_reply" not in done


def test_a_kernel_whose_start_waits_for_the_link_is_idle_once() -> None:
    """Else a restart in VS Code would wait for the end of the outage, and fail after a minute."""
    core, waits = Core(), events.Detached(None, 0.0, "12:00:00", was_attached=False, waits=True)
    (state,) = [one.message.content() for one in core(waits) if isinstance(one, effects.ToFrontEnds)]
    assert state == {"execution_state": "idle"}
    assert shown(core(waits)) == []


def test_what_was_decided_before_a_bug_is_done_and_the_rest_is_written(core: Core) -> None:
    asked = cell()
    core.sends(asked)
    core(events.Detached(None, 0.0, "12:00:00", was_attached=True, waits=False))
    core.sends(waits := cell())
    broken = events.Attached("keeper", {"no text"})  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        core(broken)
    assert types(core.core.take_effects())[0] == "Notify" and not core.core.take_effects()
    assert core.core.relay.table.waiting == [waits]


def test_a_cell_that_revived_a_kernel_ends_with_it_if_its_starter_says_so() -> None:
    """Such as for a job that has ended: no other one is submitted unasked."""
    core = Core(has_starter=True)
    core(events.Unstarted("login", ""))
    core.attach()
    core.arrives(keeper_message(event="state", state="ended", id="k", returncode=0))
    core.sends(cell())
    assert core.life.phase is Phase.REVIVE
    assert "execute_reply" in shown(core(events.KeeperLost(GONE, for_good=True)))


def test_a_malformed_event_of_the_keeper_is_ignored(core: Core) -> None:
    log, _ = core.arrives(keeper_message(event="state", state=["idle"]))
    assert isinstance(log, effects.LogText) and log.error is None and "malformed" in log.text


def test_what_the_kernel_says_of_itself_is_kept_once(core: Core) -> None:
    info = about(cell(), "kernel_info_reply", Channel.SHELL, status="ok")
    assert effects.Learn(info.parts[3]) in core.arrives(info)
    assert "Learn" not in types(core.arrives(about(cell(), "complete_reply", Channel.SHELL)))


def test_only_the_owner_may_interrupt_and_a_cell_makes_an_owner(core: Core) -> None:
    interrupt = Message(Channel.CONTROL, 1, make("interrupt_request", {}))
    assert shown(core.sends(interrupt, OTHER)) == ["status", "interrupt_reply", "status"]
    done = core.sends(cell(), OTHER)
    assert core.core.ownership.owner == OTHER and shown(done) == ["display_data"]
    (tell, sent) = [one.message for one in done if isinstance(one, effects.ToKeeper)]
    assert tell.content()["text"] == "taken over by a console" and sent.msg_type == "execute_request"
    core(events.FrontEndsChanged({OWNER: core.core.ownership.front_ends[OWNER]}))
    assert core.core.ownership.owner == OWNER, "the new owner has left"
    core(events.FrontEndsChanged({}))
    assert core.core.ownership.owner is None and core.core.ownership.label == "nobody"


def test_a_cell_takes_the_kernel_back_and_is_sent_to_its_new_endpoint(core: Core) -> None:
    waits = cell("before")
    core.sends(waits)
    done = core(events.KernelTaken("taken over by alice@desk", "Use it there."))
    assert "error" in shown(done) and core.life.link_state is LinkState.TAKEN
    assert types(core.sends(cell())) == ["Notify", "TakeBack", "WriteRequests", "ToKeeper"]


def test_each_request_to_a_taken_kernel_has_a_reply(core: Core) -> None:
    core(events.KernelTaken("taken over by alice@desk", "Use it there."))
    own_code = make("execute_request", {"code": "1", "store_history": False})
    for parts in (own_code, make("complete_request", {"code": "", "cursor_pos": 0})):
        assert any(one.endswith("_reply") for one in shown(core.sends(Message(Channel.SHELL, 1, parts))))
    assert core.life.link_state is LinkState.TAKEN


def test_a_restart_that_was_requested_before_the_kernel_was_taken_is_void(core: Core) -> None:
    core.sends(Message(Channel.CONTROL, 1, make("shutdown_request", {"restart": True})))
    core(events.KernelTaken("taken over by alice@desk", "Use it there."))
    assert core.life.phase is Phase.RUN


@pytest.mark.parametrize("restart", [True, False])
def test_a_cell_that_waits_for_the_start_gets_a_reply_when_the_kernel_is_shut_down(restart: bool) -> None:
    core = Core(has_starter=True)
    core(events.Unstarted("hosts", ""))
    core.sends(cell())
    done = core.sends(Message(Channel.CONTROL, 1, make("shutdown_request", {"restart": restart})))
    replies = [one for one in shown(done) if one.endswith("_reply")]
    assert replies == ["execute_reply", "shutdown_reply"]


def test_a_cell_on_a_host_that_is_lost_gets_a_reply_when_the_kernel_is_restarted_elsewhere() -> None:
    core = Core(has_starter=True)
    core.attach()
    run, later = cell(), cell("2")
    core.sends(run)
    core(events.Detached(None, 9.0, "12:00:00", True, False))
    core.sends(later)
    done = core(events.Restarted(host_lost=True))
    replies = [one.message for one in done if isinstance(one, effects.ToFrontEnds)]
    assert [one.parent_id for one in replies if one.msg_type == "execute_reply"] == [id_of(run)]
    assert core.core.relay.table.waiting_cells == [later]


def test_a_message_that_is_dropped_is_counted_before_its_request_is_forgotten() -> None:
    core = Core(has_starter=True)
    core(events.Unstarted("hosts", ""))
    request = Message(Channel.SHELL, 1, make("kernel_info_request", {}))
    core.sends(request)
    core.attach()
    done = core.arrives(about(request, "kernel_info_reply", Channel.SHELL, status="ok"))
    assert shown(done) == []
    assert types(done).index("SaveProgress") < types(done).index("WriteRequests")


def test_a_reply_that_waits_is_passed_on_before_the_kernel_is_taken(core: Core) -> None:
    run = cell()
    core.sends(run)
    core.arrives(about(run, "execute_reply", Channel.SHELL, status="ok"), has_room=False)
    done = core(events.KernelTaken("taken over by alice@desk", "Use it there."))
    assert shown(done) == ["execute_reply"]


def test_a_cell_has_a_reply_when_the_keeper_of_an_ended_kernel_is_lost(core: Core) -> None:
    core(events.FrontEndsChanged({OWNER: FrontEndFacts("a notebook", rate_limited=True, revives=False)}))
    core.arrives(keeper_message(event="state", id="k", state="ended", cause="it crashed", returncode=-11))
    core.sends(cell())
    assert "execute_reply" in shown(core(events.KeeperLost(GONE)))
    assert core.life.status["cause"] == "the node says: it crashed"
    complete = make("complete_request", {"code": "", "cursor_pos": 0})
    assert "complete_reply" in shown(core.sends(Message(Channel.SHELL, 1, complete)))


def test_a_lost_kernels_request_gets_no_second_status(core: Core) -> None:
    shutdown = Message(Channel.CONTROL, 1, make("shutdown_request", {"restart": True}))
    core.sends(shutdown)
    for state in ("busy", "idle"):
        core.arrives(about(shutdown, "status", execution_state=state))
    assert shown(core(events.KeeperLost(GONE))) == ["shutdown_reply"]


def test_the_notice_is_due_after_a_moment(core: Core) -> None:
    core.sends(cell())
    done = core(events.Detached(None, 1.0, "12:00:00", was_attached=True, waits=False))
    assert done[-1] == effects.WakeAt(core.now + 2.0)
    core.now += 2.0
    assert shown(core(events.Woken(has_room=True))) == ["display_data"]
    assert shown(core(events.Attached("keeper", ""))) == ["clear_output"]


def test_what_stays_in_the_first_cell_follows_what_is_removed() -> None:
    """A kernel that a cell starts is lost; the next cell starts another one, and says so."""
    core = Core(has_starter=True)
    core(events.Unstarted("login", ""))
    core.attach()
    core(events.KeeperLost(GONE))
    work = cell()
    done = core.sends(work)
    assert effects.TellStarter(interrupted=False) in done and core.life.phase is Phase.REVIVE
    core(events.Unstarted("login", "k2"))
    assert core.life.phase is Phase.RUN and core.core.relay.table.waiting == [work]
    core(events.WaitExplained("place 3"))
    done = core(events.Attached("another keeper", ""))
    assert shown(done) == ["clear_output", "display_data"]
    texts = [one.message.content() for one in done if isinstance(one, effects.ToFrontEnds)]
    assert "The kernel had ended: the node was rebooted" in texts[-1]["data"]["text/plain"]


def test_a_core_can_be_read(core: Core) -> None:
    core.sends(cell())
    assert "execute_request" in repr(core.core) and "link=up" in repr(core.core)


@pytest.mark.parametrize(
    "what",
    [
        events.Detached(None, 0.0, "", True, False),
        events.KernelTaken("bob has it", ""),
        events.Switched("b", "k2"),
    ],
)
def test_an_interrupt_whose_idle_status_has_come_gets_only_its_reply(core: Core, what: events.Event) -> None:
    """The idle status and the reply come from the kernel on different sockets."""
    asked = Message(Channel.CONTROL, 1, make("interrupt_request", {}))
    core.sends(asked)
    for state in ("busy", "idle"):
        core.arrives(about(asked, "status", execution_state=state))
    assert shown(core(what)) == ["interrupt_reply"]


@pytest.mark.parametrize("by_request", [False, True])
def test_a_cell_that_was_interrupted_ends_when_another_kernel_replaces_the_first(
    core: Core, by_request: bool
) -> None:
    """JupyterLab interrupts by the process that serves it, VS Code by a request."""
    interrupted, later = cell(), cell()
    core.sends(interrupted)
    asked = Message(Channel.CONTROL, 1, make("interrupt_request", {}))
    if by_request:
        core.sends(asked)
    else:
        core(events.Commanded("interrupt", {}))
    core.sends(later)
    done = core(events.Switched("b", "k2"))
    replies = [one.message for one in done if isinstance(one, effects.ToFrontEnds)]
    ended = [one.content()["ename"] for one in replies if one.msg_type == "execute_reply"]
    assert ended == ["KeyboardInterrupt"] and ("interrupt_reply" in shown(done)) == by_request
    assert [one.message for one in done if isinstance(one, effects.ToKeeper)] == [later]


@pytest.mark.parametrize("msg_type", ["interrupt_request", "shutdown_request"])
def test_a_request_on_control_to_a_lost_kernel_has_its_reply(core: Core, msg_type: str) -> None:
    core.arrives(keeper_message(event="state", id="k", state="idle"))
    core(events.KeeperLost(GONE))
    done = core.sends(Message(Channel.CONTROL, 1, make(msg_type, {})))
    assert shown(done) == ["status", msg_type.replace("request", "reply"), "status"]
    assert core.life.link_state is LinkState.LOST
    assert core.life.end_wanted == (msg_type == "shutdown_request")


def test_what_the_hub_knows_of_the_status_is_told_when_it_is_news() -> None:
    core = Core(has_starter=True)
    waits = events.StatusKnown({"state": "waiting", "job": {"id": "7"}})
    assert [types(core(waits)) for _ in range(2)] == [["Notify"], []]
    core(events.StatusKnown({"state": "ended", "cause": "the job is over"}))
    core(events.StatusKnown({"state": "waiting"}, wanted=True))
    assert core.life.status["job"] == {"id": "7"} and "cause" not in core.life.status


@pytest.mark.parametrize("is_away", [False, True])
def test_a_client_that_subscribes_after_its_kernel_info_was_answered_gets_the_idle_of_that_request(
    core: Core, is_away: bool
) -> None:
    """JupyterLab would wait for it forever. While a cell runs, the keeper answers; while the node is away, the hub."""
    known, running = Message(Channel.SHELL, 1, make("kernel_info_request", {})), cell()
    core.arrives(about(known, "kernel_info_reply", Channel.SHELL, status="ok"))
    core.arrives(about(running, "status", execution_state="busy"))
    asked = Message(Channel.SHELL, 1, make("kernel_info_request", {}))
    done = core(events.Requested(OWNER, asked, unsent=0, is_away=is_away, was_held=False))
    if not is_away:
        done = [
            *core.arrives(about(asked, "status", execution_state="busy")),
            *core.arrives(about(asked, "kernel_info_reply", Channel.SHELL, status="ok")),
            *core.arrives(about(asked, "status", execution_state="idle")),
        ]
    before = states(done)
    assert before.count(("idle", asked.key)) == 1

    core.now += late_subscribers.LATE / 2
    again = states(core(events.Subscribed()))
    assert again == [("idle", asked.key), ("busy", "")], "the kernel is still busy"
    core.now += late_subscribers.LATE
    assert states(core(events.Subscribed())) == [("busy", "")]


def states(done: list[Effect]) -> list[tuple[str, str]]:
    """The statuses to front ends: each state, and the key of the request that it is about."""
    sent = [one.message for one in done if isinstance(one, effects.ToFrontEnds)]
    return [(one.content()["execution_state"], one.parent_key) for one in sent if one.msg_type == "status"]


def test_a_kernel_that_was_lost_while_busy_is_shown_as_idle(core: Core) -> None:
    running = cell()
    core.sends(running)
    core.arrives(about(running, "status", execution_state="busy"))
    assert states(core(events.KeeperLost(GONE)))[-1] == ("idle", "")
    assert states(core(events.Subscribed())) == [("idle", "")]
