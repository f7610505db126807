"""What must be true of each request, of each cell's output as each client has seen it, and of the end of an episode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.wire.kernel_messages.compose import PASSING

from .kernel import Executed, essence
from .world import Failure

if TYPE_CHECKING:
    from .front_end import Client

OUTPUTS = (
    "stream",
    "display_data",
    "update_display_data",
    "comm_msg",
    "error",
    "clear_output",
    "execute_result",
)
LOSSES = {"reboot", "host left", "job ended"}
"""What takes output with it that the hub has not received."""
BOTH_GONE = {"ended without a keeper"}
"""What a kernel has published after its keeper was killed is nowhere else if the kernel ends before a successor has
read it, by a crash or by a shutdown that the killed keeper had passed on."""
_BETWEEN = 0.01
"""Seconds that a request is between keeper and kernel at most."""
KNOWN = 20.0
"""Seconds in which a hub knows that its kernel has ended, and another one may run."""
Essence = tuple[str, str]


class Request:
    """One request of a client. `cell`: the actions of an execute_request; None of other requests."""

    def __init__(
        self, client: Client, header: dict[str, str], sent_at: float, content: dict[str, Any], cell: Any
    ) -> None:
        self.client, self.sent_at, self.content, self.cell = client, sent_at, content, cell
        self.name, self.msg_id, self.msg_type = header["date"], header["msg_id"], header["msg_type"]
        self.replies: list[dict[str, Any]] = []
        self.at_hub = float("inf")
        """When a hub has got the request first."""
        self.replied_at = self.idle_at = 0.0
        self.reply_number = 0
        self.asked = 0
        self.answered = False
        """Whether the user has answered its question."""
        self.half_answered = False
        """Whether a hub was killed while it sent one of several messages about the request, perhaps its own answer."""
        self.lost = False
        """Whether a hub was killed while it read the request."""

    def __repr__(self) -> str:
        return f"{self.msg_type} {self.name}"

    @property
    def needs_reply(self) -> bool:
        """Whether a reply must come."""
        world = self.client.world
        forgotten = self.lost or (world.disk_was_full and world.kills > 0)
        return self.msg_type.endswith("_request") and not forgotten

    def was_pending(self, kind: str) -> bool:
        """Return whether something of this kind, see `World.times`, has happened while front ends lacked the reply or
        the idle status."""
        never = float("inf")
        replied_at = (self.replied_at or never) if self.msg_type.endswith("_request") else 0.0
        until = max(replied_at, self.idle_at or never)
        return any(self.sent_at <= at <= until for at in self.client.world.times[kind])

    @property
    def user_cell(self) -> bool:
        """Whether a user ran it."""
        return self.cell is not None and bool(self.content["store_history"])

    def reply(self, number: int, msg_type: str, content: dict[str, Any]) -> None:
        """A reply has come."""
        if msg_type != self.msg_type.replace("_request", "_reply"):
            raise Failure("wrong reply", f"{msg_type} to {self}")
        world = self.client.world
        # A hub has answered it in the kernel's place, and the next hub could not know that.
        unknown = world.starts_later and world.disk_was_full and self.cell is None
        # Neither the next hub nor the successor knows that the cell has ended, as another computer took the kernel.
        unknown = unknown or (world.log_was_lost and world.takes > 0)
        if self.replies and world.kills and (unknown or self.msg_type == "interrupt_request"):
            return
        self.replies.append(content)
        if len(self.replies) > 1:
            raise Failure("two replies", f"{self}: {[one.get('status') for one in self.replies]}")
        self.replied_at, self.reply_number = self.client.world.now, number


class View:
    """What one client has seen of one request on iopub."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name = client, name
        self.busy = self.idle = self.input = 0
        self.outputs: list[Essence] = []
        self.last_output = 0
        self.notices: list[str] = []
        self.since = client.world.now

    def add(self, number: int, msg_type: str, content: dict[str, Any]) -> None:
        """A message has come."""
        if msg_type == "status":
            state = content["execution_state"]
            if state == "idle" and (self.idle or not self.busy) and self._may_have_another_idle:
                return
            self.busy += state == "busy"
            self.idle += state == "idle"
            if (self.busy > 1 or self.idle > 1) and not self._answered_by_killed_hub:
                raise Failure(
                    "two states", f"{self.client} got {self.busy} busy, {self.idle} idle of {self.name}"
                )
            request = self.client.world.all_requests.get(self.name)
            if state == "idle" and request is not None and request.client is self.client:
                request.idle_at = request.idle_at or self.client.world.now
            excused = self.client.lossy or self.client.world.log_was_lost
            if state == "idle" and not self.busy and not excused and self.whole:
                raise Failure("idle before busy", f"{self.client}: {self.name}")
        elif msg_type == "execute_input":
            self.input += 1
            if self.input > 1 and not self._answered_by_killed_hub:
                raise Failure("two inputs", f"{self.client}: {self.name}")
        elif msg_type in OUTPUTS:
            self._output(number, msg_type, content)

    @property
    def _may_have_another_idle(self) -> bool:
        """Whether the hub repeats the idle status of this request when a client subscribes late."""
        request = self.client.world.all_requests.get(self.name)
        return request is not None and request.msg_type == "kernel_info_request"

    @property
    def _answered_by_killed_hub(self) -> bool:
        """Whether a killed hub may have answered this request in the kernel's place, or its successor may have sent
        the request again; and whether nobody knows which status front ends have seen last: hub and keeper were killed,
        or the keeper with its log, or the kernel was lost, too."""
        request = self.client.world.all_requests.get(self.name)
        if request is None:
            return False
        hub_killed = request.was_pending("hub killed")
        if request.half_answered or request.was_pending("log lost") or (hub_killed and request.cell is None):
            return True
        world = self.client.world
        later = (world.starts_later and request.cell is None) or (world.log_was_lost and world.takes > 0)
        if world.kills and (later or request.msg_type == "interrupt_request"):
            return True  # the hub has answered it, and the kernel got it later
        return hub_killed and request.was_pending("kernel gone")

    @property
    def whole(self) -> bool:
        """Whether the client was there when the request was sent."""
        request = self.client.world.all_requests.get(self.name)
        return request is not None and 0 <= self.client.subscribed_at < request.sent_at

    def _output(self, number: int, msg_type: str, content: dict[str, Any]) -> None:
        shown = essence(msg_type, content)
        if is_ours(msg_type, content, shown):
            self.notices.append(shown[1])
            return
        client = self.client
        # A successor without a log does not know the cells that ended with the kernel until the hub has named them.
        excused = client.lossy or client.world.kills or client.world.log_was_lost
        if number > client.ended_after.get(self.name, number) and not excused:
            raise Failure("output behind the end", f"{client} knew that the kernel of {self.name} had ended")
        self.last_output = number
        self.outputs.append(shown)
        if self.idle and not self.client.lossy and not self._answered_by_killed_hub and not self._ended_early:
            raise Failure("output behind idle", f"{self.client}: {self.name} has ended, and shows {shown}")

    @property
    def _ended_early(self) -> bool:
        """Whether the hub has ended the request in the kernel's place, and its output still comes."""
        request = self.client.world.all_requests.get(self.name)
        return request is not None and request.cell is not None


