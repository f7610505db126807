"""The keepers of this user on this node, as attach meets them: found, asked, started.

A keeper that does not answer in time (a stopped process, a node that swaps) is there all the same: nothing is started
or removed in its place. Blocking; it keeps no state of its own.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...wire import PROTOCOL
from ..exit import leftovers
from ..exit.processes import SETUP, TAG, runs
from ..keeper.client import NO_KEEPER, TIMEOUT, KeeperTimeout, ask_keeper
from ..keeper.handover import StartError, hand_over, printed
from ..keeper.setup import WITHIN
from ..paths import Root, agent_command
from ..policy import PolicyError, read_policy
from ..story import read_story

KEEPER_START = WITHIN + 10.0
SUCCESSION = 20.0
"""Seconds for another keeper to take a killed one's place."""
BUSY = 20.0
"""Seconds in which a keeper accepts a connection."""
_AT_ONCE = 16


class Refused(Exception):
    """A request that cannot be served; `code` is one word for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Keepers:
    """Those whose folders lie in `root`. `patience`: seconds in which they have to answer."""

    def __init__(self, root: Root, policy: Path, patience: float = TIMEOUT) -> None:
        self.root = root
        self._policy = policy
        self._patience = patience

    # -------------------------------------------------------------------------------------- asked

    def ask(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """What the keeper answers; None if there is none. KeeperTimeout."""
        return ask_keeper(self._door(kernel_id), request, self._patience)

    def answer(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """`ask`; Refused where the keeper does not answer."""
        try:
            return self.ask(kernel_id, request)
        except KeeperTimeout:
            raise self.silent(kernel_id) from None

    def states(self) -> List[Dict[str, Any]]:
        """The status of each kernel that has a keeper; of one whose keeper does not answer what its story says."""
        kernels = [
            kernel_id for kernel_id in self.root.kernels() if not leftovers.clean(self.root, kernel_id)
        ]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            states = list(pool.map(self._state, kernels))
        return [state for state in states if state is not None]

    def _state(self, kernel_id: str) -> Optional[Dict[str, Any]]:
        try:
            state = self.ask(kernel_id, {"do": "status"})
        except KeeperTimeout:
            return self._silent(kernel_id, "unresponsive")
        if state is None and leftovers.locked(self.root.kernel(kernel_id)):
            return self._silent(kernel_id, "starting")
        return state

    def _silent(self, kernel_id: str, state: str) -> Dict[str, Any]:
        """The status of a kernel whose keeper does not tell it, as far as its story does."""
        known: Dict[str, Any] = {"name": "", "notebook": "", "pid": 0, "since": time.time()}
        for entry in read_story(self.root.story(kernel_id)):
            known.update((key, entry[key]) for key in ("name", "notebook", "pid") if key in entry)
            known["since"] = entry.get("time", known["since"])
        return dict(
            known, id=kernel_id, node=socket.gethostname(), state=state, gpus=[], attached=False, boot=""
        )

    # -------------------------------------------------------------------------------------- found

    def connect(self, kernel_id: str) -> Optional[socket.socket]:
        """A socket to the keeper; None if there is none. Waits a while for one that is too busy to accept it."""
        deadline = time.monotonic() + BUSY
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            error = sock.connect_ex(self._door(kernel_id))
            if error == 0:
                sock.setblocking(True)
                return sock
            sock.close()
            if error in NO_KEEPER:
                return None
            if time.monotonic() > deadline:
                raise self.silent(kernel_id)
            time.sleep(0.05)

    def successor(self, kernel_id: str) -> Optional[socket.socket]:
        """A socket to the keeper that takes a killed one's place, if one does; as long as the kernel lives."""
        folder, deadline = self.root.kernel(kernel_id), time.monotonic() + SUCCESSION
        while runs(kernel_id, str(folder / "connection.json")) and time.monotonic() < deadline:
            sock = self.connect(kernel_id)
            if sock is not None or self._given_up(kernel_id):
                return sock
            time.sleep(0.05)
        return None

    def left_by(self, create: Dict[str, Any], owner: Dict[str, Any], here: Optional[List[str]]) -> str:
        """The id of the newest kernel that this notebook left, with the same kernelspec. It is told that somebody
        returns, and which other kernels the notebook has left. `here`: the kernels that this owner's hub has attached,
        None if that is not known.

        Refused where the keeper of such a kernel does not answer: a second kernel would not have the variables.
        """
        notebook, name = create.get("notebook"), create.get("name")
        if not notebook or not name or create.get("fresh"):
            return ""
        same = [one for one in self.states() if (one.get("notebook"), one.get("name")) == (notebook, name)]
        for state in same:
            if state["state"] == "unresponsive":
                raise self.silent(str(state["id"]))
        left = [one for one in same if self._is_left(one, owner, here)]
        left.sort(key=lambda one: float(one.get("started", 0)), reverse=True)
        ids = [str(one["id"]) for one in left]
        for kernel_id in ids:
            others = [other for other in ids if other != kernel_id]
            if self.answer(kernel_id, dict(owner, do="return", notebook=notebook, others=others)):
                return kernel_id
        return ""

    def _is_left(self, state: Dict[str, Any], owner: Dict[str, Any], here: Optional[List[str]]) -> bool:
        """Whether this kernel can be had, and no front end has it.

        A dead connection counts as one for a minute. That it is dead is known if it belongs to the hub that asks, and
        this hub does not have the kernel any more.
        """
        if state["state"] == "ended" or protocol_of(state) != PROTOCOL:
            return False
        if not state.get("attached"):
            return True
        if not owner.get("owner") or here is None or state["id"] in here:
            return False
        has = self.answer(str(state["id"]), {"do": "owner"}) or {}
        return bool(has.get("owner") == owner["owner"])

    def silent(self, kernel_id: str) -> Refused:
        """The refusal where a keeper does not answer."""
        told = [entry["keeper"] for entry in read_story(self.root.story(kernel_id)) if entry.get("keeper")]
        process = f" (process {told[-1]})" if told else ""
        return Refused(
            "unresponsive",
            f"the keeper of kernel {kernel_id}{process} is there, but does not answer: it is stopped, or the node is "
            "overloaded",
        )

    def _door(self, kernel_id: str) -> str:
        return str(self.root.kernel(kernel_id) / "keeper")

    def _given_up(self, kernel_id: str) -> bool:
        """Whether the kernel knows that no keeper will come."""
        return any(entry.get("event") == "orphan" for entry in read_story(self.root.story(kernel_id))[-2:])

    # -------------------------------------------------------------------------------------- started

    def create(self, settings: Dict[str, Any]) -> Optional[socket.socket]:
        """Starts the keeper, unless it is being started already: by an attach whose link broke meanwhile.

        The lock goes over to the keeper, which has it as long as it lives.
        """
        try:
            read_policy(self._policy).apply(settings)
        except PolicyError as error:
            raise Refused("policy", str(error)) from None
        kernel_id = str(settings["id"])
        path = self.root.make_kernel(kernel_id) / "lock"
        lock = os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            deadline = time.monotonic() + KEEPER_START
            while not _locked(lock):
                sock = self.connect(kernel_id)
                if sock is not None or time.monotonic() > deadline:
                    return sock
                time.sleep(0.05)
            if not (path.exists() and os.path.samestat(os.fstat(lock), path.stat())):
                return self.create(settings)  # it was a stale folder, which somebody cleaned away just now
            self._start(settings, lock)
        except Refused:
            os.close(lock)
            lock = -1
            leftovers.remove_unused(self.root, kernel_id)
            raise
        finally:
            if lock >= 0:
                os.close(lock)
        return self.connect(kernel_id)

    def _start(self, settings: Dict[str, Any], lock: int) -> None:
        """Runs `serve`, behind the user's set-up lines if there are any: then `setup`. Refused if it does not begin."""
        folder = self.root.kernel(str(settings["id"]))
        settings = dict(settings, python=str(settings.get("python") or sys.executable))
        verb, python = ("setup", sys.executable) if settings.get("setup") else ("serve", settings["python"])
        cwd = _cwd(settings)

        def launch() -> subprocess.Popen[bytes]:
            with open(
                os.open(str(folder / "log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab"
            ) as log:
                return subprocess.Popen(
                    [*agent_command(python), verb, folder.name],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=cwd, env=_environment(),
                    start_new_session=True,
                )  # fmt: skip

        try:
            hand_over(folder, launch, settings, lock, KEEPER_START)
        except StartError as error:
            if verb == "setup":
                raise Refused("setup", str(error)) from None
            raise Refused("keeper", printed(folder / "log") or str(error)) from None


def protocol_of(said: Dict[str, Any]) -> int:
    """The protocol that a keeper speaks, from its answer: the first ones did not tell."""
    protocol = said.get("protocol", 1)
    return protocol if isinstance(protocol, int) else 0


def _cwd(settings: Dict[str, Any]) -> str:
    cwd = os.path.expanduser(str(settings.get("cwd") or "~"))
    if not os.path.isdir(cwd):
        if settings.get("cwd"):
            raise Refused("cwd", f"there is no folder {cwd} on this node")
        return "/"
    return cwd


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _environment() -> Dict[str, str]:
    """Ours; but a keeper never belongs to a kernel, even where somebody runs all this inside of one."""
    return {name: value for name, value in os.environ.items() if name not in (TAG, SETUP)}
