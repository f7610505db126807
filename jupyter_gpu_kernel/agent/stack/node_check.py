"""The process `check-node ID`: examines the node, or one framework on it, in the environment of a kernel.

It runs where a keeper would: with the kernel's Python, after the set-up lines. It imports no framework itself; each is
imported by a process of its own (framework_check.py), which may crash, hang or print. A GPU is used only if nobody is
on it and no kernel waits for it, and its lease is held meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any, Dict, List, NamedTuple, Tuple

from ...wire.fields import FieldError, load_object
from ...wire.runtime import Runtime
from ..gpus.claim import Claim, ClaimGranted
from ..gpus.devices.driver import loaded_driver, read_driver
from ..gpus.devices.gpu import Gpu, SmiError
from ..gpus.devices.gpu_reader import GpuReader, device_variable
from ..gpus.devices.visible_devices import AMD, variables
from ..gpus.judge import DEFAULT_CRITERIA, allowed_gpus, in_allocation
from ..gpus.limits import wait_reason
from ..gpus.requirements import Requirements
from ..gpus.sampler import SampleReader
from ..gpus.sharing.lease import Lease, LeaseTaker, release_all
from ..gpus.sharing.wait_queue import QueueReader
from ..kernel_settings import KernelSettings
from ..paths import Root, agent_command
from ..process.environment import kernel_environment
from ..process_control import ProcessControl
from .supervision import Supervisor, inherited_pipes, read_request, write_answer

_LIMIT = 150.0
"""Seconds for the packages that are installed, and for a framework if the hub does not say."""


class _Choice(NamedTuple):
    """The GPU for a computation: its UUID, or why there is none."""

    uuid: str = ""
    name: str = ""
    why_not: str = ""
    leases: Tuple[Lease, ...] = ()
    visible_at_start: str = ""  # as an allocation's GPUs are: others are named when the first cell runs


class NodeCheck:
    """Examines what one request asks for."""

    def __init__(
        self, runtime: Runtime, processes: ProcessControl, root: Root, settings: KernelSettings, stop: int
    ) -> None:
        """`stop`: readable when nobody wants the answer any more."""
        self._runtime = runtime
        self._processes = processes
        self._root = root
        self._settings = settings
        self._variable = device_variable()
        self._supervisor = Supervisor(runtime, processes, stop)

    def node(self) -> Dict[str, Any]:
        """Return the driver, the GPUs with their compute capability, and which frameworks are installed."""
        problem: Dict[str, Any] = {}
        gpus: List[Gpu] = []
        try:
            gpus = GpuReader(self._runtime, self._processes).read()
            driver = read_driver(self._processes)
        except SmiError as error:
            driver = loaded_driver()
            problem = {"problem": {"code": error.code, "text": error.cause}}
        rows = [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "capability": driver.capabilities.get(gpu.uuid, ""),
            }
            for gpu in gpus
            if not gpu.parent
        ]
        answer = {
            "driver": driver.version,
            "cuda": driver.cuda,
            "amd": self._variable == AMD,
            "gpus": rows,
            **problem,
        }
        return {**answer, **self._run("installed", _Choice())}

    def framework(self, name: str, limit: float) -> Dict[str, Any]:
        """Return what a framework is, and whether it computes on a free GPU, within `limit` seconds."""
        choice = self._choose()
        try:
            found = self._run(name, choice, limit)
        finally:
            release_all(choice.leases)
        return {"gpu": choice.uuid, "gpu_name": choice.name, "no_gpu": choice.why_not, **found}

    def _choose(self) -> _Choice:
        if not self._settings.gpus:
            return _Choice(why_not="the kernelspec asks for no GPU (--gpus 0)")
        allowed = allowed_gpus(os.environ, self._variable)
        if allowed and in_allocation(os.environ, self._variable):
            gpus = ",".join(allowed)
            return _Choice(gpus, f"GPU {gpus} of the allocation", visible_at_start=gpus)
        own = sum(owner.uid == os.getuid() for owner in QueueReader(self._runtime).lease_owners())
        if reason := wait_reason(self._settings.site, 1, own):
            return _Choice(why_not=reason.rstrip("."))
        taker = LeaseTaker(self._runtime, {"id": self._settings.id})
        needs = Requirements.of(self._settings)
        claim = Claim(self._runtime, 1, taker, allowed=allowed, node=socket.gethostname(), needs=needs)
        try:
            return self._claim(claim)
        except SmiError as error:
            return _Choice(why_not=error.cause.partition("\n")[0])
        finally:
            claim.release()

    def _claim(self, claim: Claim) -> _Choice:
        """Take as many samples as a verdict needs, and one more after the lease was taken."""
        reader, queue = SampleReader(self._runtime, self._processes), QueueReader(self._runtime)
        for _ in range(DEFAULT_CRITERIA.samples + 1):
            claim.add(reader.read())
            delay = claim.delay()
            if claim.can_decide:
                outcome = claim.decide(queue.read())
                if isinstance(outcome, ClaimGranted):
                    gpu = outcome.gpus[0]
                    return _Choice(gpu.uuid, str(gpu), "", tuple(outcome.leases))
                delay = outcome.delay
            self._runtime.sleep(min(delay, DEFAULT_CRITERIA.interval))
        return _Choice(why_not="no GPU is free")

    def _run(self, name: str, choice: _Choice, limit: float = _LIMIT) -> Dict[str, Any]:
        """Run the process that imports a framework, with the environment of a kernel that starts."""
        folder = self._root.kernel(self._settings.id)  # does not exist: nothing is written to it
        env = kernel_environment(self._settings, folder, self._visible(choice.visible_at_start))
        command = [*agent_command(self._settings.python), "check-framework", name]
        request = json.dumps({"gpu": choice.uuid, "env": self._visible(choice.uuid)}).encode() + b"\n"
        watch = {lease.fileno(): lease.answer for lease in choice.leases}
        result = self._supervisor.run(command, request, limit, env=env, watch=watch)
        facts: Dict[str, Any] = {}
        for line in result.answer.splitlines():
            facts.update(_object(line))
        return {"facts": facts, "output": result.output, "status": result.status, "late": result.late}

    def _visible(self, gpus: str) -> Dict[str, str]:
        """The variables that make these GPUs visible."""
        return variables(gpus.split(",") if gpus else [], self._variable)


def run(runtime: Runtime, processes: ProcessControl, root: Root) -> int:
    """Serve the request of this process; return the exit code."""
    request_fd, answer_fd = inherited_pipes()
    request = load_object(read_request(request_fd))
    check = NodeCheck(runtime, processes, root, KernelSettings.from_json(request["settings"]), request_fd)
    part = str(request["part"])
    limit = min(float(request.get("limit") or _LIMIT), _LIMIT)
    answer = check.node() if part == "node" else check.framework(part, limit)
    write_answer(answer_fd, json.dumps(answer).encode())
    return 0


def _object(line: bytes) -> Dict[str, Any]:
    try:
        return load_object(line)
    except FieldError:  # cut off by a crash, or written by a library
        return {}