def is_ours(msg_type: str, content: dict[str, Any], shown: Essence) -> bool:
    """Return whether hub or keeper show this, and not the cell: the model's displays have an id."""
    if msg_type == "clear_output":
        return True
    if msg_type in ("display_data", "update_display_data"):
        display = str(content.get("transient", {}).get("display_id", ""))
        return not display or display.startswith(PASSING)
    return msg_type == "stream" and "left out here" in shown[1]


def texts(outputs: list[Essence]) -> dict[str, str]:
    """Return by kind all that came, in order; of what supersedes itself only the last one."""
    found: dict[str, str] = {}
    for kind, text in outputs:
        found[kind] = text if kind.startswith(("update ", "comm ")) else found.get(kind, "") + text
    return found


class Disturbance:
    """Something that users or faults did at a time, because of which cells may end otherwise. `notebook`: whose kernel
    it concerns; "": all."""

    def __init__(self, kind: str, at: float, notebook: str) -> None:
        self.kind, self.at, self.notebook = kind, at, notebook


def check_request(request: Request, disturbances: list[Disturbance], executed: list[Executed]) -> None:
    """Raise Failure if the request, at the end of the episode, has not what it must have."""
    happened = {one.kind for one in disturbances if request.sent_at <= one.at <= (request.replied_at or 1e9)}
    lives = {one.kind for one in disturbances if one.at >= request.sent_at - KNOWN}
    if request.client.gone or request.client.lossy:
        return _check_executions(request, executed)
    if request.needs_reply and not request.replies and not _needs_none(request, lives):
        raise Failure("no reply", f"{request}, sent at {request.sent_at:.3f}, happened: {sorted(happened)}")
    _check_executions(request, executed)
    view = request.client.views.get(request.name)
    world = request.client.world
    both = world.kills and (world.reboots or request.half_answered)  # then states may be lost
    # What a hub answers before clients have subscribed is lost if it is killed as well.
    states = both or world.log_was_lost or world.kills > 1 or (view is not None and view.busy and view.idle)
    # Those of a request that is no cell, and that has a reply, may wait in the keeper when another computer takes the
    # kernel.
    states = states or (request.cell is None and world.takes)
    if request.replies and not states and not _needs_none(request, lives):
        raise Failure("no state", f"{request} has {view and (view.busy, view.idle)}")
    if request.cell is not None and request.replies and view is not None:
        _check_cell(request, view, happened, executed)


