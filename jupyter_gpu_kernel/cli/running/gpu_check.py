"""`check --gpu`: starts a kernel of the kernelspec, and has it import each framework and compute on its GPU.

The kernel is a normal one: the hub serves it as for any front end, and its cell waits for a GPU at the gate. Where a
framework crashes or hangs, the kernel's process ends, and the exit report says why; each framework gets a new process.
At the end the kernel is stopped. `gpu_verdicts.py` says what the answers mean.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
from collections.abc import Iterator
from importlib import resources
from typing import Any, NamedTuple

from jupyter_client.blocking.client import BlockingKernelClient

from ...adding import name_of
from ...errors import GpuKernelError, KernelStartError
from ...hub import sanitize, validate
from ...served_kernel import new_connection
from ...wire.kernel_settings import KernelSettings
from ..terminal import Progress
from ..verb import Ask, errors_of
from .gpu_verdicts import FRAMEWORKS, StackVerdict, conclude, judge_driver, judge_framework

_ANSWERS_WITHIN = 60.0
_IDLE_TIMEOUT = 60.0
"""The node ends the kernel after so many seconds if this process was killed."""
_MARK = "=== jupyter-gpu-kernel check "
_MOST = 1 << 16
"""Characters that are kept of what a cell prints: the last ones."""
FACTS = validate.fields(
    installed=validate.rows(validate.word, 20),
    driver=validate.text(40),
    cuda=validate.text(20),
    gpu=validate.text(1000),
    version=validate.text(60),
    built_for=validate.text(60),
    right=validate.flag,
    raised=validate.text(),
)
"""What `agent/framework_check.py` prints."""


class Limits(NamedTuple):
    """Seconds that a framework may take, and within which a GPU must be free."""

    framework: float = 150.0  # a first import from a slow file system takes a minute
    free: float = 30.0


LIMITS = Limits()


class _Cell:
    """A cell that runs. `facts`: what it has reported; `output`: what else was printed; `error`: its name and text."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {}
        self.output = ""
        self.error = "", ""

    def receive(self, message: dict[str, Any]) -> None:
        """Take an output of the cell."""
        content = message["content"]
        if message["msg_type"] == "stream":
            self._print(str(content["text"]))
        elif message["msg_type"] == "error":
            self.error = str(content["ename"]), str(content["evalue"])

    def _print(self, text: str) -> None:
        """Take the facts out of the text, which may begin and end anywhere."""
        *complete, rest = (self.output + text).split("\n")
        for line in complete:
            if line.startswith(_MARK):
                with contextlib.suppress(ValueError, RecursionError):  # Malformed is a ValueError
                    self.facts.update(FACTS(json.loads(line[len(_MARK) :])))
        kept = [line for line in complete if not line.startswith(_MARK)]
        self.output = "\n".join([*kept, rest])[-_MOST:]


class _Kernel:
    """A kernel of one kernelspec, by the operations of the hub. `python`: its Python on the node."""

    def __init__(self, ask: Ask, name: str, settings: dict[str, Any]) -> None:
        """Start the kernel. Raises GpuKernelError if that fails."""
        asked = {"connection": new_connection(), "front_end_kind": "other"}
        answer = ask("start", name=name, settings=settings, **asked)
        self.python = str(answer["python"])
        self._ask = ask
        self._id = str(answer["id"])
        self._specs = [{"name": name, "settings": settings}]
        self._client = BlockingKernelClient()
        self._client.load_connection_info(answer["connection"])
        self._client.start_channels()

    def run(self, function: str, limits: Limits, *, by_user: bool) -> _Cell:
        """Call a function of `agent/framework_check.py`. If `by_user`, the cell waits for a GPU, and ends without
        facts if none is free in time. Raises GpuKernelError if the kernel does not answer."""
        source = resources.files("jupyter_gpu_kernel").joinpath("agent/framework_check.py").read_text("utf-8")
        free = limits.free if by_user else _ANSWERS_WITHIN
        cell = _Cell()
        interrupt = threading.Timer(free, self._interrupt_without_facts, [cell])
        try:
            self._client.wait_for_ready(_ANSWERS_WITHIN)
            interrupt.start()
            self._client.execute_interactive(
                f"exec({f'{source}{function}'!r}, {{'__name__': ''}})",
                store_history=by_user,
                allow_stdin=False,
                stop_on_error=False,
                timeout=free + limits.framework + _ANSWERS_WITHIN,
                output_hook=cell.receive,
            )
        except (RuntimeError, TimeoutError, queue.Empty) as error:
            cause = f"the kernel of this check does not answer: {error}"
            raise KernelStartError(cause, remedy="Try again.") from None
        finally:
            interrupt.cancel()
        return cell

    def _interrupt_without_facts(self, cell: _Cell) -> None:
        """Interrupt a cell that has not begun."""
        with contextlib.suppress(GpuKernelError):  # the kernel has ended
            if not cell.facts:
                self._ask("command", kernel=self._id, do="interrupt", more={})

    def restart(self) -> None:
        """Start a new process. It has the same GPUs, unless the old process has ended by itself."""
        self._ask("restart", kernel=self._id)

    def stop(self) -> None:
        """End the kernel, and wait until nothing of it is left on the node."""
        self._client.stop_channels()
        try:
            self._ask("stop", kernel=self._id, specs=self._specs)
        finally:
            self._ask("release", kernel=self._id)


