"""Requests without a reply: which of them wait, what is sent, what front ends get of them, and what a successor has."""

from __future__ import annotations

import json
from typing import Any

from runtimes import make

from jupyter_gpu_kernel.hub.front_end.delivered import SavedRequest
from jupyter_gpu_kernel.hub.kernel.core.pending_request import Decision, Taken
from jupyter_gpu_kernel.hub.kernel.core.request_table import (
    _MAX_ANSWERED,
    _MAX_OTHERS,
    RequestTable,
)
from jupyter_gpu_kernel.wire.messages import Channel, Message


def request(msg_type: str, channel: Channel = Channel.SHELL, **content: Any) -> Message:
    return Message(channel, 3, make(msg_type, content))


def cell(**content: Any) -> Message:
    return request("execute_request", code="1", **content)


def own_code() -> Message:
    return cell(store_history=False)


def interrupt() -> Message:
    return request("interrupt_request", Channel.CONTROL)


def message_about(asked: Message, msg_type: str, **content: Any) -> Message:
    channel = asked.channel if msg_type.endswith("_reply") else Channel.IOPUB
    return Message(channel, 0, make(msg_type, content, asked.parts[0]))


def status(asked: Message, state: str) -> Message:
    return message_about(asked, "status", execution_state=state)


def known(*requests: Message, was_up: bool = True) -> RequestTable:
    table = RequestTable(was_up=was_up)
    for one in requests:
        table.sent(one)
    return table


def released(table: RequestTable) -> list[Message]:
    requests = [one.message for one in table.release()]
    for one in requests:
        table.sent(one)
    return requests


def answered(table: RequestTable) -> tuple[list[Message], list[str]]:
    """What the hub answers when the link goes down, and the cells that interrupts were for."""
    pending, cells = table.link_is_down()
    return [one.message for one in pending], cells


def cleared(table: RequestTable) -> list[Message]:
    """The requests to which a kernel that is gone has not replied."""
    return [one.message for one in table.clear(waiting=True)]


def successor(table: RequestTable) -> RequestTable:
    """The table of the next hub, if the hub of this one is killed now."""
    kept: dict[bytes, SavedRequest] = {}
    for key, saved in table.take_changes():
        if saved is None:
            kept.pop(key, None)
        else:
            kept[key] = saved
    after = RequestTable(was_up=True)
    after.recall(list(kept.values()))
    return after


# ------------------------------------------------------------------------------------------ what waits


def test_while_the_link_is_down_all_but_urgent_requests_wait() -> None:
    table = RequestTable(was_up=True)
    waits, urgent = [cell(), request("complete_request"), cell()], request("input_reply", Channel.STDIN)
    assert table.add(waits[0]) is Taken.SEND and not table.must_wait
    table.link_is_down()
    assert {table.add(one) for one in waits} == {Taken.WAIT} and table.must_wait
    assert table.add(urgent) is Taken.SEND and table.release() == []
    table.link_is_up()
    assert released(table) == waits and table.waiting == [] and not table.must_wait


def test_for_a_kernel_that_is_not_known_all_requests_wait() -> None:
    """An answer on stdin would reach the wrong kernel."""
    table = RequestTable()
    asked = [cell(), request("input_reply", Channel.STDIN)]
    table.held = True
    table.link_is_down()
    assert {table.add(one) for one in asked} == {Taken.WAIT}
    table.link_is_up()
    assert released(table) == [], "the link alone is not enough"
    table.held = False
    assert released(table) == asked


def test_when_the_kernel_is_known_and_the_link_is_down_only_urgent_requests_go() -> None:
    table = RequestTable()
    bulk, urgent = cell(), request("input_reply", Channel.STDIN)
    table.link_is_down()
    table.held = True
    table.add(bulk)
    table.add(urgent)
    table.held = False
    assert released(table) == [urgent] and table.waiting == [bulk]
    table.link_is_up()
    assert released(table) == [bulk]


