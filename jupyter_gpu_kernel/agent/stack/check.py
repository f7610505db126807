"""The request `stack`, which is one part of `check --gpu`: the process `check ID`, and the function that starts it.

The process has its request on stdin, which stays open for as long as the answer is wanted, and its answer goes to
stdout. It ends everything that it has started. So nothing stays on the node when the connection or `attach` ends.
Nothing is written to a disk but the set-up lines, to a file without a name.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from typing import Any, Dict, Sequence

from ...wire.fields import FieldError, load_object
from ...wire.runtime import Runtime
from ..exit.descendants import ROOT, SETUP, TAG, end_all, find_descendants
from ..gpus.devices.driver import read_driver
from ..gpus.devices.gpu import SmiError
from ..gpus.devices.gpu_reader import GpuReader, device_variable
from ..gpus.devices.visible_devices import variables
from ..gpus.sharing.lease import CHECK
from ..keeper.client import shown_end
from ..kernel_settings import KernelSettings
from ..paths import Root, agent_command
from ..process.environment import kernel_environment
from ..process_control import ProcessControl
from .free_gpu import FreeGpu, leased_gpu
from .supervision import MAX_ANSWER, Supervisor

SETUP_TIMEOUT = 60.0
_LIMIT = 150.0
"""Seconds for the list of the installed frameworks, and the most for a framework."""


def check_stack(
    runtime: Runtime, processes: ProcessControl, settings: KernelSettings, request: Dict[str, Any]
) -> Dict[str, Any]:
    """Return what the node found, or {"refused": [code, text]}. Blocks for up to some minutes.

    settings: Those of a kernel that would be started; the folder `cwd` exists.
    request: {"part": "node", or the name of a framework, "limit": seconds that a framework may take}.
    """
    settings = settings._replace(id=CHECK + runtime.new_id()[:12])
    command = [*agent_command(settings.python), "check", settings.id]
    (stdin, request_end), (answer_end, output) = os.pipe(), os.pipe()
    with os.fdopen(request_end, "wb", 0) as wanted, os.fdopen(answer_end, "rb") as answer:
        try:
            process = processes.start(command, stdin=stdin, output=output, cwd=settings.cwd)
        except OSError as error:
            return {"refused": ["keeper", f"the check cannot be started: {error}"]}
        finally:
            os.close(stdin)
            os.close(output)
        with contextlib.suppress(BrokenPipeError):
            wanted.write(json.dumps(dict(request, settings=settings.to_json())).encode() + b"\n")
        data = answer.read(2 * MAX_ANSWER)
    process.wait()
    try:
        return load_object(data.rpartition(b"\n")[2])
    except FieldError:
        printed = shown_end(data.decode("utf-8", "replace"))
        return {"refused": ["keeper", printed or "the check ended without an answer"]}


def run(runtime: Runtime, processes: ProcessControl, root: Root, check_id: str) -> int:
    """Serve the request of the process `check ID`; return the exit code."""
    os.environ.pop(TAG, None)
    try:
        request = load_object(sys.stdin.buffer.readline())
        answer = Check(runtime, processes, root, KernelSettings.from_json(request["settings"])).answer(
            request
        )
    finally:
        for tag in (SETUP, TAG):
            end_all(runtime, processes, find_descendants(check_id, tag, str(root.path)))
    sys.stdout.write("\n" + json.dumps(answer))
    return 0


class Check:
    """Examines what one request asks for, in the environment of a kernel with these settings."""

    def __init__(
        self, runtime: Runtime, processes: ProcessControl, root: Root, settings: KernelSettings
    ) -> None:
        self._runtime = runtime
        self._processes = processes
        self._root = root
        self._settings = settings
        self._supervisor = Supervisor(runtime, processes, stop=sys.stdin.fileno())

    def answer(self, request: Dict[str, Any]) -> Dict[str, Any]:
        """Return what the hub wants to know."""
        problem = self._run_setup(self._settings.setup)
        if problem:
            return {"refused": ["setup", problem]}
        part, limit = str(request["part"]), min(float(request.get("limit") or _LIMIT), _LIMIT)
        if part == "node":
            return {**self._run("installed", FreeGpu(), _LIMIT), **self._driver()}
        with leased_gpu(self._runtime, self._processes, self._settings) as gpu:
            found = self._run(part, gpu, limit)
            return {**found, "gpu": gpu.uuid, "gpu_name": gpu.name, "no_gpu": gpu.why_not}

    def _run_setup(self, lines: Sequence[str]) -> str:
        """Run the user's set-up lines in a login shell, and take over the variables that it has at their end. Return
        what is wrong with them, or ""."""
        if not lines:
            return ""
        text = "\n".join(["exec 3>&1 >&2", *lines, f"unset {SETUP}", "exec cat /proc/self/environ >&3", ""])
        env = {**os.environ, SETUP: self._settings.id, ROOT: str(self._root.path)}
        with tempfile.TemporaryFile() as script:
            script.write(text.encode("utf-8", "surrogateescape"))
            script.flush()
            shell = ["bash", "--login", f"/dev/fd/{script.fileno()}"]
            result = self._supervisor.run(shell, SETUP_TIMEOUT, env=env, pass_fds=[script.fileno()])
        if result.status != 0 or not result.answer:
            how = "did not end in time" if result.late else f"exited with status {result.status}"
            printed = shown_end(result.output)
            return f"the set-up lines {how}" + (f"; they printed:\n{printed}" if printed else "")
        entries = (entry.partition("=") for entry in os.fsdecode(result.answer).split("\0"))
        os.environ.clear()
        os.environ.update({name: value for name, equals, value in entries if equals})
        return ""

    def _driver(self) -> Dict[str, Any]:
        """The driver and the names of the GPUs, or why they cannot be used."""
        try:
            gpus = GpuReader(self._runtime, self._processes).read()
        except SmiError as error:
            return {"problem": {"code": error.code, "text": error.cause}}
        driver, cuda = read_driver(self._runtime, self._processes)
        return {"driver": driver, "cuda": cuda, "gpus": [gpu.name for gpu in gpus if not gpu.parent]}

    def _run(self, name: str, gpu: FreeGpu, limit: float) -> Dict[str, Any]:
        """Run `check-framework NAME` in the environment of a kernel that has this GPU, and no other."""
        folder = self._root.kernel(self._settings.id)  # does not exist: nothing is written to it
        visible = variables(gpu.uuid.split(",") if gpu.uuid else [], device_variable())
        env = kernel_environment(self._settings, folder, visible)
        command = [*agent_command(self._settings.python), "check-framework", name]
        result = self._supervisor.run(command, limit, env=env, leases=gpu.leases)
        facts: Dict[str, Any] = {}
        for line in result.answer.splitlines():
            with contextlib.suppress(FieldError):  # cut off by a crash, or written by a library
                facts.update(load_object(line))
        return {**facts, "output": result.output, "status": result.status, "late": result.late}
