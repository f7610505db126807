"""The demo in a terminal: run a notebook, show each output when it arrives, disturb it, and check the results."""

from __future__ import annotations

import atexit
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import nbclient
import nbformat
from nbformat import NotebookNode

from . import gpus
from .cluster import Cluster
from .setup import KERNEL, Demo, check_connection, end, running_demo

NUMBERS = 60  # printed by the long cell, ten a second
_SIGTERM_AT, _CUT_AT = 8, 20  # after how many printed numbers
_CUT_SECONDS = 3.0
_TIMEOUT = 60.0  # seconds for that many numbers

WHERE = """import os, platform
print(f"process {os.getpid()} on {os.environ['HOSTNAME']} ({platform.node()})")"""
GPU = """import subprocess
mine = os.environ["CUDA_VISIBLE_DEVICES"]
listed = subprocess.check_output(["nvidia-smi", "-L"], text=True).splitlines()
print(*(line for line in listed if any(uuid in line for uuid in mine.split(","))), sep="\\n")"""
_LONG = f"""import time
numbers = []
for number in range({NUMBERS}):
    numbers.append(number)
    print(f"#{{number:02d}} ", end="\\n" if number % 20 == 19 else "", flush=True)
    time.sleep(0.1)"""
_ALIVE = """print(f"process {os.getpid()}: {len(numbers)} numbers, their sum is {sum(numbers)}")"""
_GUARD = """import gpu_kernel
status = gpu_kernel.status()
print(f"kernel {status['id']}: {status['sigterms']} SIGTERM, guard {status['guard']}")"""
CELLS = (WHERE, GPU, _LONG, _ALIVE, _GUARD)


def run_in_terminal() -> int:
    """Run the demo. Return 0 if all checks pass, else 1."""
    with running_demo() as demo:
        passed = check_connection(demo) and _run_notebook(demo)
        passed = end(demo) and passed
    passed = demo.terminal.check(not demo.cluster.folder.exists(), "the demo's folder is removed") and passed
    demo.terminal.say("demo", "all checks passed" if passed else "a check FAILED")
    return 0 if passed else 1


def _run_notebook(demo: Demo) -> bool:
    disturbance = Disturbance(demo.cluster, lambda text: demo.terminal.say("!", text))

    def on_text(text: str) -> None:
        demo.terminal.text(text)
        disturbance.printed(text)

    notebook = make_notebook(KERNEL)
    runner = Runner(notebook, lambda number, code: demo.terminal.say(f"In [{number}]", code), on_text)
    demo.terminal.say("notebook", "nbclient starts the kernel; the first cell takes a free GPU")
    try:
        runner.run()
    except Exception as error:  # one of nbclient's many errors, or ours from the provisioner
        return demo.terminal.check(False, f"the notebook failed: {error}")
    finally:
        disturbance.end()
    cells = outputs(notebook)
    _print_log(demo, kernel_in(cells[-1]))
    return _check_results(demo, cells, disturbance)


def _print_log(demo: Demo, kernel: str) -> None:
    """Print the kernel's log, as `jupyter gpu-kernel logs` shows it."""
    log = demo.hub.call("logs", kernel=kernel, specs=demo.specs, timeout=30)
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(line['time']))} {line['text']}" for line in log]
    demo.terminal.say("logs", "\n".join(lines))


def _check_results(demo: Demo, cells: list[str], disturbance: Disturbance) -> bool:
    where, gpu, long, alive, guard = cells
    checks = (
        (numbers_in(long) == list(range(NUMBERS)), f"all {NUMBERS} numbers arrived once, in order"),
        (disturbance.signalled and "1 SIGTERM" in guard, "the kernel survived one SIGTERM"),
        (disturbance.cut, "the link was cut and restored"),
        (process_in(alive) == process_in(where) > 0, "the kernel is the same process"),
        (str(sum(range(NUMBERS))) in alive, "its variables are kept"),
        (_is_expected_gpu(gpu, demo.cluster.simulated), "it had a GPU that nobody else used"),
    )
    passed = [demo.terminal.check(ok, text) for ok, text in checks]  # all of them are printed
    return all(passed)


def _is_expected_gpu(gpu: str, simulated: bool) -> bool:
    """Whether `nvidia-smi -L` listed one GPU of the right kind; the first simulated GPU is in use by others."""
    return gpu.count("GPU-") == 1 and (gpus.NAME in gpu) == simulated and not (simulated and "GPU 0:" in gpu)


