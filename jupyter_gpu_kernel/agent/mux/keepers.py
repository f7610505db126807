"""Finds, asks and starts the keepers of this user on this node.

A keeper that does not reply in time (a stopped process, a node that swaps) still exists: nothing is started or removed
in its place. All calls block; there is no state.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...wire import PROTOCOL
from ...wire.files import private
from ..exit.descendants import SETUP, TAG, hidden_keeper
from ..exit.leftovers import Leftovers, has_keeper, is_being_served
from ..job.client import JobChild, job_is_over, why_no_process
from ..keeper.client import LOG_TAIL, KeeperTimeout, StartError, ask_keeper, start_keeper
from ..keeper.setup import TIMEOUT as SETUP_TIMEOUT
from ..kernel_settings import KernelSettings
from ..paths import Root, agent_command, is_job_id, lock_now, read_tail
from ..pinned_code.checkout import Checkouts
from ..policy import read_policy
from ..refused import Refused
from ..story import read_story
from ..system.agent_runtime import NO_LISTENER, AgentRuntime, ChildProcess, Streams

START_TIMEOUT = SETUP_TIMEOUT + 10.0
SUCCESSOR_TIMEOUT = 25.0
"""Seconds that one request waits for the successor of a killed keeper. A hub sends ten; by then the kernel gives up."""
CONNECT_TIMEOUT = 20.0
"""Seconds that a busy keeper has to accept a connection."""
_POLL_INTERVAL = 0.05
_THREADS = 16


class Keepers:
    """The keepers whose folders are in `root`, and what kernels that are gone have left there.

    timeout: Seconds that a keeper has to reply.
    successor_timeout: Seconds that the successor of a killed keeper has to start.
    """

    def __init__(
        self, runtime: AgentRuntime, root: Root, policy: Path, timeout: float, successor_timeout: float
    ) -> None:
        self.root = root
        self.leftovers = Leftovers(runtime, root)
        self.checkouts = Checkouts(runtime, root)
        self._runtime = runtime
        self._policy = policy
        self._timeout = timeout
        self._successor_timeout = successor_timeout

    # -------------------------------------------------------------------------------------- ask

    def ask(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Return the reply of the keeper, or of the successor of a killed one; None if there is none. KeeperTimeout if
        it does not reply in time."""
        reply = self._ask_now(kernel_id, request)
        if reply is None and self._await_successor(kernel_id):
            reply = self._ask_now(kernel_id, request)
        return reply

    def _ask_now(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        return ask_keeper(self._socket_path(kernel_id), request, self._timeout)

    def request(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """Return what `ask` returns. Raise Refused if the keeper does not reply in time."""
        try:
            return self.ask(kernel_id, request)
        except KeeperTimeout:
            raise self.unresponsive(kernel_id) from None

    def states(self) -> List[Dict[str, Any]]:
        """The status of each kernel that has a keeper; from the kernel's story if the keeper does not reply."""
        kernels = [
            kernel_id for kernel_id in self.root.kernels() if not self.leftovers.remove_stale(kernel_id)
        ]
        with ThreadPoolExecutor(_THREADS) as pool:
            states = list(pool.map(self._state, kernels))
        return [state for state in states if state is not None]

    def _state(self, kernel_id: str) -> Optional[Dict[str, Any]]:
        try:
            state = self._ask_now(kernel_id, {"do": "status"})
        except KeeperTimeout:
            return self._status_from_story(kernel_id, "unresponsive")
        if state is not None or self._has_ended(kernel_id):
            return state
        starts = is_being_served(self.root.kernel(kernel_id)) or self._is_being_replaced(kernel_id)
        return self._status_from_story(kernel_id, "starting") if starts else None

    def _has_ended(self, kernel_id: str) -> bool:
        """Whether the story tells the kernel's end: its keeper closes its socket before it unlocks the folder."""
        events = (entry.get("event") for entry in reversed(read_story(self.root.story(kernel_id))))
        return next((event for event in events if event in ("start", "end")), "") == "end"

    def _status_from_story(self, kernel_id: str, state: str) -> Dict[str, Any]:
        """The status of a kernel whose keeper does not reply, as far as its story shows it."""
        known: Dict[str, Any] = {"name": "", "notebook": "", "pid": 0, "since": self._runtime.time()}
        for entry in read_story(self.root.story(kernel_id)):
            known.update((key, entry[key]) for key in ("name", "notebook", "pid") if key in entry)
            known["since"] = entry.get("time", known["since"])
        return dict(
            known, id=kernel_id, node=socket.gethostname(), state=state, gpus=[], attached=False, boot=""
        )

    # -------------------------------------------------------------------------------------- find

    def connect(self, kernel_id: str) -> Optional[socket.socket]:
        """Return a socket to the keeper, or to the successor of a killed one; None if there is none."""
        sock = self._connect_now(kernel_id)
        if sock is None and self._await_successor(kernel_id):
            sock = self._connect_now(kernel_id)
        return sock

    def _connect_now(self, kernel_id: str) -> Optional[socket.socket]:
        """Return a socket to the keeper; None if there is no keeper. Waits for one that is too busy to accept it."""
        deadline = self._runtime.monotonic() + CONNECT_TIMEOUT
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            error = sock.connect_ex(self._socket_path(kernel_id))
            if error == 0:
                sock.setblocking(True)
                return sock
            sock.close()
            if error in NO_LISTENER:
                return None
            if self._runtime.monotonic() > deadline:
                raise self.unresponsive(kernel_id)
            self._runtime.sleep(_POLL_INTERVAL)

    def _await_successor(self, kernel_id: str) -> bool:
        """Wait for the successor of a killed keeper; return whether there is one. Raises Refused if that takes too
        long."""
        folder = self.root.kernel(kernel_id)
        if not self._runtime.wait_until(
            lambda: has_keeper(folder) or not self._is_being_replaced(kernel_id), self._successor_timeout
        ):
            raise Refused(
                "unresponsive",
                f"the keeper of kernel {kernel_id} was killed, and no other one has taken over yet",
            )
        return has_keeper(folder)

    def _is_being_replaced(self, kernel_id: str) -> bool:
        """Whether the kernel runs and may start another keeper, if it has none."""
        runs = self.leftovers.kernel_runs(kernel_id)
        return runs and not (self._gave_up(kernel_id) or hidden_keeper(kernel_id))

    def take_detached(self, settings: KernelSettings, attached: Optional[List[str]]) -> str:
        """Give the newest kernel that the same notebook with the same kernelspec has left to the settings' owner.

        Returns its id; "" if there is none. Its keeper learns that a front end returns, and which other kernels the
        notebook has left. `attached`: the kernels that are attached to this owner's hub, None if that is unknown.
        """
        ids = [str(one["id"]) for one in self._find_detached(settings.replace(id=""), attached)]
        for kernel_id in ids:
            others = [other for other in ids if other != kernel_id]
            request = dict(_owner(settings), do="return", notebook=settings.notebook, others=others)
            if self.request(kernel_id, request):
                return kernel_id
        return ""

    def _find_detached(self, settings: KernelSettings, attached: Optional[List[str]]) -> List[Dict[str, Any]]:
        """The states of the kernels that have this id, or that this notebook with this kernelspec has left, the newest
        first.

        Raises Refused if the keeper of such a kernel does not reply: a second kernel would not have the variables.
        """
        notebook = settings.notebook, settings.name
        is_named = all(notebook) and not settings.fresh
        if not (is_named or settings.id):
            return []
        kernels = [one for one in self.states() if not one.get("reservation")]
        same = [
            one
            for one in kernels
            if one["id"] == settings.id or (is_named and (one.get("notebook"), one.get("name")) == notebook)
        ]
        same = [one for one in same if _may_be_in(settings.job, one)]
        for state in same:
            if state["state"] == "unresponsive":
                raise self.unresponsive(str(state["id"]))
        detached = [one for one in same if self._is_detached(one, settings.owner, attached)]
        detached.sort(key=lambda one: float(one.get("started", 0)), reverse=True)
        return detached

    def newest_detached(self, settings: KernelSettings, attached: Optional[List[str]]) -> float:
        """Return when the kernel was started that has the settings' id, or that `take_detached` would give; 0 if there
        is none."""
        detached = self._find_detached(settings, attached)
        return float(detached[0].get("started") or 1) if detached else 0.0

    def _is_detached(self, state: Dict[str, Any], owner: str, attached: Optional[List[str]]) -> bool:
        """Whether this kernel can be attached to, and no front end is.

        A dead connection counts as attached for a minute. It is known to be dead if it belongs to the hub that asks,
        and this hub no longer has the kernel.
        """
        if state["state"] == "ended" or protocol_of(state) != PROTOCOL:
            return False
        if not state.get("attached"):
            return True
        if not owner or attached is None or state["id"] in attached:
            return False
        reply = self.request(str(state["id"]), {"do": "owner"}) or {}
        return bool(reply.get("owner") == owner)

    def unresponsive(self, kernel_id: str) -> Refused:
        """The error for a keeper that does not reply."""
        pids = [entry["keeper"] for entry in read_story(self.root.story(kernel_id)) if entry.get("keeper")]
        process = f" (process {pids[-1]})" if pids else ""
        return Refused(
            "unresponsive",
            f"the keeper of kernel {kernel_id}{process} runs, but does not answer: it is stopped, or the node is "
            "overloaded",
        )

    def _socket_path(self, kernel_id: str) -> str:
        return str(self.root.kernel(kernel_id) / "keeper")

    def _gave_up(self, kernel_id: str) -> bool:
        """Whether the kernel has reported that it cannot start a successor."""
        return any(entry.get("event") == "orphan" for entry in read_story(self.root.story(kernel_id))[-2:])

    # -------------------------------------------------------------------------------------- start

    def check_code(self, settings: KernelSettings) -> None:
        """Raise Refused if the folder (`cwd`) does not exist, or has no such revision (`code`)."""
        cwd = _cwd(settings)
        if settings.code:
            self.checkouts.find(cwd, settings.code)

    def create(self, settings: KernelSettings) -> Optional[socket.socket]:
        """Start the keeper; return a socket to it. If an `attach` whose link broke is starting the keeper already, wait
        for its start. The folder's lock passes to the keeper, which holds it as long as it lives. Raises Refused if the
        keeper cannot be started.
        """
        read_policy(self._policy).apply(settings)
        path = self.root.make_kernel(settings.id) / "lock"
        try:
            lock = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:  # another `attach` has removed the empty folder for a stale one
            return self.create(settings)
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, lock)
            deadline = self._runtime.monotonic() + START_TIMEOUT
            while not lock_now(lock):
                sock = self._connect_now(settings.id)
                if sock is not None or self._runtime.monotonic() > deadline:
                    return sock
                self._runtime.sleep(_POLL_INTERVAL)
            if not (path.exists() and os.path.samestat(os.fstat(lock), path.stat())):
                return self.create(settings)  # a stale folder, which was removed just now
            try:
                self._start(settings, lock)
            except Refused:
                stack.close()
                self.leftovers.remove_unused(settings.id)
                raise
        return self._connect_now(settings.id)

    def _start(self, settings: KernelSettings, lock: int) -> None:
        """Run `serve`, or `setup` if there are set-up lines, which runs `serve`. Raises Refused if it fails."""
        folder, job, cwd = self.root.kernel(settings.id), settings.job, _cwd(settings)
        sets_up = settings.setup and not job  # a job's batch script has run the set-up lines
        verb, python = ("setup", sys.executable) if sets_up else ("serve", settings.python)
        if job:
            self._check_job(job)

        def launch() -> ChildProcess:
            if job:
                return JobChild(self.root, job, folder.name, python, cwd)
            command = [*agent_command(python), verb, folder.name]
            with open(str(folder / "log"), "ab", opener=private) as log:
                return self._runtime.start(command, Streams(log), cwd=cwd, env=_environment())

        pin = self.checkouts.make(settings.id, cwd, settings.code) if settings.code else None
        settings = settings.replace(pin={} if pin is None else pin._asdict())  # the hub does not choose it
        try:
            start_keeper(self._runtime, folder, launch, settings, lock, START_TIMEOUT)
        except StartError as error:
            if pin is not None:
                self.checkouts.remove(pin)
            if verb == "setup":
                raise Refused("setup", str(error)) from None
            printed = "" if error.status is None else read_tail(folder / "log", LOG_TAIL)
            raise Refused("keeper", printed or str(error)) from None

    def _check_job(self, job: str) -> None:
        """Raise Refused if the job's process does not run here."""
        if not is_job_id(job) or job_is_over(self.root.job(job)):
            raise Refused("job", why_no_process(job))


def protocol_of(reply: Dict[str, Any]) -> int:
    """The protocol that a keeper speaks, from its reply: keepers of protocol 1 did not send it."""
    protocol = reply.get("protocol", 1)
    return protocol if isinstance(protocol, int) else 0


def _owner(settings: KernelSettings) -> Dict[str, str]:
    return {key: value for key, value in (("owner", settings.owner), ("by", settings.by)) if value}


def _may_be_in(job: str, state: Dict[str, Any]) -> bool:
    """Whether a kernel with this state can be used in this job. One in another job may be about to end with that job.
    "": without a job."""
    other = (state.get("job") or {}).get("id", "")
    return other == job or not (other and job)


def _cwd(settings: KernelSettings) -> str:
    cwd = os.path.expanduser(settings.cwd or "~")
    if not os.path.isdir(cwd):
        if settings.cwd:
            raise Refused("cwd", f"there is no folder {cwd} on this node")
        return "/"
    return cwd


def _environment() -> Dict[str, str]:
    """Our environment, without the marks of a kernel: `attach` may run inside one, but a keeper never belongs to it."""
    return {name: value for name, value in os.environ.items() if name not in (TAG, SETUP)}
