"""Which state the placeholder tells to those that come while a cell runs."""

from __future__ import annotations

from runtimes import RUNTIME, make

from jupyter_gpu_kernel.hub.kernel.core.placeholder import Placeholder
from jupyter_gpu_kernel.wire.messages import Channel, Message


class Kernel:
    """A kernel as the placeholder sees it. `states`: the states that the placeholder published, in order."""

    def __init__(self) -> None:
        self.states: list[str] = []
        self.placeholder = Placeholder(RUNTIME, None)
        self.reports("idle")

    def _record(self, messages: list[Message]) -> None:
        statuses = [message for message in messages if message.msg_type == "status"]
        self.states += [str(message.content()["execution_state"]) for message in statuses]

    def reports(self, state: str) -> None:
        """The keeper reports a state."""
        self._record(self.placeholder.update_state(state))

    def request(self, msg_type: str) -> bytes:
        return make(msg_type, {})[0]

    def is_(self, state: str, request: bytes = b"{}") -> None:
        parts = make("status", {"execution_state": state}, request)
        self._record(self.placeholder.observe(Message(Channel.IOPUB, 0, parts)))

    def welcome(self) -> str:
        """What a page that is loaded now hears."""
        self._record(self.placeholder.greet_subscriber())
        return self.states[-1]


def test_a_request_on_the_control_channel_does_not_end_a_cell() -> None:
    kernel = Kernel()
    cell, info = kernel.request("execute_request"), kernel.request("kernel_info_request")
    assert kernel.welcome() == "idle"
    kernel.is_("busy", cell)
    kernel.is_("busy", info)
    kernel.is_("idle", info)
    assert (kernel.welcome(), kernel.placeholder.state) == ("busy", "busy")
    kernel.is_("idle", cell)
    assert (kernel.welcome(), kernel.placeholder.state) == ("idle", "idle")


def test_a_new_process_and_the_keepers_word_end_what_was_busy() -> None:
    kernel = Kernel()
    for begins_anew in ("starting", "idle"):
        kernel.is_("busy", kernel.request("execute_request"))
        kernel.reports(begins_anew)
        later = kernel.request("execute_request")
        kernel.is_("busy", later)
        kernel.is_("idle", later)
        assert kernel.welcome() == "idle"


def test_of_requests_at_work_and_of_states_no_more_is_remembered_than_a_kernel_has() -> None:
    kernel = Kernel()
    cells = [kernel.request("execute_request") for _ in range(1005)]
    for cell in cells:
        kernel.is_("busy", cell)
    kernel.is_("\x1b]0;a title of its own\x07", cells[0])
    assert kernel.placeholder.state == "busy"
    for cell in cells[-1000:]:
        assert kernel.placeholder.state == "busy"
        kernel.is_("idle", cell)
    assert kernel.placeholder.state == "idle"


def test_a_report_of_the_keeper_is_no_request_that_stays_at_work() -> None:
    """The keeper of a busy kernel answers kernel_info in its place, and reports then that it is still busy."""
    kernel = Kernel()
    history = kernel.request("history_request")
    kernel.is_("busy", history)
    kernel.is_("busy")
    assert kernel.welcome() == "busy"
    kernel.is_("idle", history)
    assert (kernel.welcome(), kernel.placeholder.state) == ("idle", "idle")


def test_a_report_that_nothing_is_at_work_ends_what_was_busy() -> None:
    """The idle of a cell whose front end left is kept from the one that came."""
    kernel = Kernel()
    kernel.is_("busy", kernel.request("execute_request"))
    kernel.is_("idle")
    assert kernel.welcome() == "idle"


def test_another_kernel_is_not_busy_with_what_the_one_before_was() -> None:
    kernel = Kernel()
    kernel.is_("busy", kernel.request("kernel_info_request"))
    kernel.placeholder.kernel_gone()
    cell = kernel.request("execute_request")
    kernel.is_("busy", cell)
    kernel.is_("idle", cell)
    assert kernel.placeholder.state == "idle"


def test_a_keeper_that_is_back_and_says_idle_is_believed() -> None:
    kernel = Kernel()
    kernel.is_("busy", kernel.request("execute_request"))
    kernel.reports("idle")
    assert kernel.placeholder.state == "idle" and kernel.welcome() == "idle"


def test_a_front_end_that_got_busy_gets_idle_as_well() -> None:
    """By a status of no request, as JupyterLab passes over those of kernel_info_request and comm_info_request."""
    kernel = Kernel()
    kernel.states.clear()
    info = kernel.request("comm_info_request")
    kernel.is_("busy", info)
    assert kernel.welcome() == "busy"
    kernel.is_("idle", info)
    assert kernel.states == ["busy", "idle"]

    cell = kernel.request("execute_request")
    kernel.is_("busy", cell)
    kernel.is_("busy", info)
    kernel.is_("idle", cell)
    kernel.is_("busy")  # the keeper's report
    kernel.is_("idle", info)
    assert kernel.states == ["busy", "idle", "idle"]
    kernel.is_("busy", cell)
    kernel.is_("idle", cell)
    assert kernel.states == ["busy", "idle", "idle"], "its own idle does"
