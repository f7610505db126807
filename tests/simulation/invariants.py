"""What the simulation looks at inside hub and keeper. No other module knows names of theirs that are not public."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_gpu_kernel.agent.core.waiting import Reason
from jupyter_gpu_kernel.hub.kernel.core.life import LinkState
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel

from .kernel import essence
from .network import WRITE_AHEAD
from .oracle import texts
from .world import Failure, Process

if TYPE_CHECKING:
    from .episode import Episode
    from .hub import UserFrontEnd
    from .keeper import KeeperProcess


_SOON = 6.0
"""Seconds in which a hub has answered what is to be answered in a kernel's place."""


def state(episode: Episode) -> tuple[Any, ...]:
    """Return the state of the whole, without numbers."""
    parts: list[Any] = [hub.alive for hub in episode.hubs]
    for remote in (one for hub in episode.hubs for one in hub.kernels):
        relay = remote.core.relay
        remote.core.validate()
        parts += [remote.link.state, remote.link_state.value, remote.phase.name, remote.endpoint.state.value]
        parts += [remote.status["state"], relay.placeholder.state, relay.pacer._pace.name]
        parts += [bool(relay.pacer.waiting), bool(relay.table.waiting), bool(relay.table.in_flight)]
    for keeper in episode.node.keepers.values():
        relay = keeper.keeper.core.relay
        parts += [keeper.alive, keeper.keeper.status.state, relay._state.name, relay.busy]
        parts += [tuple(sorted({one.reason.name for one in relay.waiting.line}))]
        parts += [
            keeper.keeper.core.log.state.messages_wait,
            keeper.keeper.server.attached,
            keeper.keeper._end_request.name,
        ]
        parts += [keeper.keeper.server.endpoint.state.value, any(one.reply for one in relay.waiting.line)]
    return tuple(parts)


def check_bounds(process: KeeperProcess) -> None:
    """Raise Failure if a keeper holds more for a connection than it may."""
    for connection in process.keeper.server._connections.values():
        if len(connection.pending) > WRITE_AHEAD:
            process.world.fail(
                "bound", f"{len(connection.pending)} bytes wait for a connection of the keeper"
            )


def check_waiting(process: KeeperProcess) -> None:
    """Raise Failure if requests wait in a keeper in another order or for another reason than they may."""
    clocks = process.keeper.core.log.runtime.clocks
    if clocks is process.checked:
        return
    process.checked = clocks
    try:
        process.keeper.core.validate()
    except AssertionError as error:
        process.world.fail("waiting", str(error))


def check_story(process: KeeperProcess) -> None:
    """Raise Failure if the story does not tell of each front end that it has left before the next one came."""
    last, ran = "", False
    for line in process.story:
        if line["event"] in ("start", "end"):
            last = "" if ran and line["event"] == "start" else last  # the node was rebooted
            ran = line["event"] == "start"
        if line["event"] in ("attach", "drop") and line["event"] == last:
            raise Failure("story", f"two lines {last} follow each other")
        if line["event"] in ("attach", "drop", "takeover", "succession"):
            last = line["event"]


def waits_for_gpus(process: KeeperProcess) -> bool:
    """Return whether a user's cell waits for the kernel's GPUs."""
    keeper = process.keeper
    return keeper.requests.up and bool(keeper.core.relay.waiting.all(Reason.GPUS))


def replaced_by(process: KeeperProcess, uuid: str) -> str:
    """Return the id of the kernel that gets this GPU, which the keeper has leased, after the keeper's kernel; "" if
    none does."""
    keeper = process.keeper
    has_lease = any(lease.uuid == uuid for lease in keeper.gpus.acquisition._leases)
    return keeper.replacement.replaced_by if has_lease and keeper.replacement._phase.name == "ENDED" else ""


def first_waiting_cell(process: KeeperProcess) -> bytes | None:
    """Return the header of the cell that shows what it waits for; None if none does."""
    first = process.keeper.core.relay.waiting.first_cell
    return None if first is None else first.request.parts[0]


def has_ended(process: KeeperProcess) -> bool:
    """Return whether the kernel's process has ended, and no restart of it was requested."""
    keeper = process.keeper
    return keeper.status.state == "ended" and keeper._end_request.word != "restart"


