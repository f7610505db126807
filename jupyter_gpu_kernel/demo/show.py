"""The demo in a terminal: run a notebook, show each output when it arrives, disturb it, and check the results."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from typing import Any

import nbclient
import nbformat

from . import gpus
from .setup import NOTEBOOKS, Demo, check_connection, end, running_demo

NUMBERS = 40  # printed by the long cell, ten a second
_SIGTERM_AT, _CUT_AT = 5, 12  # after how many printed numbers
_CUT_SECONDS = 2.0


def run_in_terminal() -> int:
    """Run the demo. Return 0 if all checks pass, else 1."""
    with running_demo() as demo:
        passed = check_connection(demo) and _run_notebook(demo)
        passed = end(demo) and passed
    passed = demo.terminal.check(not demo.cluster.folder.exists(), "the demo's folder is removed") and passed
    demo.terminal.say("demo", "all checks passed" if passed else "a check FAILED")
    return 0 if passed else 1


def _run_notebook(demo: Demo) -> bool:
    runner = _Runner(demo)
    demo.terminal.say("notebook", "nbclient starts the kernel; the first cell takes a free GPU")
    try:
        notebook = runner.execute()
    except Exception as error:  # one of nbclient's many errors, or ours from the provisioner
        return demo.terminal.check(False, f"the notebook failed: {error}")
    finally:
        runner.wait_for_link()
    cells = ["".join(map(_text, cell.outputs)) for cell in notebook.cells]
    _print_log(demo, kernel_in(cells[-1]))
    return _check_results(demo, cells, runner)


def _print_log(demo: Demo, kernel: str) -> None:
    """Print the kernel's story, as `jupyter gpu-kernel logs` shows it."""
    log = demo.hub.call("logs", kernel=kernel, specs=[demo.spec.for_hub], timeout=30)
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(line['time']))} {line['text']}" for line in log]
    demo.terminal.say("logs", "\n".join(lines))


def _check_results(demo: Demo, cells: list[str], runner: _Runner) -> bool:
    where, gpu, long, alive, guard = cells
    checks = (
        (numbers_in(long) == list(range(NUMBERS)), f"all {NUMBERS} numbers arrived once, in order"),
        (runner.signalled and "1 SIGTERM" in guard, "the kernel survived one SIGTERM"),
        (runner.restored_at > 0, "the link was cut and restored"),
        (process_in(alive) == process_in(where) > 0, "the kernel is the same process"),
        (str(sum(range(NUMBERS))) in alive, "its variables are kept"),
        (_is_expected_gpu(gpu, demo.cluster.simulated), "it had a GPU that nobody else used"),
    )
    passed = [demo.terminal.check(ok, text) for ok, text in checks]  # all of them are printed
    return all(passed)


def _is_expected_gpu(gpu: str, simulated: bool) -> bool:
    """Whether `nvidia-smi -L` listed one GPU of the right kind; the first simulated GPU is in use by others."""
    return gpu.count("GPU-") == 1 and (gpus.NAME in gpu) == simulated and not (simulated and "GPU 0:" in gpu)


class _Runner(nbclient.NotebookClient):
    """Runs the demo's notebook, and prints its code and outputs. The output tells when to send the SIGTERM and when to
    cut the link."""

    def __init__(self, demo: Demo) -> None:
        notebook = nbformat.read(NOTEBOOKS / "terminal.ipynb", as_version=4)  # type: ignore[no-untyped-call]
        super().__init__(notebook, timeout=60, startup_timeout=60)
        self.signalled = False
        self.restored_at = 0.0
        self._demo = demo
        self._printed = ""
        self._restoring: threading.Timer | None = None
        self._reported = False
        self.on_cell_execute = lambda cell, cell_index: demo.terminal.say(
            f"In [{cell_index + 1}]", cell.source
        )

    def output(self, outs: Any, msg: Any, display_id: Any, cell_index: int) -> Any:
        """nbclient calls this for each output."""
        if self.restored_at and not self._reported:
            self._reported = True
            self._say(f"output arrives again, {time.monotonic() - self.restored_at:.1f} s later")
        text = _text(msg["content"])
        self._demo.terminal.text(text)
        self._printed += text
        count = len(numbers_in(self._printed))
        if count >= _SIGTERM_AT and not self.signalled:
            self.signalled = True
            pid = process_in(self._printed)
            self._say(f"kill -TERM {pid}, as a scheduler or an administrator would")
            os.kill(pid, signal.SIGTERM)
        if count >= _CUT_AT and self._restoring is None:
            self._demo.cluster.cut()
            self._say(f"the link is cut for {_CUT_SECONDS:.0f} s; the cell keeps running on the work node")
            self._restoring = threading.Timer(_CUT_SECONDS, self._restore)
            self._restoring.start()
        return super().output(outs, msg, display_id, cell_index)

    def wait_for_link(self) -> None:
        """Wait until a link that is cut is restored."""
        if self._restoring is not None:
            self._restoring.join()

    def _restore(self) -> None:
        self._demo.cluster.restore()
        self.restored_at = time.monotonic()
        self._say("the link is restored")

    def _say(self, text: str) -> None:
        self._demo.terminal.say("!", text)


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
