"""Runs the node's `nvidia-smi`, with a time limit.

When the driver hangs, every nvidia-smi hangs, and some cannot be killed. Such a process is left behind, and no other
one is started beside it. This module knows no leases and no kernels, and not which GPUs count as free.
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

TIMEOUT = 15.0  # seconds; without persistence mode the first call takes several

_MAX_GPUS = 32  # the indices to try when a lost GPU makes nvidia-smi refuse to list any
_INVALID_FIELD = re.compile(r'Field "(.+?)" is not a valid field to query')
_LOST = re.compile(r"^.*(?:Unable to determine the device handle|GPU is lost).*$", re.MULTILINE)


class NvidiaSmi:
    """The node's nvidia-smi, and what is known of it: the fields it lacks, the GPUs it has lost, calls that hang.

    Not for use by several threads at a time.
    """

    def __init__(self) -> None:
        self._fields: List[str] = list(FIELDS)
        self._only: List[str] = []  # the indices to query if a GPU is lost; empty: all
        self._lost: List[Gpu] = []
        self._stuck: List[subprocess.Popen[bytes]] = []

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """Return all GPUs, ordered by index, within `timeout` seconds. Raises SmiError, also when `stop` is set."""
        run = functools.partial(
            self._run, deadline=time.monotonic() + timeout, stop=stop or threading.Event()
        )
        while True:
            # Both run at once, so that the two answers describe the same moment.
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
        """Query the GPUs one by one, as nvidia-smi shows none if a lost one is among them."""
        for index in range(_MAX_GPUS):
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
        """Run these queries in parallel. Their output goes to files, so nothing here waits for a stuck process."""
        self._stuck = [process for process in self._stuck if process.poll() is None]
        if self._stuck:  # not even SIGKILL ends it (state D); another one would hang, too
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
                # The group, as it may be a wrapper script. A setuid helper may not be killed: ignore that.
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
        for process in processes:
            try:
                process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                self._stuck.append(process)


def read_gpus(timeout: float = TIMEOUT) -> List[Gpu]:
    """Return all GPUs of this node, ordered by index; blocks for up to `timeout` seconds. Raises SmiError."""
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
            raise SmiError("stopped", "reading the GPUs was cancelled")


def _text(output: IO[bytes]) -> str:
    output.seek(0)
    return output.read(1 << 20).decode("utf-8", "replace")


def _absent() -> SmiError:
    remedy = "If you need no GPU, use --gpus 0. If the node has GPUs, add the folder of nvidia-smi to PATH (--setup)."
    return SmiError("absent", "nvidia-smi was not found in this node's PATH", remedy)


def _hang(pid: int = 0) -> SmiError:
    cause = f"an earlier nvidia-smi (pid {pid}) still hangs" if pid else "nvidia-smi does not answer"
    remedy = (
        f"The driver or a GPU hangs. Ask an administrator for help: often only a reboot repairs it. {WITHOUT}"
    )
    return SmiError("hang", cause, remedy)