class Disturbance:
    """Call `printed` with the kernel's output. The disturbances happen on a thread, and are reported with `say`."""

    def __init__(self, cluster: Cluster, say: Callable[[str], None]) -> None:
        self.signalled = self.cut = False
        self._cluster = cluster
        self._say = say
        self._text = ""
        self._restored_at = 0.0  # 0.0 if that is reported, or has not happened
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="disturbance", daemon=True)
        self._thread.start()

    def printed(self, text: str) -> None:
        """The kernel printed `text`."""
        with self._changed:
            self._text += text
            restored_at, self._restored_at = self._restored_at, 0.0
            self._changed.notify()
        if restored_at:
            self._say(f"output arrives again, {time.monotonic() - restored_at:.1f} s later")

    def end(self) -> None:
        """Start no further disturbance, and wait for a running one."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        self._thread.join(_TIMEOUT)

    def _run(self) -> None:
        if self._wait_for(_SIGTERM_AT):
            pid = process_in(self._text)
            self._say(f"kill -TERM {pid}, as a scheduler or an administrator would")
            os.kill(pid, signal.SIGTERM)
            self.signalled = True
        if self._wait_for(_CUT_AT):
            self._cluster.cut()
            self._say(f"the link is cut for {_CUT_SECONDS:.0f} s; the cell keeps running on the work node")
            threading.Event().wait(_CUT_SECONDS)
            with self._changed:
                self._cluster.start()
                self._restored_at = time.monotonic()
            self._say("the link is restored")
            self.cut = True

    def _wait_for(self, count: int) -> bool:
        """Wait until that many numbers are printed. False if the demo ends, or at a timeout."""
        with self._changed:
            self._changed.wait_for(lambda: self._ending or len(numbers_in(self._text)) >= count, _TIMEOUT)
            return not self._ending and len(numbers_in(self._text)) >= count


# --- the notebook


def make_notebook(kernel: str) -> NotebookNode:
    """The notebook for the kernelspec `kernel`, without outputs."""
    empty: dict[str, Any] = {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": []}
    cells = [{**empty, "source": text} for text in CELLS]
    spec = {"name": kernel, "display_name": kernel, "language": "python"}
    content = {"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 4}
    return NotebookNode(nbformat.from_dict(content))  # type: ignore[no-untyped-call]


class Runner(nbclient.NotebookClient):
    """Run a notebook; call `on_input(number, code)` for each cell and `on_text(text)` for each output."""

    def __init__(
        self, notebook: NotebookNode, on_input: Callable[[int, str], None], on_text: Callable[[str], None]
    ) -> None:
        kernel = notebook.metadata.kernelspec.name
        super().__init__(notebook, kernel_name=kernel, timeout=60, startup_timeout=60)
        self._on_text = on_text
        self.on_cell_execute = lambda cell, cell_index: on_input(cell_index + 1, cell.source)

    def run(self) -> None:
        """Run all cells, then shut the kernel down. Raises errors of nbclient or of the kernel manager."""
        try:
            self.execute()
        finally:
            atexit.unregister(self._cleanup_kernel)  # nbclient leaves it registered if no kernel started

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        """Override nbclient's method to report the output at once."""
        self._on_text(_text(msg["content"]))
        return super().output(outs, msg, display_id, cell_index)


def outputs(notebook: NotebookNode) -> list[str]:
    """The text of each cell's outputs."""
    return ["".join(map(_text, cell.outputs)) for cell in notebook.cells]


def numbers_in(text: str) -> list[int]:
    """The numbers that the long cell printed, in the order of the text."""
    return [int(digits) for digits in re.findall(r"#(\d\d) ", text)]


def kernel_in(text: str) -> str:
    """The JUPYTER_GPU_KERNEL_ID that the last cell printed; "" if there is none."""
    found = re.search(r"kernel (\S+):", text)
    return found[1] if found else ""


def process_in(text: str) -> int:
    """The process id that a cell printed; 0 if there is none."""
    found = re.search(r"process (\d+)", text)
    return int(found[1]) if found else 0


def _text(content: Any) -> str:
    """The text of a stream, display or error; "" for other messages."""
    if "traceback" in content:
        return "\n".join(content["traceback"])
    return str(content.get("text") or content.get("data", {}).get("text/plain", ""))