class GpuCheck:
    """The check of one host. `rows`: those so far, as the hub's operation `check` returns them, with "facts"."""

    def __init__(
        self, ask: Ask, progress: Progress, name: str, settings: KernelSettings, limits: Limits = LIMITS
    ) -> None:
        self.rows: list[dict[str, Any]] = []
        self._host = name_of(settings.route[-1])
        self._ask, self._progress = ask, progress
        self._limits = limits
        self._name = name
        self._gpus = min(1, settings.gpus)
        self._settings = settings.replace(gpus=self._gpus, idle_timeout=_IDLE_TIMEOUT).to_json()
        self._listed: list[dict[str, Any]] = []

    def _step(self, text: str) -> None:
        self._progress({"hop": self._host, "step": text})

    def run(self) -> None:
        """Add the rows: of the driver, of each framework that is installed, and the verdict."""
        self._step("starting a kernel")
        began = time.monotonic()
        try:
            kernel = _Kernel(self._ask, self._name, self._settings)
            try:
                self._check(kernel)
            finally:
                kernel.stop()
        except GpuKernelError as error:
            row = self._add("kernel", StackVerdict(False, error.cause, error.remedy), began, {})
            row["hop"] = error.hop or self._host

    def _check(self, kernel: _Kernel) -> None:
        self._step("driver and Python packages")
        began = time.monotonic()
        described = kernel.run("describe()", self._limits, by_user=False).facts
        driver, facts = self._driver(described)
        self._add("driver", driver, began, facts)
        verdicts: dict[str, StackVerdict] = {}
        for name in [name for name in FRAMEWORKS if name in described.get("installed", ())]:
            if verdicts:
                kernel.restart()
            self._step(f"importing {name} and multiplying matrices")
            began = time.monotonic()
            answer = self._framework(kernel, name)
            verdicts[name] = judge_framework(name, kernel.python, described.get("cuda", ""), answer)
            self._add(name, verdicts[name], began, answer)
        self._add("verdict", conclude(verdicts, kernel.python, driver), time.monotonic(), {})

    def _driver(self, described: dict[str, Any]) -> tuple[StackVerdict, dict[str, Any]]:
        """Judge the driver, and read the names of the GPUs. MIG devices are parts of others."""
        specs = [{"name": self._name, "settings": self._settings}]
        rows = self._ask("gpus", specs=specs)
        self._listed = [row for row in rows if "error" not in row]
        names = [row["name"] for row in self._listed if not row["uuid"].startswith("MIG-")]
        facts = {"driver": described.get("driver", ""), "cuda": described.get("cuda", ""), "gpus": names}
        errors = errors_of(rows)
        return judge_driver(facts, errors[0] if errors else None), facts

    def _framework(self, kernel: _Kernel, name: str) -> dict[str, Any]:
        """Return the facts: also if no GPU is free, as far as they do not need one."""
        function = f"check({name!r}, {self._limits.framework})"
        began = time.monotonic()
        cell, no_gpu = kernel.run(function, self._limits, by_user=True), ""
        if not cell.facts:
            interrupted = cell.error[0] in ("", "KeyboardInterrupt")
            no_gpu = "no GPU is free" if interrupted else cell.error[1].partition("\n")[0]
            began = time.monotonic()
            cell = kernel.run(function, self._limits, by_user=False)
        kind, text = cell.error
        has_ended = kind == "DeadKernelError"
        more = {"raised": f"{kind}: {text}"} if kind and not has_ended else {}
        return {
            "gpu": "",
            **cell.facts,
            **more,
            "gpu_name": " and ".join(self._names(cell.facts.get("gpu", ""))),
            "no_gpu": no_gpu if self._gpus else "the kernelspec asks for no GPU (--gpus 0)",
            "output": sanitize.lines(cell.output, 300),
            "ended": sanitize.one_line(text, 500) if has_ended else "",
            "late": has_ended and time.monotonic() - began >= self._limits.framework,
        }

    def _names(self, uuids: str) -> Iterator[str]:
        known = {row["uuid"]: f"GPU {row['index']} ({row['name']})" for row in self._listed}
        yield from (known.get(uuid, uuid) for uuid in uuids.split(",") if uuid)

    def _add(self, step: str, verdict: StackVerdict, began: float, facts: dict[str, Any]) -> dict[str, Any]:
        row = {
            "step": step,
            "hop": self._host,
            "ok": verdict.ok,
            "checked": verdict.checked,
            "seconds": round(time.monotonic() - began, 3),
            "message": verdict.message,
            "remedy": verdict.remedy,
            "facts": facts,
        }
        self.rows.append(row)
        return row
