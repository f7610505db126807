"""What attach can be asked besides routing: open or create a kernel's keeper, list kernels, GPUs, stories.

Blocking, called on threads of attach; it keeps no state of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from .asking import ask_keeper
from .end import stale
from .end.boot import booted
from .end.processes import TAG, runs
from .gpus.claim import survey
from .gpus.judge import allowed_gpus
from .gpus.smi_csv import SmiError
from .places import Root, agent_command
from .policy import PATH, PolicyError, read_policy
from .story import read_story

KEEPER_START = 60.0
SUCCESSION = 20.0
"""Seconds for another keeper to take a killed one's place."""
STORY = 3 * 1024 * 1024
"""Bytes of a story in one answer: the wire's frames take 4 MiB."""


class Refused(Exception):
    """A request that cannot be served; `code` is one word for programs."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Office:
    """`answer({"do": …})` → a JSON object; `open` → a connected socket."""

    def __init__(self, root: Root, policy: Path = PATH) -> None:
        self.root = root
        self._policy = policy
        self._doings: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "list": self._list,
            "story": self._story,
            "stop": self._stop,
            "gpus": self._gpus,
            "journal": self._journal,
            "left": lambda request: {"kernel": self._left(request)},
            "leftovers": lambda _: {"leftovers": stale.leftovers(self.root)},
            "end_leftovers": lambda request: {"ended": stale.end_leftovers(self.root, request["leftovers"])},
        }

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The answer, or Refused."""
        doing = self._doings.get(str(request.get("do")))
        if doing is None:
            raise Refused("unknown", f"this agent knows no {request.get('do')!r}")
        return doing(request)

    def open(self, kernel_id: str, request: Dict[str, Any]) -> Tuple[str, socket.socket]:
        """The kernel's id and a socket to its keeper. Refused, also where somebody else has it by now.

        request: {"owner": whose hub asks, "by": its name} and, unless it only comes back, either "create": settings,
        to find or start a keeper (found is one that the same notebook left, with the same kernelspec: then the id is
        that one's), or "attach": {…}, to have a kernel whoever has it now. Perhaps "boot": the boot id when it was
        last seen, for a node that forgets at a reboot what was on it.
        """
        owner = _owner(request)
        create, attach = request.get("create"), request.get("attach")
        sock = self._connect(kernel_id) or self._successor(kernel_id)
        if sock is None:
            stale.clean(self.root, kernel_id)
        elif attach is not None:
            self._ask(kernel_id, dict(attach, do="return", **owner))
        else:
            self._refuse_others(kernel_id, sock, owner)
        if sock is None and create is not None:
            create = dict(create, **owner)
            left = self._left(create)
            if left:
                kernel_id, sock = left, self._connect(left)
            else:
                sock = self._create(dict(create, id=kernel_id))
        if sock is None:
            raise Refused("gone", self._last_words(kernel_id, str(request.get("boot", ""))))
        return kernel_id, sock

    # -------------------------------------------------------------------------------------- keepers

    def _refuse_others(self, kernel_id: str, sock: socket.socket, owner: Dict[str, Any]) -> None:
        """A hub that comes back must not take the kernel from the one that took it meanwhile."""
        has = self._ask(kernel_id, {"do": "owner"}) or {}
        if owner.get("owner") and has.get("owner") and owner["owner"] != has["owner"]:
            sock.close()
            raise Refused(
                "taken", f"kernel {kernel_id} was taken over by {has.get('by') or 'another computer'}"
            )

    def _left(self, create: Dict[str, Any]) -> str:
        """The id of a kernel that this notebook left, with the same kernelspec; told that somebody returns."""
        notebook, name = create.get("notebook"), create.get("name")
        if not notebook or not name or create.get("fresh"):
            return ""
        for kernel_id in self.root.kernels():
            state = self._ask(kernel_id, {"do": "status"}) or {}
            same = state.get("notebook") == notebook and state.get("name") == name
            left = same and not state.get("attached") and state.get("state") != "ended"
            if left and self._ask(kernel_id, dict(_owner(create), do="return", notebook=notebook)):
                return kernel_id
        return ""

    def _connect(self, kernel_id: str) -> Optional[socket.socket]:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(self.root.kernel(kernel_id) / "keeper"))
        except OSError:
            sock.close()
            return None
        return sock

    def _successor(self, kernel_id: str) -> Optional[socket.socket]:
        """A socket to the keeper that takes a killed one's place, if one does; as long as the kernel lives."""
        folder, deadline = self.root.kernel(kernel_id), time.monotonic() + SUCCESSION
        while runs(kernel_id, str(folder / "connection.json")) and time.monotonic() < deadline:
            sock = self._connect(kernel_id)
            if sock is not None or self._given_up(kernel_id):
                return sock
            time.sleep(0.05)
        return None

    def _given_up(self, kernel_id: str) -> bool:
        """Whether the kernel knows that no keeper will come."""
        return any(entry.get("event") == "orphan" for entry in read_story(self.root.story(kernel_id))[-2:])

    def _create(self, settings: Dict[str, Any]) -> Optional[socket.socket]:
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
                sock = self._connect(kernel_id)
                if sock is not None or time.monotonic() > deadline:
                    return sock
                time.sleep(0.05)
            if not (path.exists() and os.path.samestat(os.fstat(lock), path.stat())):
                return self._create(settings)  # it was a stale folder, which somebody cleaned away just now
            try:
                self._start_keeper(settings, lock)
            except BaseException:
                shutil.rmtree(str(path.parent), ignore_errors=True)
                raise
        finally:
            os.close(lock)
        return self._connect(kernel_id)

    def _start_keeper(self, settings: Dict[str, Any], lock: int) -> None:
        """Runs `serve`, which leaves us once its door is open: its end is our signal, its stderr our text."""
        path = self.root.make_kernel(str(settings["id"])) / "settings"
        fd = os.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "w") as file:
            json.dump(settings, file)
        command = self._with_setup(settings, [*_agent(settings), "serve", str(settings["id"])])
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                cwd=self._cwd(settings), timeout=KEEPER_START, pass_fds=[lock], env=_environment(),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Refused("keeper", f"the keeper cannot be started: {error}") from None
        if done.returncode != 0:
            text = done.stderr.decode("utf-8", "replace").strip()
            raise Refused("keeper", text[-2000:] or f"the keeper ended with status {done.returncode}")

    def _with_setup(self, settings: Dict[str, Any], command: List[str]) -> List[str]:
        """The user's shell lines (`module load cuda`) run before, in a login shell; the command travels
        as arguments."""
        lines = [str(line) for line in settings.get("setup", [])]
        if not lines:
            return command
        return ["bash", "-lc", "\n".join([*lines, 'exec "$@"']), "bash", *command]

    def _cwd(self, settings: Dict[str, Any]) -> str:
        cwd = os.path.expanduser(str(settings.get("cwd") or "~"))
        if not os.path.isdir(cwd):
            if settings.get("cwd"):
                raise Refused("cwd", f"there is no folder {cwd} on this node")
            return "/"
        return cwd

    def _ask(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """What the keeper answers; None if there is none."""
        return ask_keeper(str(self.root.kernel(kernel_id) / "keeper"), request)

    def _last_words(self, kernel_id: str, boot: str = "") -> str:
        """What became of a kernel without a keeper. `boot`: the boot id of its time, as far as who asks knows it."""
        story = read_story(self.root.story(kernel_id))
        last = story[-1] if story else stale.end_without_story(boot)
        if not last:
            return f"there is no kernel {kernel_id} on this node"
        if self.root.kernel(kernel_id).is_dir():  # not stale: something of the kernel still runs
            return f"the keeper of kernel {kernel_id} was killed; the kernel ends after its running cell"
        if last.get("cause"):
            evidence = f" ({last['evidence']})" if last.get("evidence") else ""
            return f"kernel {kernel_id} has ended: {last['cause']}{evidence}"
        when = time.strftime("%H:%M:%S", time.localtime(last.get("time", 0)))
        return f"kernel {kernel_id} is gone; last heard at {when}: {last.get('text', '')}"

    # -------------------------------------------------------------------------------------- answers

    def _list(self, _: Dict[str, Any]) -> Dict[str, Any]:
        kernels = [kernel_id for kernel_id in self.root.kernels() if not stale.clean(self.root, kernel_id)]
        states = [self._ask(kernel_id, {"do": "status"}) for kernel_id in kernels]
        return {"kernels": [state for state in states if state is not None]}

    def _story(self, request: Dict[str, Any]) -> Dict[str, Any]:
        stale.clean(self.root, str(request["kernel"]))
        path = self.root.story(str(request["kernel"]))
        if not path.exists():
            when = booted() or "who knows when"
            raise Refused("gone", f"no story of a kernel {request['kernel']} on this node, booted {when}")
        return {"story": read_story(path, STORY)}

    def _stop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Stops, and waits until its folder is gone: then no process, socket or lease of it is left."""
        kernel_id = str(request["kernel"])
        stop = {"do": "stop", "why": request.get("why", "asked to")}
        answer = self._ask(kernel_id, stop)
        if answer is None:
            sock = self._successor(kernel_id)
            if sock is not None:
                sock.close()
                answer = self._ask(kernel_id, stop)
        if answer is None:
            raise Refused("gone", self._last_words(kernel_id))
        deadline = time.monotonic() + 20
        while self.root.kernel(kernel_id).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return {"ok": not self.root.kernel(kernel_id).exists()}

    def _journal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What the kernel's last cells showed; see the keeper's own."""
        kernel_id = str(request["kernel"])
        answer = self._ask(kernel_id, dict(request, do="journal"))
        if answer is None:
            raise Refused("gone", self._last_words(kernel_id))
        return answer

    def _gpus(self, _: Dict[str, Any]) -> Dict[str, Any]:
        """{"gpus": [as the `gpus` verb shows them]}, or Refused. Blocks for some samples."""
        try:
            verdicts = survey(allowed_gpus(os.environ))
        except SmiError as error:
            raise Refused(error.code, str(error)) from None
        rows = [dict(verdict.to_json(), node=socket.gethostname()) for verdict in verdicts]
        left = stale.leftovers(self.root)
        return {"gpus": [dict(row, leftovers=stale.on_gpu(row, left)) for row in rows]}


def _owner(request: Dict[str, Any]) -> Dict[str, Any]:
    return {key: request[key] for key in ["owner", "by"] if key in request}


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _environment() -> Dict[str, str]:
    """Ours; but a keeper never belongs to a kernel, even where somebody runs all this inside of one."""
    return {name: value for name, value in os.environ.items() if name != TAG}


def _agent(settings: Dict[str, Any]) -> List[str]:
    return agent_command(str(settings.get("python") or sys.executable))