def test_before_the_start_all_requests_wait() -> None:
    table = RequestTable()
    table.not_started = True
    asked = [cell(), request("comm_open"), request("input_reply", Channel.STDIN)]
    assert {table.add(one) for one in asked} == {Taken.WAIT}
    assert cleared(table) == [] and table.waiting == asked, "they are for the next kernel"
    table.not_started, table.held = False, True
    assert released(table) == []
    table.held = False
    assert released(table) == asked


def test_an_interrupt_cancels_users_cells_that_wait_and_nothing_else() -> None:
    """Code that a front end runs for itself is no cell that a user would see end."""
    table = RequestTable()
    table.held = True
    users, others = cell(), [cell(silent=True), own_code(), request("complete_request")]
    for one in (users, *others):
        table.add(one)
    assert table.cancel_waiting() == [users]
    table.held = False
    assert released(table) == others


def test_a_request_that_could_have_no_reply_does_not_wait() -> None:
    """It has no msg_id, or one that waits."""
    table = RequestTable()
    table.held = True
    asked = cell()
    for one in (asked, asked, Message(Channel.SHELL, 1, (b"no JSON", b"{}", b"{}", b"{}"))):
        assert table.add(one) is Taken.WAIT
    assert table.waiting == [asked]


def test_two_clients_of_one_manager_that_use_one_msg_id_both_get_a_reply() -> None:
    """Their sessions are copies of one session, and each client counts its own messages."""
    first = cell()
    second = first.replace(parts=(first.parts[0].replace(b'"date": "2', b'"date": "3'), *first.parts[1:]))
    assert first.msg_id == second.msg_id and first != second
    table = RequestTable(was_up=True)
    table.link_is_down()
    assert [table.add(one) for one in (first, second)] == [Taken.WAIT] * 2
    table = successor(table)
    assert released(table) == [first, second] == table.in_flight
    for remaining in ([second], []):
        table.received(status(first, "busy"))
        assert table.received(message_about(first, "execute_reply", status="ok")) is Decision.PASS
        assert table.in_flight == remaining
        table.validate()
    assert cleared(successor(table)) == []


def test_a_reply_is_to_the_request_of_its_type() -> None:
    """A killed hub has left a request whose reply was lost, and another client of the manager uses its msg_id."""
    ran = cell()
    header = ran.parts[0].replace(b"execute_request", b"kernel_info_request")
    table = known(ran.replace(parts=(header, *ran.parts[1:])), ran)
    assert table.received(message_about(ran, "execute_reply", status="ok")) is Decision.PASS
    assert table.in_flight == []
    table.validate()


# ------------------------------------------------------------------------------------------ what is in flight


def test_a_cell_is_in_flight_until_its_reply() -> None:
    first, second = cell(), cell()
    table = known(first, request("comm_msg"), second)
    assert table.in_flight == [first, second]
    assert table.size(0) == sum(len(part) for one in (first, second) for part in one.parts)
    assert table.size(10**9) == 10**9, "what the endpoint has is counted once"
    assert table.received(message_about(first, "execute_reply", status="ok")) is Decision.PASS
    assert table.in_flight_ids == [second.msg_id]


def test_a_new_keeper_has_to_know_which_cells_were_interrupted() -> None:
    first, second = cell(), cell()
    table = known(first)
    table.interrupt()
    table.sent(second)
    for one in (table, successor(table)):
        assert one.link_is_up() == [first.msg_id]
    table.received(message_about(first, "execute_reply", status="error"))
    assert table.link_is_up() == []


def test_a_keeper_gets_their_very_text() -> None:
    """Also text that is not UTF-8; without buffers, which no kernel reads of a cell."""
    asked = cell().replace(parts=(*cell().parts[:3], b'{"code": "\xff"}', b"a buffer" * 1000))
    one = known(asked).sent_on(Channel.SHELL)[0].describe()
    assert one["client"] == 3
    assert [part.encode("utf-8", "surrogateescape") for part in one["parts"]] == list(asked.parts[:4])


def test_a_keeper_gets_all_requests_on_shell_that_were_sent() -> None:
    asked = [cell(), request("complete_request"), interrupt()]
    table = known(*asked)
    table.link_down = True
    table.add(cell())
    assert [one.message for one in table.sent_on(Channel.SHELL)] == asked[:2]


