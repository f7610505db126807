"""Collects the facts of a kernel's end: counters before and after, memory of late, what its process wrote last,
and, where the death asks for it, a look at disks and GPUs. What they mean is decided in deaths.py.

Nothing here may hang with the node: what can (a dead file server, a driver) runs in a process that is left behind.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Deque, Dict, List, Mapping, Optional

from ..gpus.nvidia_smi import NvidiaSmi
from ..gpus.nvidia_smi_csv import SmiError
from ..in_kernel.signal_rules import MEMORY_DAEMONS
from ..loop import Loop, Timer
from ..procfs import boot_id, command_name, pids
from .memory import Cgroup, node_mib, node_oom_kills
from .reason import CRASHES, UNKNOWN, Facts

EVERY = 2.0
"""Seconds between two looks at the memory; the last SAMPLES of them count."""
SAMPLES = 10
RECENT = 120.0
"""Seconds after a SIGTERM within which a SIGKILL is taken for what follows it."""
PATIENCE = 3.0
"""Seconds that a look at the disks, or at the GPUs, may take."""
_TRACE = 256 * 1024
_JOBS = {
    "SLURM_JOB_ID": "Slurm job",
    "PBS_JOBID": "PBS job",
    "LSB_JOBID": "LSF job",
    "JOB_ID": "Grid Engine job",
}
_PROBE = """
import errno, os, sys, tempfile
bad = (errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO)
for folder in sys.argv[1:]:
    print(folder, end="", flush=True)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        print("\\0", flush=True)
    except OSError as error:
        print("\\0" + (os.strerror(error.errno) if error.errno in bad else ""), flush=True)
"""


class FactCollector:
    """`began(pid)` with every kernel process, `facts(…)` once it is gone."""

    def __init__(self, loop: Loop, stderr: Path) -> None:
        self._sent = 0  # the last signal that was sent for a front end
        self._why = ""  # why it was requested to stop
        self._loop = loop
        self._stderr = stderr
        self._timer: Optional[Timer] = None

    def began(self, pid: int) -> Dict[str, Any]:
        """What the story should know of the start: {boot, cgroup, job, keeper}."""
        self._sent, self._why = 0, ""
        self._cgroup = Cgroup(pid)
        self._kills = self._counted()
        self._available: Deque[float] = deque(maxlen=SAMPLES)
        if self._timer is not None:
            self._timer.cancel()
        self._look()
        place = {"cgroup": own_cgroup(), "job": job(os.environ), "keeper": os.getpid()}
        return dict(place, boot=boot_id())

    def signal_sent(self, number: int) -> None:
        """This signal was sent to the kernel for a front end."""
        self._sent = number

    def stop_requested(self, why: str) -> None:
        """The kernel was requested to stop, for this reason."""
        self._why = why

    def facts(self, returncode: int, asked: str = "", term: Optional[Mapping[str, Any]] = None) -> Facts:
        """What was seen of the end, and before. `term`: the story's last entry about a SIGTERM."""
        if self._timer is not None:
            self._timer.cancel()
        kills = self._counted()
        return Facts(
            returncode,
            asked,
            self._why,
            self._sent,
            term=_fresh(term),
            cgroup_kills=kills[0] - self._kills[0],
            node_kills=kills[1] - self._kills[1],
            limit_mib=self._cgroup.limit_mib(),
            available=min(self._available, default=None),
            trace=self._last_words(),
            job=job(os.environ),
        )

    def _look(self) -> None:
        memory = node_mib()
        if memory is not None and memory[1]:
            self._available.append(memory[0] / memory[1])
        self._timer = self._loop.later(EVERY, self._look)

    def _counted(self) -> List[int]:
        return [self._cgroup.oom_kills() or 0, node_oom_kills() or 0]

    def _last_words(self) -> str:
        try:
            data = self._stderr.read_bytes()[-_TRACE:]
        except OSError:
            return ""
        text = data.decode("utf-8", "replace")
        return "".join(one for one in text if one.isprintable() or one in "\n\t")


def searched(facts: Facts, gpus: List[str]) -> Facts:
    """With what is looked for only where it may be the reason: daemons, disks, GPUs (UUIDs). Blocks for seconds."""
    if facts.returncode in (-signal.SIGKILL, UNKNOWN):
        facts = facts._replace(memory_daemon=memory_daemon())
    if facts.returncode > 0 or -facts.returncode in CRASHES:
        places = [os.path.expanduser("~"), tempfile.gettempdir(), "/dev/shm"]
        with contextlib.suppress(OSError):  # the node starts no process any more: less is known
            facts = facts._replace(full=full_places(places))
            facts = facts._replace(gpu=gpu_trouble(gpus))
    return facts


def _fresh(term: Optional[Mapping[str, Any]]) -> Mapping[str, Any]:
    if not term or time.time() - float(term.get("time", 0)) > RECENT:
        return {}
    return dict(term, clock=time.strftime("%H:%M:%S", time.localtime(float(term["time"]))))


def full_places(places: List[str]) -> List[str]:
    """Of these folders those where nothing more can be written, with the system's word for why."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROBE, *places],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        said = process.communicate(timeout=PATIENCE)[0]
    except subprocess.TimeoutExpired as error:
        process.kill()  # which may have no effect; nobody waits for it
        said = error.stdout or b""
    found = []
    for line in said.decode("utf-8", "replace").splitlines():
        place, told, problem = line.partition("\0")
        if problem or not told:
            found.append(f"{place}: {problem or 'its storage does not answer'}")
    return found


def gpu_trouble(uuids: List[str]) -> str:
    """What is wrong with one of these GPUs now; "" if nothing, or there are none."""
    if not uuids:
        return ""
    try:
        known = {gpu.uuid: gpu for gpu in NvidiaSmi().read(PATIENCE)}
    except SmiError as error:
        return f"the GPUs: {error.cause}" if error.code in ("driver", "hang", "none") else ""
    lost = [uuid for uuid in uuids if uuid not in known]
    if lost:
        return f"{lost[0]} has fallen off: nvidia-smi does not list it any more"
    ill = [f"GPU {known[uuid].index}: {known[uuid].problem}" for uuid in uuids if known[uuid].problem]
    return ill[0] if ill else ""


def memory_daemon() -> str:
    """The name of a daemon that ends processes when memory is short, if one runs here."""
    return next((name for name in map(command_name, pids()) if name in MEMORY_DAEMONS), "")


def own_cgroup() -> str:
    """This process's place in the tree, which names a login session or a job."""
    try:
        return Path("/proc/self/cgroup").read_text(errors="replace").strip().rpartition(":")[2]
    except OSError:
        return ""


def job(environ: Mapping[str, str]) -> str:
    """The scheduler's job we run in, in words; "" if none."""
    return next((f"{name} {environ[key]}" for key, name in _JOBS.items() if environ.get(key)), "")
