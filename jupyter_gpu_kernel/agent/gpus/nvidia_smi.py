"""Runs the node's `nvidia-smi`, with a time limit, and parses its output: to GPUs, or to an error with a remedy.

When the driver hangs, every nvidia-smi hangs, and some cannot be killed. Such a process is left behind, and no other
one is started beside it. The owners of processes are looked up in /proc and the password database. What nvidia-smi does
not report is None, never 0. This module knows no leases and no kernels, and not which GPUs count as free.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import shutil
import signal
import tempfile
import threading
from typing import IO, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ...wire.runtime import Runtime
from ...wire.texts import one_line
from .. import procfs
from ..process_control import ChildProcess, ProcessControl, TimeoutExpired
from .mig import parse_instances
from .topology import Topology, parse_topology

TIMEOUT = 15.0  # seconds; without persistence mode the first call takes several

_POLL_INTERVAL = 0.01
_MAX_GPUS = 32  # the indices to try when a lost GPU makes nvidia-smi refuse to list any
_INVALID_FIELD = re.compile(r'Field "(.+?)" is not a valid field to query')
_LOST = re.compile(r"^.*(?:Unable to determine the device handle|GPU is lost).*$", re.MULTILINE)
# `name` comes last, because it may contain a comma. Older drivers lack the optional fields.
OPTIONAL = ("memory.reserved", "mig.mode.current")
FIELDS = (
    "index",
    "uuid",
    "memory.total",
    "memory.used",
    "utilization.gpu",
    "compute_mode",
    *OPTIONAL,
    "name",
)
NO_DEVICES = "No devices were found"
WITHOUT = "Until then, use another node, or --gpus 0 to run without a GPU."


class GpuProcess(NamedTuple):
    """A compute process on a GPU."""

    pid: int  # 0 if unknown
    user: str  # "?" if unknown
    memory_mib: Optional[int]
    name: str  # of its program, without the folder, printable; "?" if unknown
    since: Optional[float] = None  # seconds since the epoch
    cpu_seconds: Optional[float] = None  # the CPU time that it has used


@dataclasses.dataclass(frozen=True)
class Gpu:
    """One GPU at one moment."""

    index: int
    uuid: str
    name: str
    memory_total_mib: Optional[int] = None
    memory_used_mib: Optional[int] = None
    memory_reserved_mib: Optional[int] = None
    utilization: Optional[int] = None  # percent
    compute_mode: Optional[str] = None
    mig_mode: Optional[str] = None
    processes: Tuple[GpuProcess, ...] = ()
    problem: str = ""  # why nvidia-smi cannot query it (a lost GPU)
    parent: str = ""  # of a MIG device: the UUID of its GPU

    def __str__(self) -> str:
        return f"GPU {self.index} ({self.name})"


class SmiError(Exception):
    """There are no GPUs to use. `code`: absent, hang, driver, none, few (fewer than requested), stopped."""

    def __init__(self, code: str, cause: str, remedy: str = "") -> None:
        super().__init__(cause)
        self.code = code
        self.cause = cause
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.cause}\n{self.remedy}" if self.remedy else self.cause


class NvidiaSmi:
    """The node's nvidia-smi, and what is known of it: the fields it lacks, the GPUs it has lost, calls that hang.

    Not for use by several threads at a time.
    """

    def __init__(self, runtime: Runtime, processes: ProcessControl) -> None:
        self._runtime = runtime
        self._processes = processes
        self._fields: List[str] = list(FIELDS)
        self._only: List[str] = []  # the indices to query if a GPU is lost; empty: all
        self._lost: List[Gpu] = []
        self._stuck: List[ChildProcess] = []

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """Return all GPUs, ordered by index, within `timeout` seconds. Raises SmiError, also when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        run = functools.partial(self._run, deadline=deadline, stop=stop or threading.Event())
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
        if any(gpu.mig_mode == "Enabled" for gpu in found):
            listing, report = run([["-L"], ["-q", "-x"]])
            found += mig_devices(found, checked(*listing), checked(*report))
        return sorted(found, key=lambda gpu: (gpu.index, bool(gpu.parent)))

    def read_links(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> Topology:
        """Return the links between the GPUs, {} if nvidia-smi cannot tell. Raises SmiError when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        try:
            (answer,) = self._run([["topo", "-m"]], deadline, stop or threading.Event())
        except SmiError as error:
            if error.code == "stopped":
                raise
            return {}
        return parse_topology(answer.text)

    def _gpu_query(self, ids: Sequence[str]) -> List[str]:
        return query("gpu", self._fields, ids)

    def _isolate(self, run: functools.partial[List[_Answer]]) -> None:
        """Query the GPUs one by one, as nvidia-smi shows none if a lost one is among them."""
        for index in range(_MAX_GPUS):
            (answer,) = run([self._gpu_query([str(index)])])
            lost = _LOST.search(answer.text)
            if lost:
                self._lost.append(Gpu(index, "", "?", problem=f"the driver has lost it: {one_line(lost[0])}"))
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
        started: List[ChildProcess] = []
        with contextlib.ExitStack() as files:
            try:
                outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in queries]
                for words, output in zip(queries, outputs):
                    started.append(self._processes.start([program, *words], output=output))
                self._wait(started, deadline, stop)
            except OSError as error:
                raise SmiError("driver", f"nvidia-smi cannot be run: {error}", WITHOUT) from error
            finally:
                self._end(started)
            return [_Answer(process.wait(), _text(output)) for process, output in zip(started, outputs)]

    def _wait(self, started: Sequence[ChildProcess], deadline: float, stop: threading.Event) -> None:
        while any(process.poll() is None for process in started):
            if self._runtime.monotonic() > deadline:
                raise _hang()
            if stop.is_set():
                raise SmiError("stopped", "reading the GPUs was cancelled")
            self._runtime.sleep(_POLL_INTERVAL)

    def _end(self, started: List[ChildProcess]) -> None:
        for process in started:
            if process.poll() is None:  # the group, as it may be a wrapper script
                self._processes.signal_group(process.pid, signal.SIGKILL)
        for process in started:
            try:
                process.wait(timeout=0.5)
            except TimeoutExpired:
                self._stuck.append(process)


class _Answer(NamedTuple):
    code: int
    text: str


def _app_query(ids: Sequence[str]) -> List[str]:
    return query("compute-apps", ("gpu_uuid", "pid", "process_name", "used_memory"), ids)


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


# -------------------------------------------------------------------------------------- output


def query(what: str, fields: Sequence[str], ids: Sequence[str]) -> List[str]:
    """Return the arguments for a query of these fields of `what` (gpu, compute-apps), for the GPUs `ids` or all."""
    arguments = [f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    return [*arguments, "-i", ",".join(ids)] if ids else arguments


def checked(code: int, text: str) -> str:
    """Return `text` if exit status and text are those of a successful query. Raises SmiError otherwise."""
    if code == 0 and NO_DEVICES not in text:
        return text
    line = one_line(next(filter(None, text.split("\n")), "it printed nothing"))
    if NO_DEVICES in text:
        remedy = "In a job, request GPUs from the scheduler. Otherwise use another node, or --gpus 0."
        raise SmiError("none", "nvidia-smi finds no GPU on this node", remedy)
    if "version mismatch" in line:
        remedy = (
            "The driver was updated while in use: an administrator must reboot the node or reload the driver."
        )
    else:
        remedy = (
            "Ask the node's administrator to look at the NVIDIA driver (`nvidia-smi` shows the same error)."
        )
    raise SmiError("driver", f"nvidia-smi fails with exit status {code}: {line}", f"{remedy} {WITHOUT}")


def parse(gpu_text: str, app_text: str, fields: Sequence[str] = FIELDS) -> List[Gpu]:
    """Return the GPUs in the CSV (noheader, nounits) of `--query-gpu=fields` and `--query-compute-apps`.

    Raises SmiError (driver) for anything else: a wrong guess here would take somebody's GPU.
    """
    rows = []
    for line in filter(None, map(str.strip, gpu_text.split("\n"))):
        values = [value.strip() for value in line.split(",", len(fields) - 1)]
        row = dict(zip(fields, values))
        if len(values) != len(fields) or not row["index"].isdigit() or not _known(row["uuid"]):
            raise _unexpected(line)
        rows.append(row)
    processes = _parse_processes(app_text, [row["uuid"] for row in rows])
    return [_gpu(row, processes[row["uuid"]]) for row in rows]


def mig_devices(gpus: Sequence[Gpu], listing: str, report: str) -> List[Gpu]:
    """Return the MIG devices of these GPUs, from the output of `nvidia-smi -L` and `nvidia-smi -q -x`."""
    try:
        instances = parse_instances(listing, report)
    except ValueError as error:
        raise SmiError("driver", f"unexpected output of nvidia-smi -q -x: {error}", WITHOUT) from error
    return [
        Gpu(
            index=gpu.index,
            uuid=one.uuid,
            name=f"{gpu.name}, MIG {one.profile}, device {one.number}",
            memory_total_mib=one.memory_total_mib,
            memory_used_mib=one.memory_used_mib,
            compute_mode=gpu.compute_mode,
            processes=tuple(
                _process(pid, mib, one_line(procfs.command_name(pid)) or "?") for pid, mib in one.processes
            ),
            parent=gpu.uuid,
        )
        for gpu in gpus
        for one in instances.get(gpu.uuid, [])
    ]


def _gpu(row: Mapping[str, str], processes: Sequence[GpuProcess]) -> Gpu:
    return Gpu(
        index=int(row["index"]),
        uuid=row["uuid"],
        name=one_line(row["name"]),
        memory_total_mib=_number(row["memory.total"]),
        memory_used_mib=_number(row["memory.used"]),
        memory_reserved_mib=_number(row.get("memory.reserved", "")),
        utilization=_number(row["utilization.gpu"]),
        compute_mode=_known(row["compute_mode"]),
        mig_mode=_known(row.get("mig.mode.current", "")),
        processes=tuple(processes),
    )


def _parse_processes(text: str, uuids: Sequence[str]) -> Dict[str, List[GpuProcess]]:
    """Parse rows of `uuid, pid, name, memory`. A name may contain commas and newlines: its owner chose it."""
    found: Dict[str, List[GpuProcess]] = {uuid: [] for uuid in uuids}
    any_row = False
    for line in filter(None, map(str.strip, text.split("\n"))):
        uuid, pid, rest = (*line.split(", ", 2), "", "")[:3]
        if uuid in found:
            any_row = True
            name, comma, memory = rest.rpartition(", ")
            path, memory = (name, memory) if comma else (rest, "")
            short = os.path.basename(_known(path) or "") or "?"
            found[uuid].append(_process(_number(pid) or 0, _number(memory), one_line(short)))
        elif not any_row and not line.startswith("No running"):
            raise _unexpected(line)
    return found


def _process(pid: int, memory_mib: Optional[int], name: str) -> GpuProcess:
    return GpuProcess(
        pid, _owner(pid), memory_mib, name, procfs.start_time(pid), procfs.cpu_seconds(pid) if pid else None
    )


def _owner(pid: int) -> str:
    """The name of its user; "?" if the process is hidden (hidepid, another pid namespace) or has ended."""
    uid = procfs.uid_of(pid) if pid else None
    return "?" if uid is None else procfs.user_name(uid)


def _known(value: str) -> Optional[str]:
    """`value`; None if it is "", [N/A], [Not Supported], [Insufficient Permissions], [Not Found] or ERR!."""
    return None if not value or value.startswith("[") or value in ("N/A", "ERR!") else value


def _number(value: str) -> Optional[int]:
    return int(value) if value.isdigit() and value.isascii() else None


def _unexpected(line: str) -> SmiError:
    return SmiError("driver", f"unexpected output of nvidia-smi: {one_line(line)}", WITHOUT)
