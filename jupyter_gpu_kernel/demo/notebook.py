"""The demo's notebook, and a runner that shows each output when it arrives.

This module knows the cells and their outputs, and not the cluster, signals or links.
"""

from __future__ import annotations

import atexit
import re
from collections.abc import Callable
from typing import Any

import nbclient
import nbformat
from nbformat import NotebookNode

NUMBERS = 60  # printed by the long cell, ten a second

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


def make(kernel: str) -> NotebookNode:
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