def is_connected(front_end: UserFrontEnd) -> bool:
    """Return whether the hub is connected with the kernel of this front end."""
    return front_end.remote is not None and front_end.remote.link_state is LinkState.UP


def check_lost(front_end: UserFrontEnd) -> None:
    """Raise Failure if a request waits without a word for a kernel that does not exist any more. A shutdown may be
    forgotten, as the kernel was used again."""
    client, remote = front_end.client, front_end.remote
    since = max([0.0, *client.world.times["hub killed"]])
    if remote is None or remote.link_state is not LinkState.LOST or client.paused:
        return
    for request in client.requests.values():
        is_due = request.needs_reply and request.msg_type != "shutdown_request"
        if is_due and not request.replies and max(since, request.at_hub) < client.world.now - _SOON:
            raise Failure("waits for a lost kernel", f"{request}, sent at {request.sent_at:.3f}")


def timers_of_closed_kernels(process: Process) -> list[str]:
    """Return what is still to be called in the kernels that a hub has closed."""
    owners = [(event, getattr(event.callback, "__self__", None)) for event in process.world.pending()]
    return [
        f"{event.callback}"
        for event, owner in owners
        if event.process is process and isinstance(owner, RemoteKernel) and owner.closed
    ]


def left(episode: Episode) -> list[str]:
    """Return what is not at rest: messages that wait, requests that have no reply."""
    found: list[str] = []
    owned: list[str] = []
    ids = [front_end.kernel_id for front_end in episode._all_fronts()]
    for remote in (one for hub in episode.hubs for one in hub.kernels):
        if remote.closed or remote.link_state is LinkState.LOST:  # what has waited goes to the next kernel
            continue
        if remote.link_state is LinkState.TAKEN:  # what it has not sent was answered
            continue
        if remote.pending:
            found += ["a cell waits for the start"] if remote.waiting_cells else []
            continue
        owned.append(remote.kernel_id)
        relay = remote.core.relay
        waits = {
            "pacer": relay.pacer.waiting,
            "outbox": remote.endpoint.outbox.size,
            "waiting": len(relay.table.waiting),
            "in flight": len(relay.table.in_flight),
        }
        found += [f"hub's {name}: {size}" for name, size in waits.items() if size]
        if relay.pacer._pace.name != "LIVE":
            found.append("a replay goes on")
        if remote.link_state is not LinkState.UP:
            found.append(f"link {remote.link_state.value}")
    found += [f"{kernel_id} has two owners" for kernel_id in owned if owned.count(kernel_id) > 1]
    for keeper in episode.node.keepers.values():
        if not keeper.alive or keeper.kernel_id not in ids:
            continue
        relay, server = keeper.keeper.core.relay, keeper.keeper.server
        ended = keeper.keeper.status.state == "ended"  # then some get no reply
        waits = {
            "waiting line": len(relay.waiting.line),
            "outbox": server.endpoint.outbox.size if server.attached else 0,
            "waiting": int(keeper.keeper.core.log.state.messages_wait) if server.attached else 0,
            "greeting": len(relay.greeting.waiting),
            "requests": 0 if ended else len(keeper.keeper.core.log.state.requests.pending),
        }
        found += [f"keeper's {name}: {size}" for name, size in waits.items() if size]
        kernel = keeper.keeper.kernel.model
        if kernel is not None and kernel.busy:
            found.append("kernel busy")
    return found


def history_outputs(page: dict[str, Any]) -> dict[str, str]:
    """Return the outputs of a cell in the keeper's history, as the oracle compares them."""
    shown = [essence(one["msg_type"], one["content"]) for one in page["outputs"]]
    return texts(
        [one for one in shown if one[0] not in ("stdin", "clear_output") and not one[1].startswith("\n[")]
    )


def files_left(episode: Episode) -> list[str]:
    """Return which files hub and keepers have left."""
    kernels = list((episode.folder / "node").glob("**/k/*"))
    if (
        episode.world.keeper_kills
    ):  # the next `attach` removes what a killed keeper has left, if its kernel has ended
        kernels = []
    delivered = [path for path in (episode.folder / "delivered").rglob("*") if path.is_file()]
    left = [path for path in (*kernels, *delivered) if path.name.partition(".")[0] not in episode.abandoned]
    return [str(path.relative_to(episode.folder)) for path in left]