def test_the_state_of_a_cell_goes_with_it() -> None:
    """A front end may use its msg_id again."""
    asked = cell()
    table = known(asked)
    table.received(status(asked, "busy"))
    table.received(message_about(asked, "execute_reply", status="ok"))
    table.sent(asked)
    assert table.first_cell is not None and table.first_cell.state == ""
    table.received(status(asked, "busy"))
    assert cleared(table) == [asked] and table.sent_on(Channel.SHELL) == []
    table.sent(asked)
    assert table.first_cell is not None and table.first_cell.state == ""


def test_a_cell_that_ended_without_its_kernel_ends_once() -> None:
    """Another computer had taken the kernel, which runs the cell on, and was taken back."""
    asked = cell()
    table = known(asked)
    assert cleared(table) == [asked]
    assert table.received(message_about(asked, "stream", text="x")) is Decision.PASS
    assert table.received(status(asked, "idle")) is Decision.DROP
    assert table.received(message_about(asked, "execute_reply", status="ok")) is Decision.DROP


def test_of_very_many_cells_an_interrupt_names_the_newest() -> None:
    """An older one may run, but none waits that long."""
    cells = [cell() for _ in range(1001)]
    assert known(*cells).in_flight_ids == [one.msg_id for one in cells[1:]]


def test_a_cell_is_silent_until_it_shows_something() -> None:
    """Its input is shown by the front end that asked for it."""
    asked, behind = cell(), cell()
    table = known(asked, behind)
    table.received(status(asked, "busy"))
    table.received(message_about(asked, "execute_input", code="1"))
    first = table.first_cell
    assert first is not None and (first.message, first.state, first.has_output) == (asked, "busy", False)
    table.received(message_about(asked, "stream", name="stdout", text="1"))
    assert table.first_cell is first and first.has_output
    table.received(message_about(asked, "execute_reply", status="ok"))
    first = table.first_cell
    assert first is not None and (first.message, first.state) == (behind, "")
    assert known().first_cell is None


def test_an_outage_is_noticed_in_the_first_cell_of_a_user_that_has_not_ended() -> None:
    """Users do not see code of the front end itself."""
    ended, waits, later = cell(), cell(), cell()
    table = known(own_code(), ended)
    table.end_in_flight()
    table.link_is_down()
    assert table.first_cell is None
    table.add(request("complete_request"))
    table.add(waits)
    table.add(later)
    first = table.first_cell
    assert first is not None and first.message == waits
    table.cancel_waiting()
    assert table.first_cell is None and table.interrupted
    table.link_is_up()
    assert not table.interrupted


def requeued(table: RequestTable) -> list[Message]:
    return [one.message for one in table.requeue()]


def test_another_kernel_gets_the_requests_and_no_interrupt() -> None:
    own, ended, last = own_code(), cell(), interrupt()
    table = known(own, ended)
    table.end_in_flight()
    asked = [cell(), request("complete_request")]
    for one in (*asked, last):
        table.sent(one)
    assert requeued(table) == [last]
    assert released(table) == [own, *asked] and requeued(table) == []


def test_another_kernel_gets_no_cell_that_was_interrupted() -> None:
    own, interrupted, later = own_code(), cell(), cell()
    table = known(own, interrupted)
    assert table.interrupt() == [own.msg_id, interrupted.msg_id]
    table.sent(later)
    table.take_changes()
    assert requeued(table) == [own, interrupted]
    assert released(table) == [later]
    table.validate()


def test_no_hub_gives_another_kernel_a_cell_that_was_interrupted() -> None:
    interrupted, later = cell(), cell()
    killed = known(interrupted)
    killed.interrupt()
    killed.sent(later)
    assert requeued(successor(killed)) == [interrupted]


def test_another_kernel_gets_no_request_on_the_control_channel() -> None:
    debug = Message(Channel.CONTROL, 1, make("debug_request", {}))
    shutdown = Message(Channel.CONTROL, 1, make("shutdown_request", {"restart": True}))
    table = known(debug, shutdown)
    assert requeued(table) == [debug] and released(table) == []


