"""A front end of `soak_cluster.py`, by jupyter_client: runs cells in one kernel, and checks what each of them brings.

It prints JSON objects, one a line: {"cell"}, {"fault"}, {"wrong"}, {"excused"}, {"ended"} (its kernel, as a fault does
it), {"notice"}, {"kernel"}. An audit asks the kernel which cells it has run: each once. Excused is what the
documentation says of a killed hub: a request that was being sent, an answer to input(), one message that comes twice.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_core.paths import jupyter_data_dir
from soak_cells import BEGIN, Request

PROGRAM = [sys.executable, "-m", "jupyter_gpu_kernel.cli"]
PATIENCE = 300.0
"""Seconds without any message after which a request hangs: longer than the longest faults, one after the other."""
SOON, LOST = 45.0, 120.0
"""Seconds of silence after which the end of the kernel, and a killed hub, may be the cause."""
ENDING = 400.0
"""Seconds after a fault that ends kernels in which one may be found ended."""
TRIES = 20
"""So often a user tries to restart a kernel whose node is out of reach."""
REMEMBERED = 50_000
"""Messages whose repetition is recognised."""


def say(**what: Any) -> None:
    """One line for soak_cluster.py."""
    print(json.dumps({"time": time.time(), **what}), flush=True)


class FrontEnd:
    """A front end, its kernel, and the requests that have not ended."""

    def __init__(self, spec: str, way: str) -> None:
        self.spec = spec
        specs = KernelSpecManager(kernel_dirs=[str(Path(jupyter_data_dir()) / "kernels")])
        self._manager = KernelManager(kernel_name=spec, kernel_spec_manager=specs)
        if way == "provisioner":
            self._manager.kernel_spec.metadata["kernel_provisioner"] = {"provisioner_name": "remote-gpu"}
        self._manager.start_kernel()
        self._client: Any = BlockingKernelClient(parent=self._manager)
        self._client.load_connection_info(self._manager.get_connection_info())
        self._client.session.digest_history_size = 0  # nothing is passed over because it was seen before
        self._client.start_channels()
        self._client.wait_for_ready(timeout=PATIENCE)
        self.kernel_id = ""
        self.number = 1
        """That of the next cell."""
        self.repeated = 0
        self._open: dict[str, Request] = {}
        self._closed: dict[str, str] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._ran: list[Request] = []
        self._hub_kills: list[float] = []
        self._endings: list[float] = []
        self._told_end = False
        self._started = 0.0
        """When the kernel was restarted last."""

    # -------------------------------------------------------------------------------------- what users do

    def learn(self, what: str) -> bool:
        """A fault begins. Return whether it is the end of all faults. Any thread may call this."""
        if what != "calm":
            (self._hub_kills if what == "hub killed" else self._endings).append(time.time())
        return what == "calm"

    def run(self, kind: str, code: str, *, silent: bool = False, **due: Any) -> Request:
        """Send a cell; `due`: what it must bring."""
        cell = Request(kind, self.number, **due)
        if not silent:
            code = BEGIN.format(number=self.number) + code
            self._ran.append(cell)
        self.number += 1
        return self.ask("shell", cell, "execute_request", code=code, silent=silent, store_history=not silent)

    def ask(self, channel: str, request: Request, msg_type: str = "", **content: Any) -> Request:
        """Send a request."""
        content = {"allow_stdin": True, **content} if msg_type == "execute_request" else content
        message = self._client.session.msg(msg_type or request.kind, content)
        self._open[message["header"]["msg_id"]] = request
        getattr(self._client, f"{channel}_channel").send(message)
        return request

    def meet(self) -> None:
        """Learn the kernel's id."""
        cell = self.run("meet", "import os; print(os.environ['JUPYTER_GPU_KERNEL_ID'])", text=None)
        self.finish()
        if cell.ok:
            self.kernel_id = cell.printed.strip()
            say(kernel=self.kernel_id, spec=self.spec)

    def audit(self) -> None:
        """Each cell ran once, in order; of those that were stopped it is not known whether."""
        cell = self.run("audit", "print(soak); soak.clear()", text=None)
        ran, self._ran = self._ran, []
        self.finish()
        if not cell.ok:
            return
        numbers, possible = json.loads(cell.printed), [one.number for one in ran]
        certain = {one.number for one in ran if not one.stopped}
        if sorted(set(numbers)) != numbers or set(numbers) - set(possible) or certain - set(numbers):
            self._tell("wrong", f"ran: {numbers} instead of {possible}, certain are {sorted(certain)}")

    def interrupt(self) -> None:
        """What runs or waits is stopped."""
        say(fault="interrupt", spec=self.spec)
        self._stop("interrupted")
        self.ask("control", Request("interrupt_request", 0))
        self.finish()

    def restart(self, now: bool) -> None:
        """What runs or waits is stopped. The user tries again if it fails, as while the node is out of reach."""
        say(fault="restart", now=now, spec=self.spec)
        self._started, self.kernel_id = time.time(), ""
        self._stop("restarted")
        for tried in range(TRIES):
            try:
                self._manager.restart_kernel(now=now)
                break
            except Exception as error:  # of the manager, or of the provisioner
                self._tell("excused" if tried + 1 < TRIES else "wrong", f"{type(error).__name__}: {error}")
                self.pause(10)
        self._ran.clear()
        self._told_end = False
        self.finish()
        self.meet()

    # -------------------------------------------------------------------------------------- the end of requests

    def finish(self) -> None:
        """All that is open ends, or is given up."""
        while unfinished := self._unfinished():
            self.pause(0.1)  # what came while this process waited for its manager
            self._until(lambda: not self._unfinished() or self._silence() > SOON)
            if self._unfinished() and not self._manager.is_alive():
                return self._start_again()
            lost = [one for one in unfinished if self._may_be_lost(one)]
            if self._silence() > (LOST if lost else PATIENCE):
                return self._give_up("excused" if lost else "wrong")
            self.pause(1)
        self.pause(0.2)
        self._close()
        if self._told_end or not self._manager.is_alive():
            self._start_again()

    def _close(self) -> None:
        for name, request in self._open.items():
            self._closed[name] = repr(request)[:100]
            if request.says_ended and not request.stopped and self._may_end():
                request.stopped = "ended"
                self._told_end = True
                self._tell("ended", str(request))
            for wrong in request.wrong(self._hub_killed(request)):
                self._tell("wrong", f"{wrong}: {request}")
            took = round(time.time() - request.sent, 2)
            say(cell=request.kind, number=request.number, took=took, stopped=request.stopped, spec=self.spec)
        self._open.clear()

    def _give_up(self, how: str) -> None:
        """Interrupt; restart the kernel if that does not help."""
        for request in self._unfinished():
            self._tell(how, f"hangs: {request}")
        ps = subprocess.run([*PROGRAM, "ps", "--json"], capture_output=True, text=True, check=False)
        say(ps=ps.stdout)
        self._stop("given up")
        for helped in (False, True):
            if helped:
                self._manager.restart_kernel(now=True)
                self._ran.clear()
            else:
                self.ask("control", Request("interrupt_request", 0))
            began = time.time()
            self._until(lambda began=began: not self._unfinished() or time.time() - began > SOON)
            self._forget()
            probe = self.run("answers", "")
            self._until(lambda probe=probe, began=began: probe.done or time.time() - began > 2 * SOON)
            if probe.done:
                break
            self._tell(how, f"does not answer: {probe}")
            self._forget()
        self._close()

    def _forget(self) -> None:
        for name in [name for name, request in self._open.items() if not request.done]:
            self._closed[name] = repr(self._open.pop(name))[:100]

    def _start_again(self) -> None:
        """The kernel has ended: its cells must have been told, and the user restarts it."""
        if not self._may_end():
            in_start = any(at > self._started - 2 for at in self._hub_kills) and not self.kernel_id
            self._tell("excused" if in_start else "wrong", "the kernel has ended")
        began = time.time()
        self._stop("ended")
        self._until(lambda: not self._unfinished() or time.time() - began > SOON)
        for request in [] if self._told_end else self._unfinished():  # else they were sent to nobody
            self._tell("wrong", f"not told that its kernel has ended: {request}")
        self._forget()
        self.restart(now=True)

    def _stop(self, why: str) -> None:
        for request in self._open.values():
            request.stopped = why

    def _may_end(self) -> bool:
        return any(time.time() - at < ENDING for at in self._endings)

    def _unfinished(self) -> list[Request]:
        return [one for one in self._open.values() if not one.done]

    def _silence(self) -> float:
        return time.time() - max((one.heard for one in self._open.values()), default=time.time())

    def _hub_killed(self, request: Request) -> bool:
        return any(at > request.sent - 2 for at in self._hub_kills)

    def _may_be_lost(self, request: Request) -> bool:
        """When the hub was killed: the request itself, or an answer to its question."""
        if request.asked or not request.is_cell:
            return self._hub_killed(request)
        return not request.states and any(abs(at - request.sent) < 4 for at in self._hub_kills)

    # -------------------------------------------------------------------------------------- messages

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._poll(1.0)

    def pause(self, seconds: float) -> None:
        """Take what comes meanwhile."""
        end = time.time() + seconds
        while (left := end - time.time()) > 0:
            self._poll(left)

    def _poll(self, seconds: float) -> None:
        channels = [
            getattr(self._client, f"{name}_channel") for name in ("shell", "iopub", "stdin", "control")
        ]
        poller = zmq.Poller()
        for channel in channels:
            poller.register(channel.socket, zmq.POLLIN)
        ready = dict(poller.poll(round(seconds * 1000) + 1))
        for channel in channels:
            if channel.socket in ready:
                self._take(channel.get_msg(timeout=1))

    def _take(self, message: dict[str, Any]) -> None:
        parent, kind, content = (
            message["parent_header"].get("msg_id", ""),
            message["msg_type"],
            message["content"],
        )
        if message["header"]["msg_id"] in self._seen:
            self.repeated += 1
            how = "excused" if self.repeated <= len(self._hub_kills) else "wrong"
            return self._tell(how, f"{kind} came twice {str(content)[:200]}")
        self._seen[message["header"]["msg_id"]] = None
        if len(self._seen) > REMEMBERED:
            self._seen.popitem(last=False)
        request = self._open.get(parent)
        if request is None:
            if parent in self._closed and kind != "update_display_data":
                self._tell("wrong", f"late {kind} {str(content)[:300]} of {self._closed[parent]}")
        elif kind == "input_request":
            request.heard, request.asked = time.time(), request.asked + 1
            self._client.input(content["prompt"] + "!")
        elif notice := request.take(kind, content).strip():
            say(notice=re.sub(r"\d+", "#", notice)[:200])

    def _tell(self, how: str, what: str) -> None:
        say(**{how: what, "spec": self.spec, "kernel": self.kernel_id})
