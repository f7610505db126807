"""The handlers of the hub's requests to `attach`: open or create a kernel, list kernels, show GPUs and stories.

The handlers block, and run on threads of `attach`. Their only state is what `gpus` has seen so far.
"""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from ...wire import PROTOCOL
from ...wire.fields import number, text, texts
from ..exit.descendants import hidden_keeper
from ..exit.leftovers import explain_missing_story, on_gpu
from ..gpus import hours
from ..gpus.devices.gpu import SmiError
from ..gpus.offer import read_offer
from ..gpus.requirements import Allocation, Requirements
from ..gpus.sampler import judge_now
from ..gpus.sharing import queue_view
from ..gpus.sharing.turns import PassedPlaces
from ..gpus.sharing.wait_queue import QueueReader
from ..job.client import job_status
from ..keeper.client import TIMEOUT, KeeperTimeout
from ..kernel_settings import settings_from
from ..paths import Root, is_kernel_id
from ..policy import PATH, PolicyError, read_policy
from ..refused import Refused
from ..spare.places import retire_all
from ..story import KEEP_DAYS, read_story
from ..system.agent_runtime import AgentRuntime
from ..system.procfs import booted_at
from .keepers import SUCCESSOR_TIMEOUT, Keepers, protocol_of

MAX_STORY = 3 * 1024 * 1024
"""Bytes at the end of a story that are read, and sent in one reply: the wire's frames take 4 MiB."""
MAX_STORIES = 1000
MAX_KERNELS = 10_000
"""Kernels that a hub has attached."""
MAX_HOLDS = 3000
"""Rows of the GPU history in one reply."""
STOP_TIMEOUT = 20.0
"""Seconds that a kernel and its keeper have to end."""
_FORWARDED = ("confirm", "priority", "interrupt", "restart", "journal")
"""The requests that the kernel's keeper answers."""


