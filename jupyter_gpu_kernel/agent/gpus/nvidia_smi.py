"""Runs the node's `nvidia-smi`, and never waits for it too long.

A driver that hangs takes every nvidia-smi along, some beyond the reach of SIGKILL: such a process is left
behind, and no second one is started next to it. Must not know leases, kernels, what "free" means.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from typing import IO, List, NamedTuple, Optional, Sequence

from .nvidia_smi_csv import FIELDS, NO_DEVICES, OPTIONAL, WITHOUT, Gpu, SmiError, checked, clean, parse, query

TIMEOUT = 15.0  # seconds; the first call takes several where persistence mode is off

_MOST_GPUS = 32  # how far to count when a lost GPU makes nvidia-smi refuse to list them
_INVALID_FIELD = re.compile(r'Field "(.+?)" is not a valid field to query')
_LOST = re.compile(r"^.*(?:Unable to determine the device handle|GPU is lost).*$", re.MULTILINE)


class NvidiaSmi:
    """The node's nvidia-smi, with what was learnt about it: fields it lacks, GPUs it lost, calls that hang.

    One thread at a time.
    """

    def __init__(self) -> None:
        self._fields: List[str] = list(FIELDS)
        self._only: List[str] = []  # the indices to ask for, where one GPU is lost; empty: all
        self._lost: List[Gpu] = []
        self._stuck: List[subprocess.Popen[bytes]] = []

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """All GPUs by index, within `timeout` seconds. Raises SmiError, also as soon as `stop` is set."""
        run = functools.partial(
            self._run, deadline=time.monotonic() + timeout, stop=stop or threading.Event()
        )
        while True:
            # Both at once: the two answers should be of one moment.
            gpus, apps = run([self._gpu_query(self._only), _app_query(self._only)])
            invalid = _INVALID_FIELD.search(gpus.text)
            if invalid and invalid[1] in OPTIONAL and invalid[1] in self._fields:
                self._fields.remove(invalid[1])
            elif not self._only and _LOST.search(gpus.text + apps.text):
                self._isolate(run)
            else:
                break
        found = parse(checked(*gpus), checked(*apps), self._fields) + self._lost
        return sorted(found, key=lambda gpu: gpu.index)

    def _gpu_query(self, ids: Sequence[str]) -> List[str]:
        return query("gpu", self._fields, ids)

    def _isolate(self, run: functools.partial[List[_Answer]]) -> None:
        """Ask for the GPUs one by one: nvidia-smi shows none as long as a lost one is among them."""
        for index in range(_MOST_GPUS):
            (answer,) = run([self._gpu_query([str(index)])])
            lost = _LOST.search(answer.text)
            if lost:
                self._lost.append(Gpu(index, "", "?", problem=f"the driver has lost it: {clean(lost[0])}"))
            elif NO_DEVICES in answer.text:
                break
            else:
                self._only.append(str(index))
        if not self._only:
            self._lost.clear()
            raise SmiError(
                "driver", "the driver has lost the node's GPUs", f"The node needs a reboot. {WITHOUT}"
            )

    def _run(self, queries: List[List[str]], deadline: float, stop: threading.Event) -> List[_Answer]:
        """Run them side by side. Output goes to files, so that nothing here can wait for a stuck process."""
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if self._stuck:  # they are beyond SIGKILL (state D): another one would only join them
            raise _hang(self._stuck[0].pid)
        program = shutil.which("nvidia-smi")
        if program is None:
            raise _absent()
        processes: List[subprocess.Popen[bytes]] = []
        with contextlib.ExitStack() as files:
            try:
                outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in queries]
                for words, output in zip(queries, outputs):
                    processes.append(_start([program, *words], output))
                _wait(processes, deadline, stop)
            except OSError as error:
                raise SmiError("driver", f"nvidia-smi cannot be run: {error}", WITHOUT) from error
            finally:
                self._end(processes)
            return [_Answer(process.returncode, _text(output)) for process, output in zip(processes, outputs)]

    def _end(self, processes: List[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            if process.poll() is None:
                # The group: it may be a site's wrapper script. Not permitted: a setuid helper, let it go.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            try:
                process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                self._stuck.append(process)


def read_gpus(timeout: float = TIMEOUT) -> List[Gpu]:
    """All GPUs of this node by index; blocks up to `timeout` seconds. Raises SmiError."""
    return NvidiaSmi().read(timeout)


class _Answer(NamedTuple):
    code: int
    text: str


def _app_query(ids: Sequence[str]) -> List[str]:
    return query("compute-apps", ("gpu_uuid", "pid", "process_name", "used_memory"), ids)


def _start(command: List[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
    )


def _wait(processes: Sequence[subprocess.Popen[bytes]], deadline: float, stop: threading.Event) -> None:
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline:
            raise _hang()
        if stop.wait(0.01):
            raise SmiError("stopped", "reading the GPUs was given up")


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(1 << 20).decode("utf-8", "replace")


def _absent() -> SmiError:
    remedy = (
        "If no GPU is wanted, use --gpus 0. If the node has GPUs, put nvidia-smi's folder on PATH (--setup)."
    )
    return SmiError("absent", "no nvidia-smi on this node (looked along PATH)", remedy)


def _hang(pid: int = 0) -> SmiError:
    cause = f"an earlier nvidia-smi (pid {pid}) still hangs" if pid else "nvidia-smi does not answer"
    remedy = f"The driver or a GPU hangs: an administrator should look, often only a reboot helps. {WITHOUT}"
    return SmiError("hang", cause, remedy)