def _needs_none(request: Request, lives: set[str]) -> bool:
    """Whether nobody can say what a kernel that has ended would have replied."""
    ended = {"restart", "shutdown", "crash", "reboot"} & lives
    return request.cell is None and bool(ended)


def _check_executions(request: Request, executed: list[Executed]) -> None:
    if len(executed) > 1:
        times = [f"{one.began:.3f}" for one in executed]
        raise Failure("executed twice", f"{request} at {times}")
    if executed and request.cell is None:
        raise Failure("executed", f"{request}")


def _check_cell(request: Request, view: View, happened: set[str], executed: list[Executed]) -> None:
    status = str(request.replies[0].get("status"))
    truth = executed[-1] if executed else None
    if truth is None or not truth.status:
        return _check_unfinished(request, view, status, happened, truth)
    if was_taken(request):
        return check_outputs(request, view, truth.outputs, complete=False)
    # The last reply of the kernel, or of a process before it, of which a successor knows only that the cell has ended.
    is_lost = status == "error" or (status == "aborted" and "ended" in happened)
    lost = request.client.world.log_was_lost and is_lost
    if status != truth.status and not lost and not happened & (LOSSES | BOTH_GONE):
        raise Failure("wrong status", f"{request}: {status}, but the kernel said {truth.status}")
    # What a hub answers in the place of a lost kernel waits on iopub for a client that has not subscribed there again.
    waits = request.was_pending("hub killed") and request.was_pending("kernel gone")
    if request.reply_number < view.last_output and not waits:
        raise Failure("reply overtakes", f"{request}: the reply was sent before its last output")
    outputs, torn = truth.outputs, request.half_answered  # by the hub, which was killed before its reply
    if torn:
        outputs = [one for one in outputs if one[0] != "error"]
    check_outputs(request, view, outputs, complete=not happened & (LOSSES | BOTH_GONE), error=not torn)


def was_taken(request: Request) -> bool:
    """Whether the request has the reply that another computer has taken the kernel, where it goes on."""
    return bool(request.client.world.takes) and "was taken over by" in request.replies[0].get("evalue", "")


def _check_unfinished(
    request: Request, view: View, status: str, happened: set[str], truth: Executed | None
) -> None:
    """The cell did not run, or not to its end."""
    if status == "ok" and request.user_cell:
        raise Failure("wrong status", f"{request}: ok, but it did not run to its end")
    outputs = [one for one in view.outputs if one[0] != "error"]
    if truth is None and outputs:
        raise Failure("output of nothing", f"{request}: {outputs[:3]}")
    if truth is not None:
        outputs = [one for one in truth.outputs if one[0] != "error"]
        complete = not (happened & (LOSSES | BOTH_GONE) or was_taken(request))
        check_outputs(request, view, outputs, complete=complete, error=False)


def check_outputs(
    request: Request, view: View, truth: list[Essence], *, complete: bool, error: bool = True
) -> None:
    """Compare what was seen with what the kernel has published."""
    seen = view.outputs if error else [one for one in view.outputs if one[0] != "error"]
    if view.client.world.caps and any("left out here" in text for text in view.notices):
        return
    seen_texts, true_texts = texts(seen), texts(truth)
    if request.content.get("silent"):
        true_texts.pop("error", None)
    lost = view.client.world.log_was_lost
    if lost or not complete:
        for kind, text in seen_texts.items():
            if not kind.startswith(("update ", "comm ", "error")) and not _contains(
                true_texts.get(kind, ""), text
            ):
                raise Failure("doubled output", f"{request}: {kind} {text[-200:]!r}")
        if seen_texts != true_texts and not lost and request.replies[0].get("status") != "error":
            raise Failure("lost output", f"{request} lacks output, and does not say so")
        return
    if seen_texts != true_texts:
        for kind in sorted({*seen_texts, *true_texts}):
            got, due = seen_texts.get(kind, ""), true_texts.get(kind, "")
            if got != due:
                kind_of = "lost output" if len(got) < len(due) else "doubled output"
                raise Failure(kind_of, f"{view.client}: {request}: {kind}: {_difference(got, due)}")
    silent = bool(request.content.get("silent"))
    if not silent and _sequence(seen) != _sequence(truth):
        raise Failure("order of outputs", f"{request}: {_sequence(seen)} instead of {_sequence(truth)}")


