"""What attach can be asked besides routing: open or create a kernel's keeper, list kernels, GPUs, stories.

Blocking, called on threads of attach; it keeps no state of its own.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

from ...wire import PROTOCOL
from ..exit import leftovers
from ..gpus.claim import survey
from ..gpus.judge import allowed_gpus
from ..gpus.nvidia_smi_csv import SmiError
from ..keeper.client import TIMEOUT, KeeperTimeout
from ..paths import Root, is_kernel_id
from ..policy import PATH
from ..procfs import booted_at
from ..story import read_story
from .keepers import Keepers, Refused, protocol_of

STORY = 3 * 1024 * 1024
"""Bytes of a story in one answer: the wire's frames take 4 MiB."""


class RequestHandlers:
    """`answer({"do": …})` → a JSON object; `open` → a connected socket."""

    def __init__(self, root: Root, policy: Path = PATH, patience: float = TIMEOUT) -> None:
        self.root = root
        self._keepers = Keepers(root, policy, patience)
        self._doings: Dict[str, Callable[[Dict[str, Any]], Dict[str, Any]]] = {
            "list": self._list,
            "story": self._story,
            "stop": self._stop,
            "pause": self._passed_on,
            "resume": self._passed_on,
            "gpus": self._gpus,
            "journal": self._journal,
            "left": lambda request: {
                "kernel": self._keepers.left_by(request, _owner(request), _here(request))
            },
            "leftovers": lambda _: {"leftovers": leftovers.leftovers(self.root)},
            "end_leftovers": lambda request: {
                "ended": leftovers.end_leftovers(self.root, request["leftovers"])
            },
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
        kernel_id, owner = _checked(kernel_id), _owner(request)
        create, attach = request.get("create"), request.get("attach")
        sock = self._keepers.connect(kernel_id) or self._keepers.successor(kernel_id)
        if sock is None:
            leftovers.clean(self.root, kernel_id)
        else:
            with _closed_at_error(sock):
                has = self._owner_of(kernel_id)
                if attach is not None:
                    self._ask(kernel_id, dict(attach, do="return", **owner))
                else:
                    _refuse_others(kernel_id, has, owner)
        if sock is None and create is not None:
            create = dict(create, **owner)
            left = self._keepers.left_by(create, owner, _here(request))
            if left:
                kernel_id, sock = left, self._keepers.connect(left)
            else:
                sock = self._keepers.create(dict(create, id=kernel_id))
        if sock is None:
            raise Refused("gone", self._last_words(kernel_id, str(request.get("boot", ""))))
        return kernel_id, sock

    def _owner_of(self, kernel_id: str) -> Dict[str, Any]:
        """What the keeper says about who has its kernel; {} if nothing. Refused if it speaks another protocol."""
        has: Dict[str, Any] = {}
        with contextlib.suppress(KeeperTimeout):  # then it is told when the keeper answers again
            has = self._keepers.ask(kernel_id, {"do": "owner"}) or {}
        if has and protocol_of(has) != PROTOCOL:
            raise Refused(
                "protocol",
                f"kernel {kernel_id} was started by another version of jupyter-gpu-kernel, which speaks protocol "
                f"{protocol_of(has)}; this version speaks {PROTOCOL}. Use that version for it, or stop the kernel",
            )
        return has

    def _ask(self, kernel_id: str, request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        """What the keeper answers; None if there is none. Refused where it does not answer in time."""
        return self._keepers.answer(kernel_id, request)

    def _last_words(self, kernel_id: str, boot: str = "") -> str:
        """What became of a kernel without a keeper. `boot`: the boot id of its time, as far as who asks knows it."""
        story = read_story(self.root.story(kernel_id))
        last = story[-1] if story else leftovers.end_without_story(boot)
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
        return {"kernels": self._keepers.states()}

    def _story(self, request: Dict[str, Any]) -> Dict[str, Any]:
        kernel_id = _checked(request["kernel"])
        leftovers.clean(self.root, kernel_id)
        path = self.root.story(kernel_id)
        if not path.exists():
            when = booted_at() or "who knows when"
            raise Refused("gone", f"no story of a kernel {kernel_id} on this node, booted {when}")
        return {"story": read_story(path, STORY)}

    def _stop(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Stops, and waits until its folder is gone: then no process, socket or lease of it is left."""
        kernel_id = _checked(request["kernel"])
        more = {key: request[key] for key in ["replaced_by"] if key in request}
        stop = {"do": "stop", "why": request.get("why", "asked to"), **more}
        answer = self._told_to_stop(kernel_id, stop)
        if answer is None:
            sock = self._keepers.successor(kernel_id)
            if sock is not None:
                sock.close()
                answer = self._told_to_stop(kernel_id, stop)
        if answer is None:
            raise Refused("gone", self._last_words(kernel_id))
        deadline = time.monotonic() + 20
        while self.root.kernel(kernel_id).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return {"ok": not self.root.kernel(kernel_id).exists()}

    def _told_to_stop(self, kernel_id: str, stop: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        try:
            return self._keepers.ask(kernel_id, stop)
        except KeeperTimeout:  # but it has the request
            refused = self._keepers.silent(kernel_id)
            raise Refused(refused.code, f"{refused}; it will stop when it answers again") from None

    def _passed_on(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """The keeper's own answer."""
        kernel_id = _checked(request["kernel"])
        answer = self._ask(kernel_id, request)
        if answer is None:
            raise Refused("gone", self._last_words(kernel_id))
        return answer

    def _journal(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """What the kernel's last cells showed; see the keeper's own."""
        return self._passed_on(dict(request, do="journal"))

    def _gpus(self, _: Dict[str, Any]) -> Dict[str, Any]:
        """{"gpus": [as the `gpus` verb shows them]}, or Refused. Blocks for some samples."""
        try:
            verdicts = survey(allowed_gpus(os.environ))
        except SmiError as error:
            raise Refused(error.code, error.cause) from None
        rows = [dict(verdict.to_json(), node=socket.gethostname()) for verdict in verdicts]
        left = leftovers.leftovers(self.root)
        return {"gpus": [dict(row, leftovers=leftovers.on_gpu(row, left)) for row in rows]}


def _refuse_others(kernel_id: str, has: Dict[str, Any], owner: Dict[str, Any]) -> None:
    """A hub that comes back must not take the kernel from the one that took it meanwhile."""
    if owner.get("owner") and has.get("owner") and owner["owner"] != has["owner"]:
        by = has.get("by") or "another computer"
        raise Refused("taken", f"kernel {kernel_id} was taken over by {by}")


def _owner(request: Dict[str, Any]) -> Dict[str, Any]:
    return {key: request[key] for key in ["owner", "by"] if key in request}


def _here(request: Dict[str, Any]) -> Optional[List[str]]:
    """The kernels that the hub which asks has attached, if it says so."""
    here = request.get("here")
    return list(map(str, here)) if isinstance(here, list) else None


def _checked(kernel_id: Any) -> str:
    """The id of a kernel, which is to name files here."""
    if not isinstance(kernel_id, str) or not is_kernel_id(kernel_id):
        raise Refused("gone", f"{str(kernel_id)[:100]!r} is not the id of a kernel")
    return kernel_id


@contextlib.contextmanager
def _closed_at_error(sock: socket.socket) -> Iterator[None]:
    try:
        yield
    except BaseException:
        sock.close()
        raise