class RequestHandlers:
    """`handle({"do": …})` returns a JSON object, `open` a connected socket. They raise Refused if they cannot."""

    def __init__(
        self,
        runtime: AgentRuntime,
        root: Root,
        policy: Path = PATH,
        timeout: float = TIMEOUT,
        successor_timeout: float = SUCCESSOR_TIMEOUT,
    ) -> None:
        self.root = root
        self._runtime = runtime
        self._policy = policy
        self._keepers = Keepers(runtime, root, policy, timeout, successor_timeout)
        self._leftovers = self._keepers.leftovers
        self._handlers: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "list": self._list,
            "story": self._story,
            "stories": self._stories,
            "stop": self._stop,
            "gpus": self._gpus,
            "offer": self._offer,
            "history": self._history,
            "job": self._job,
            "take_detached": self._take_detached,
            "leftovers": self._list_leftovers,
            "end_leftovers": self._end_leftovers,
            **dict.fromkeys(_FORWARDED, self._forward),
        }

    def handle(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The reply to one request."""
        handler = self._handlers.get(str(request.get("do")))
        if handler is None:
            raise Refused("unknown", f"unknown request: {request.get('do')!r}")
        return handler(request)

    def identity(self) -> str:
        """The identity of our folder, which each reply has."""
        return self.root.identity(self._runtime.new_id)

    def open(self, kernel_id: str, request: Dict[str, Any]) -> Tuple[str, socket.socket]:
        """Return the kernel's id and a socket to its keeper. Raises Refused if there is none,
        or if another computer owns the kernel by now.

        request: {"owner": the hub that asks, "by": its name}. With "create": settings, a kernel is found or started:
        if the notebook has left a kernel with this kernelspec, that kernel and its id are returned. With "attach": {…},
        the kernel is taken over from its owner. With neither, the hub connects again. A reservation becomes a kernel if
        the settings are not those of a reservation. "boot": the boot id when the kernel was
        last seen, for a node that loses everything at a reboot.
        """
        kernel_id, owner = _checked(kernel_id), _owner(request)
        create, attach = request.get("create"), request.get("attach")
        sock = self._keepers.connect(kernel_id)
        if sock is None:
            self._leftovers.remove_stale(kernel_id)
        else:
            with contextlib.ExitStack() as on_error:
                on_error.callback(sock.close)
                owner_now = self._owner_of(kernel_id)
                if attach is not None:
                    self._keepers.request(kernel_id, dict(attach, do="return", **owner))
                else:
                    _refuse_others(kernel_id, owner_now, owner)
                if create is not None and not create.get("reservation"):
                    known = {key: create[key] for key in ("notebook", "placement") if key in create}
                    self._keepers.request(kernel_id, {**known, "do": "confirm"})
                on_error.pop_all()
        if sock is None and create is not None:
            settings = settings_from(dict(create, **owner, id=kernel_id))
            detached = self._keepers.take_detached(settings, _attached_kernels(request))
            if detached:
                kernel_id, sock = detached, self._keepers.connect(detached)
            else:
                sock = self._keepers.create(settings)
        if sock is None:
            raise Refused("gone", self._why_gone(kernel_id, str(request.get("boot", ""))))
        return kernel_id, sock

    def _owner_of(self, kernel_id: str) -> Dict[str, Any]:
        """Return the owner of a kernel, {} if its keeper does not reply.

        Raises Refused if the keeper uses another protocol.
        """
        reply: Dict[str, Any] = {}
        with contextlib.suppress(KeeperTimeout):  # the hub learns the owner when the keeper replies again
            reply = self._keepers.ask(kernel_id, {"do": "owner"}) or {}
        if reply and protocol_of(reply) != PROTOCOL:
            raise Refused(
                "protocol",
                f"kernel {kernel_id} was started by another version of jupyter-gpu-kernel, which speaks protocol "
                f"{protocol_of(reply)}; this version speaks {PROTOCOL}. Use that version for it, or stop the kernel",
            )
        return reply

    def _why_gone(self, kernel_id: str, boot: str = "") -> str:
        """Why a kernel has no keeper. `boot`: the boot id when it ran, if the hub knows it."""
        hidden = hidden_keeper(kernel_id)
        if hidden:
            return (
                f"kernel {kernel_id} was started in a session with a /tmp of its own, which this connection does not "
                f"see; its keeper is process {hidden}"
            )
        story = [one for one in read_story(self.root.story(kernel_id)) if one.get("event") != "code"]
        last = story[-1] if story else explain_missing_story(boot)
        if not last:
            return f"there is no kernel {kernel_id} on this node"
        if self.root.kernel(kernel_id).is_dir():  # the folder is not stale: the kernel still runs
            return f"the keeper of kernel {kernel_id} was killed; the kernel ends after its running cell"
        if last.get("cause"):
            evidence = f" ({last['evidence']})" if last.get("evidence") else ""
            return f"kernel {kernel_id} has ended: {last['cause']}{evidence}"
        when = time.strftime("%H:%M:%S", time.localtime(last.get("time", 0)))
        return f"kernel {kernel_id} is gone; its story ends at {when}: {last.get('text', '')}"

    # -------------------------------------------------------------------------------------- handlers

    def _list(self, _: Dict[str, Any]) -> Dict[str, Any]:
        return {"kernels": self._keepers.states()}

    def _take_detached(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Give the hub the kernel that this notebook has left, if there is one."""
        settings = settings_from(request)
        return {"kernel": self._keepers.take_detached(settings, _attached_kernels(request))}

    def _story(self, request: Dict[str, Any]) -> Dict[str, Any]:
        kernel_id = _checked(request["kernel"])
        self._leftovers.remove_stale(kernel_id)
        path = self.root.story(kernel_id)
        if not path.exists():
            when = booted_at() or "at an unknown time"
            raise Refused(
                "gone", f"there is no story of kernel {kernel_id} on this node, which was booted {when}"
            )
        return {"story": read_story(path, MAX_STORY)}

    def _stories(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The kernels whose ids begin with `kernel` and that have a story, also those that have ended."""
        start = _checked(request["kernel"])
        found = sorted(one for one in self.root.kernels_with_story(0.0) if one.startswith(start))
        return {"kernels": [{"id": one} for one in found[:MAX_STORIES]]}

    def _stop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Stop a kernel, and wait until its folder is removed: then no process, socket or lease of it is left. With the
        last kernel, the spare interpreters end. Refuse for an `owner` whose kernel another one has."""
        kernel_id = _checked(request["kernel"])
        if request.get("owner"):
            _refuse_others(kernel_id, self._owner_of(kernel_id), request)
        try:
            reply = self._keepers.ask(kernel_id, request)
        except KeeperTimeout:  # but the keeper has received the request
            refused = self._keepers.unresponsive(kernel_id)
            raise Refused(refused.code, f"{refused}; it will stop when it answers again") from None
        if reply is None:
            raise Refused("gone", self._why_gone(kernel_id))
        folder = self.root.kernel(kernel_id)
        stopped = self._runtime.wait_until(lambda: not folder.exists(), STOP_TIMEOUT)
        self._end_spares()
        return {"ok": stopped}

    def _end_spares(self) -> None:
        """End the spare interpreters, unless a kernel runs: a user who has stopped all kernels finds no process."""
        if not self.root.kernels():
            retire_all(self.root.path)

    def _forward(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Forward the request to the keeper; return its reply."""
        kernel_id = _checked(request["kernel"])
        reply = self._keepers.request(kernel_id, request)
        if reply is None:
            raise Refused("gone", self._why_gone(kernel_id))
        if "error" in reply and reply["error"].get("code") == "unknown":
            raise Refused(
                "older",
                f"kernel {kernel_id} was started by an earlier version of jupyter-gpu-kernel, which cannot do this",
            )
        return reply

    def _list_leftovers(self, _: Dict[str, Any]) -> Dict[str, Any]:
        return {
            "leftovers": self._leftovers.list_processes(),
            "code": self._keepers.checkouts.leftovers(self._leftovers.is_gone),
        }

    def _end_leftovers(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """End these processes of kernels that are gone, and remove what they left of pinned code, if unchanged. The
        spare interpreters end if there is no kernel."""
        self._end_spares()
        return {
            "ended": self._leftovers.end_processes(request["leftovers"]),
            "code": self._keepers.checkouts.remove_leftovers(
                request.get("code", []), self._leftovers.is_gone
            ),
        }

    def _job(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What the process of a scheduler's job knows of the job, whose folder is on this node."""
        try:
            return {"job": job_status(self.root, text(request, "job", most=20))}
        except OSError as error:
            raise Refused("job", str(error)) from None

    def _gpus(self, _: Dict[str, Any]) -> Dict[str, Any]:
        """The GPUs, as the command `gpus` shows them. Blocks for some samples."""
        try:
            reserved = tuple(read_policy(self._policy).reserved_from_us())
            needs = Requirements(reserved=reserved, allowed=Allocation.current(self._runtime).allowed)
            verdicts = judge_now(self._runtime, needs)
        except SmiError as error:
            raise Refused(error.code, error.cause) from None
        rows = [dict(verdict.to_json(), node=socket.gethostname()) for verdict in verdicts]
        leftovers, reader = self._leftovers.list_processes(), QueueReader(self._runtime)
        passed = PassedPlaces()
        passed.add(self._runtime.monotonic(), [], [row["uuid"] for row in rows], [])
        notebooks, queue = reader.own_notebooks(), passed.mark(reader.in_order())
        return {
            "gpus": [
                dict(
                    row,
                    leftovers=on_gpu(row, leftovers),
                    queue=queue_view.rows(queue, row["uuid"], notebooks),
                )
                for row in rows
            ]
        }

    def _offer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What this node offers to a kernel with these settings; `detached`: when the kernel was started that its
        notebook has left on this node. Raises Refused if there is no such folder (`cwd`) or revision (`code`)."""
        settings = settings_from(request)
        self._keepers.check_code(settings)
        started = self._keepers.newest_detached(settings, _attached_kernels(request))
        if started:
            return {"detached": started}
        try:
            settings = read_policy(self._policy).apply(settings)
        except PolicyError as error:
            return {"problem": str(error)}
        return read_offer(self._runtime, settings)

    def _history(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The GPUs that this user's kernels had in the last `seconds`, as the command `gpus --history` shows them."""
        seconds = number(request, "seconds", least=0, most=KEEP_DAYS * 86400)
        return read_history(self.root, self._keepers.states(), self._runtime.time(), seconds)


def _refuse_others(kernel_id: str, owner: Dict[str, Any], hub: Dict[str, Any]) -> None:
    """A hub that connects again must not take a kernel that another hub has taken over meanwhile."""
    if hub.get("owner") and owner.get("owner") and hub["owner"] != owner["owner"]:
        by = owner.get("by") or "another computer"
        raise Refused("taken", f"kernel {kernel_id} was taken over by {by}")


def _owner(request: Dict[str, Any]) -> Dict[str, Any]:
    return {key: request[key] for key in ["owner", "by"] if key in request}


def _attached_kernels(request: Dict[str, Any]) -> Optional[List[str]]:
    """The kernels that are attached to the hub; None if the hub does not say."""
    return texts(request, "attached_ids", MAX_KERNELS) if "attached_ids" in request else None


def _checked(kernel_id: Any) -> str:
    """The kernel's id, which becomes part of file names."""
    if not isinstance(kernel_id, str) or not is_kernel_id(kernel_id):
        raise Refused("gone", f"{str(kernel_id)[:100]!r} is not the id of a kernel")
    return kernel_id


def read_history(root: Root, states: Sequence[Dict[str, Any]], now: float, seconds: float) -> Dict[str, Any]:
    """Return the answer to the request `history`. states: the kernels that run, as `ps` shows them."""
    since = now - seconds
    running = {str(state["id"]): _usage(state) for state in states}
    found: List[Dict[str, Any]] = []
    for kernel_id in sorted({*root.kernels_with_story(since), *running}):
        story = read_story(root.story(kernel_id), MAX_STORY)
        kernel = hours.KernelHours.read(story, now, running.get(kernel_id))
        found += hours.rows(kernel_id, kernel, since, now)
    found.sort(key=lambda row: float(row["from"]))
    newest = hours.with_names(found)[-MAX_HOLDS:]
    node = socket.gethostname()
    return {"history": [dict(row, node=node) for row in newest], "left_out": len(found) - len(newest)}


def _usage(state: Dict[str, Any]) -> Dict[str, Any]:
    """Return what the status of a running kernel says of its GPUs; {} if its keeper does not reply."""
    if state["state"] in ("starting", "unresponsive"):
        return {}
    usage = state.get("usage")
    return {"gpus": state.get("gpus"), **(usage if isinstance(usage, dict) else {})}