def _sequence(outputs: list[Essence]) -> list[Essence]:
    """Return text, displays and errors in order, neighbouring text joined. What supersedes itself may move."""
    shown: list[Essence] = []
    for kind, text in outputs:
        if kind.startswith(("update ", "comm ")):
            continue
        if shown and shown[-1][0] == kind and kind in ("stdout", "stderr"):
            text = shown.pop()[1] + text
        shown.append((kind, text))
    return shown


def _contains(whole: str, part: str) -> bool:
    """Whether the lines of `part` are among those of `whole`, in order and once. Its last line may be incomplete: long
    texts come in pieces."""
    *lines, last = part.split("\n")
    whole_lines = iter(whole.split("\n"))
    return all(line in whole_lines for line in lines) and any(line.startswith(last) for line in whole_lines)


def _difference(got: str, due: str) -> str:
    at = next(
        (at for at, (a, b) in enumerate(zip(got, due, strict=False)) if a != b), min(len(got), len(due))
    )
    return f"{len(got)} characters instead of {len(due)}; from {at} on {got[at : at + 80]!r}, not {due[at : at + 80]!r}"


def check_aborted(request: Request, requests: list[Request]) -> None:
    """Raise Failure if a cell ran although one before it had failed, and its front end did not know that yet. A cell
    that is between keeper and kernel when the other one fails may run, as in any kernel."""
    executed = request.client.world.executed
    if request.cell is None or not executed.get(request.name):
        return
    began = executed[request.name][0].began
    for other in requests:
        # One that was interrupted is followed by cells, as its user does that.
        by_itself = (
            other.content.get("stop_on_error") and other.client is request.client and fails(other.cell or [])
        )
        failed_at = [run.ended for run in executed.get(other.name, []) if run.status == "error"]
        unknown = other.sent_at < request.sent_at < other.replied_at - 0.001
        if by_itself and unknown and any(at < began - _BETWEEN for at in failed_at):
            raise Failure("ran behind a failure", f"{request} was sent before the reply to {other}")


def check_taken_over(request: Request, requests: list[Request]) -> None:
    """Raise Failure if a cell failed whose front end took the kernel over when another one had requested a restart."""
    if not request.user_cell or not request.replies or request.replies[0].get("ename") != "DeadKernelError":
        return
    for other in requests:
        before = request.sent_at - other.sent_at
        if (
            other.msg_type == "shutdown_request"
            and other.client is not request.client
            and 0.01 < before < 0.5
        ):
            raise Failure("not restarted", f"{request} was sent {before:.3f} s after {other}")


def check_interrupted(request: Request, interrupted_at: list[float], within: float) -> None:
    """Raise Failure if the cell runs on, or runs, although its kernel was interrupted so many seconds before. There is
    one front end."""
    runs = request.client.world.executed.get(request.name)
    if not runs or not request.user_cell:
        return
    held = sum(float(action[1]) for action in request.cell or () if action[0] == "hold")
    for at in interrupted_at:
        if runs[0].began + 0.1 < at < (runs[0].ended or 1e9) - within - held:
            raise Failure("ran on after an interrupt", f"{request}, interrupted at {at:.3f}")
        pending = [
            one
            for one in request.client.requests.values()
            if one.cell is not None and one.at_hub + 0.1 < at < one.replied_at
        ]
        if (
            request in pending
            and pending[0].content["stop_on_error"]
            and at < (runs[0].ended or 1e9) - within
            and at < runs[0].began - 2.0
        ):
            raise Failure("ran after an interrupt", f"{request}, sent at {request.sent_at:.3f}")


def fails(cell: list[Any]) -> bool:
    """Return whether this cell fails by itself."""
    return any(action[0] == "error" for action in cell)