def test_of_a_kernel_that_is_gone_every_request_gets_a_reply() -> None:
    table = RequestTable(was_up=True)
    sent, waits = [cell(), interrupt()], [cell(silent=True), request("complete_request")]
    for one in sent:
        table.sent(one)
    table.held = True
    for one in (*waits, request("comm_msg")):
        table.add(one)
    assert cleared(table) == sent + waits and table.waiting == cleared(table) == []


def test_after_the_idle_status_only_the_reply_is_missing() -> None:
    busy, idle = cell(), request("complete_request")
    table = known(busy, idle)
    for state, asked in (("busy", busy), ("busy", idle), ("idle", idle)):
        table.received(status(asked, state))
    assert [one.is_idle for one in table.clear(waiting=True)] == [False, True]


def test_front_ends_get_one_busy_status_and_one_input_of_a_request() -> None:
    """A successor without a log does not know what front ends have."""
    asked = cell()
    table = known(asked)
    about = [status(asked, "busy"), message_about(asked, "execute_input", execution_count=1)]
    assert [table.received(one) for one in about * 2] == [Decision.PASS] * 2 + [Decision.DROP] * 2
    assert table.received(message_about(asked, "error")) is Decision.PASS
    table.requeue()
    assert released(table) == [asked]
    assert [table.received(one) for one in about] == [Decision.PASS] * 2, "they are of another kernel"


def test_requests_that_no_kernel_answers_fill_no_memory() -> None:
    table = known(*(request("unknown_request") for _ in range(_MAX_OTHERS + 10)))
    assert len(cleared(table)) == _MAX_OTHERS


# ------------------------------------------------------------------------------------------ what the hub has answered


def test_own_code_is_answered_until_the_kernel_was_connected_once() -> None:
    """VS Code waits for the reply without a limit. Later, code may want the kernel's variables."""
    sent, waits, later = own_code(), own_code(), own_code()
    table = known(sent, was_up=False)
    assert answered(table) == ([sent], []) and answered(table) == ([], [])
    assert table.add(waits) is Taken.ANSWER
    table.answered(message_about(waits, "execute_reply", status="ok"))
    table.link_is_up()
    assert released(table) == [waits], "the kernel runs it, too"
    assert cleared(table) == [], "no request gets a second reply"
    for message in (
        status(waits, "busy"),
        message_about(waits, "execute_reply", status="ok"),
        status(waits, "idle"),
    ):
        assert table.received(message) is Decision.DROP
    assert answered(table) == ([], []) and table.add(later) is Taken.WAIT


def test_an_interrupt_that_was_answered_is_not_answered_again() -> None:
    """Of two the kernel answered one before the link went down."""
    before, first, between, second, behind = cell(), interrupt(), cell(), interrupt(), cell()
    table = known(before, first, between, second, behind)
    assert table.received(message_about(first, "interrupt_reply", status="ok")) is Decision.PASS
    assert answered(table) == ([second], [before.msg_id, between.msg_id]), "it may overtake these"
    assert table.received(message_about(second, "interrupt_reply", status="ok")) is Decision.DROP
    table.link_is_up()
    assert answered(table) == ([], []), "once"


def test_front_ends_get_nothing_but_output_of_a_cell_that_the_hub_has_ended() -> None:
    ended, own = cell(), own_code()
    table = known(ended, own)
    assert table.end_in_flight() == [ended]
    table.answered(message_about(ended, "execute_reply", status="error"))
    assert table.in_flight == [own] and cleared(table) == [own]
    assert table.received(status(ended, "busy")) is Decision.DROP
    assert table.received(message_about(ended, "stream", name="stdout", text="late")) is Decision.PASS
    assert table.received(message_about(ended, "execute_reply", status="error")) is Decision.DROP


def test_interrupts_without_end_fill_no_memory() -> None:
    table = known()
    last = interrupt()
    for _ in range(_MAX_ANSWERED + 10):
        table.sent(last := interrupt())
        table.link_is_down()
    assert len(table._ended) == _MAX_ANSWERED
    assert table.received(message_about(last, "interrupt_reply", status="ok")) is Decision.DROP


# ------------------------------------------------------------------------------------------ questions of the kernel


def test_a_question_that_comes_again_is_answered_again() -> None:
    """The kernel asks again when its keeper was killed. A successor without a log may repeat older replies before."""
    asked, older = cell(), cell()
    question = Message(Channel.STDIN, 3, make("input_request", {"prompt": "?"}, asked.parts[0]))
    reply = request("input_reply", Channel.STDIN, value="secret")
    table = known(asked)
    assert table.received(question) is Decision.PASS
    table.received(message_about(older, "execute_reply", status="ok"))
    assert table.received(question) is Decision.DROP, "there is no answer yet"
    table.sent(reply)
    assert table.received(question) is Decision.ANSWER and table.answer == reply
    table.received(message_about(asked, "execute_reply", status="ok"))
    assert table.answer is None, "it may be a password"


# ------------------------------------------------------------------------------------------ a killed hub


def test_the_successor_of_a_killed_hub_has_what_was_sent_and_what_waits() -> None:
    sent, done, waits, comm = cell(), cell(), cell(), request("comm_msg")
    table = known(sent, done)
    table.received(message_about(done, "execute_reply", status="ok"))
    table.link_is_down()
    table.add(waits)
    table.add(comm)
    after = successor(table)
    assert after.in_flight == [sent]
    assert released(after) == [waits, comm]


def test_a_request_that_is_no_cell_is_sent_again() -> None:
    """A keeper that has it already drops it."""
    asked = request("complete_request")
    after = successor(known(asked))
    (pending,) = after.release()
    assert pending.message == asked and pending.repeated
    after.sent(asked)
    assert after.received(message_about(asked, "complete_reply")) is Decision.PASS


def test_the_successor_knows_what_was_answered() -> None:
    sent, own, ended = cell(), own_code(), cell()
    table = RequestTable()
    table.not_started = True
    assert table.add(own) is Taken.ANSWER
    table.not_started = False
    released(table)
    table.sent(ended)
    table.end_in_flight()
    table.sent(sent)
    after = successor(table)
    assert after.in_flight == [own, sent] and cleared(after) == [sent]
    assert after.received(message_about(own, "execute_reply", status="ok")) is Decision.DROP
    assert after.received(message_about(ended, "execute_reply", status="error")) is Decision.DROP


def test_an_interrupt_of_a_killed_hub_is_for_the_cells_before_it() -> None:
    before, behind = cell(), cell()
    table = known(before, interrupt(), behind)
    changes = [saved for _, saved in table.take_changes() if saved is not None]
    assert RequestTable().recall(changes) == ("interrupt", [before.msg_id])
    assert RequestTable().recall(changes[1:]) == ("cancel", []), "another cell may run by now"


def test_a_shutdown_is_repeated_only_if_nothing_was_sent_since() -> None:
    shutdown = request("shutdown_request", Channel.CONTROL, restart=True)
    assert [one.message for one in successor(known(shutdown)).release()] == [shutdown]
    table = known(shutdown, cell())
    assert successor(table).release() == []
    assert cleared(table)[0] == shutdown, "if the kernel is lost, the request still gets a reply"


def test_a_request_on_the_control_channel_may_have_the_id_of_a_cell() -> None:
    """A KernelManager and its client have one session, and count their messages each by itself."""
    running = cell()
    header = dict(running.header(), msg_type="interrupt_request")
    control = Message(Channel.CONTROL, 4, (json.dumps(header).encode(), *interrupt().parts[1:]))
    table = known(running, control)
    table.end(control)
    for state in ("busy", "idle"):
        assert table.received(message_about(control, "status", execution_state=state)) is Decision.DROP
        assert table.received(message_about(running, "status", execution_state=state)) is Decision.PASS
    assert table.received(message_about(control, "interrupt_reply")) is Decision.DROP
    assert table.in_flight == [running]
