"""The module `gpu_kernel` that users import in a kernel, and the line magic `%gpu`.

    import gpu_kernel
    gpu_kernel.status()                # which kernel, which GPUs, what the guard does
    @gpu_kernel.on_sigterm             # called when SIGTERM arrives, on the main thread
    def save(): ...
    @gpu_kernel.on_done                # called when a cell that took a minute or more has ended, on another thread
    def notify(cell): ...
    with gpu_kernel.hold(): ...        # this kernel is in use in here
    gpu_kernel.missed()                # what cells did while no front end was attached
    gpu_kernel.hosts()                 # in a job: the names of its machines

The keeper calls `take_gpus`, `take_code` and `skip` by name. This module does not know how the guard works or
how ipykernel is started.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import warnings
from typing import Any, Callable, ContextManager, Dict, List, Optional, TypeVar, Union, overload

from ...wire.slurm import expand
from ...wire.texts import duration, wrapped
from ..exit.node_checks import read_memory
from ..gpus.devices.gpu import SmiError, variables, visible_uuids
from ..gpus.devices.gpu_reader import device_variable, gpu_reader
from ..keeper.client import KeeperTimeout, ask_keeper
from ..system import procfs
from ..system.agent_runtime import AgentRuntime
from . import pinned_imports
from .done_functions import AFTER, Cell, DoneFunctions
from .guard import Guard
from .usage import Usage

__all__ = ["hold", "hosts", "missed", "on_done", "on_sigterm", "remove_on_done", "status"]

SMI_TIMEOUT = 5.0
F = TypeVar("F", bound=Callable[[], object])
D = TypeVar("D", bound=Callable[[Cell], object])
_guard = Guard(Usage())
done_functions = DoneFunctions(lambda request, text: _guard.report_failure(request, text))
_given: List[str] = []  # the GPUs from the keeper, also if a cell changes the environment
_code: Dict[str, Any] = {}  # the pinned code, from the keeper


def bind(guard: Guard) -> None:
    """Set the guard of this kernel, which may not be installed, before any cell runs."""
    global _guard, _given
    _guard, _given = guard, visible_gpus()


def status() -> Dict[str, Any]:
    """Return {id, gpus [uuid], gpu_names, pid, guard: "on" or "off", in_use, sigterms, last_sigterm, placement,
    ignored_leases, job, memory, code, on_done}.

    `gpus` and `gpu_names` (“GPU 0 (NVIDIA A100)”) are empty until the kernel has GPUs. `sigterms` counts the SIGTERMs
    so far, and `last_sigterm` is a sentence about the last one and its sender ("" if there was none). `placement` says
    why this host was chosen, "" if the kernelspec names only one. `ignored_leases` are texts about leases of others
    that this kernel ignores. `job` is {id, partition, node, hosts, end_time, seconds_left} of the Slurm job in which
    the kernel runs, or {}; the last two are None if the job has no limit, or if that is unknown. `memory` is
    {node_available_mib, node_total_mib, cgroup_used_mib, cgroup_limit_mib, gpu_used_mib, gpu_total_mib}: of the node,
    of its cgroup if that has a limit, and of this kernel's GPUs (by all processes); None is unknown or unlimited. Runs
    nvidia-smi or rocm-smi, which may take a second. `code` is {revision, commit, subject, repository, folder, changes}
    of pinned code, or {}: `folder` is the checkout, `changes` the number of changed and new files of the repository
    that were not committed (None: unknown). `on_done`: the functions of `on_done`.
    """
    known = _ask_keeper({"do": "status"}) or {}
    job = _job_status(known.get("job") or {})
    gpus = list(known.get("gpus") or []) if job else visible_gpus()  # Slurm's variable has numbers
    return {
        "id": os.environ.get("JUPYTER_GPU_KERNEL_ID", ""),
        "gpus": gpus,
        "gpu_names": list(known.get("gpu_names") or []),
        "pid": os.getpid(),
        "guard": "on" if _guard.on else "off",
        "in_use": _guard.usage.in_use(),
        "sigterms": _guard.count,
        "last_sigterm": _guard.last,
        "placement": str(known.get("placement") or ""),
        "ignored_leases": list(known.get("ignored_leases") or []),
        "job": job,
        "memory": {**read_memory(), **_gpu_memory(gpus)},
        "code": _code_status(),
        "on_done": done_functions.names,
    }


def _job_status(job: Dict[str, Any]) -> Dict[str, Any]:
    if not job:
        return {}
    end = job.get("end_time")
    remaining = None if end is None else max(0, round(end - time.time()))
    return {**job, "seconds_left": remaining}


def hosts() -> List[str]:
    """Return the names of the machines of the Slurm job in which the kernel runs, its own first; [] outside of a job.

    `srun` in a cell starts programs on them.
    """
    try:
        return expand(os.environ.get("SLURM_JOB_NODELIST", ""))
    except ValueError:
        return []


def _code_status() -> Dict[str, Any]:
    if not _code:
        return {}
    known = {name: _code[name] for name in ("revision", "commit", "subject", "repository", "changes")}
    return dict(known, folder=_code["tree"])


def _gpu_memory(uuids: List[str]) -> Dict[str, Optional[int]]:
    """The sums over these GPUs; None if there are none, or if one is unknown."""
    totals: Dict[str, Optional[int]] = {"gpu_used_mib": None, "gpu_total_mib": None}
    try:
        smi = gpu_reader(AgentRuntime())
        gpus = [gpu for gpu in smi.read(SMI_TIMEOUT) if any(map(gpu.is_named, uuids))] if uuids else []
    except SmiError:
        return totals  # unknown memory is no error of the cell
    for name, values in (
        ("gpu_used_mib", [gpu.memory_used_mib for gpu in gpus]),
        ("gpu_total_mib", [gpu.memory_total_mib for gpu in gpus]),
    ):
        known = [value for value in values if value is not None]
        totals[name] = sum(known) if known and len(known) == len(uuids) else None
    return totals


def on_sigterm(function: F) -> F:
    """Call `function()` on the main thread whenever SIGTERM arrives; usable as a decorator.

    If it fails, the error is shown and the cell goes on. In a kernel that is not in use, and therefore ends, all
    functions together have 10 s. A function replaces one of the same name, as when its cell runs again.
    """
    if not _guard.installed:
        warnings.warn("the guard is not installed in this kernel: on_sigterm has no effect", stacklevel=2)
    _guard.hooks.add(function)
    return function


@overload
def on_done(function: D, *, after: float = ...) -> D: ...
@overload
def on_done(*, after: float = ...) -> Callable[[D], D]: ...
def on_done(function: Optional[D] = None, *, after: float = AFTER) -> Union[D, Callable[[D], D]]:
    """Call `function(cell)` when a cell that took `after` seconds or more has ended; usable as a decorator, with or
    without `after`. Also while no front end is attached.

    `cell` has text (a sentence), status ("ok", "error" or "interrupted"), error, seconds, execution_count, code (its
    first line), started, finished, node and kernel. The functions run on a thread, one after another, and the next cell
    does not wait for them. If one fails, the cell that has ended shows it, and so does the kernel's log. A function
    replaces one of the same name, as when its cell runs again; `remove_on_done` removes it. When the kernel is shut
    down, functions that have not returned have 4 s.
    """
    if function is None:
        return lambda function: on_done(function, after=after)
    if not callable(function):
        raise TypeError("on_done needs a function: on_done(function, after=60)")
    done_functions.add(function, float(after))
    return function


def remove_on_done(function: Optional[Callable[[Cell], object]] = None) -> int:
    """Undo `on_done` for a function, or for all. Return how many functions were removed."""
    return done_functions.remove(function)


def hold() -> ContextManager[None]:
    """Return a context manager in which this kernel is in use; for any thread."""
    return _guard.usage.hold()


def missed(show: bool = False) -> List[Dict[str, Any]]:
    """Return what cells did while no front end was attached: [{msg_id, code, cell_id, status, execution_count, started,
    finished, outputs (how many), dropped}]; [] if there is no keeper.

    With `show` their outputs appear below, in order; after that they count as seen.
    """
    request: Dict[str, Any] = {"do": "missed"}
    if show:
        request["parent"] = json.dumps(_header(), default=str)
    answer = _ask_keeper(request)
    return list((answer or {}).get("cells", []))


def _ask_keeper(request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """The keeper's answer; None if there is no keeper, or if it does not answer."""
    try:
        return ask_keeper(_guard.keeper_socket, request) if _guard.keeper_socket else None
    except KeeperTimeout:
        return None


def _header() -> Dict[str, Any]:
    """The header of the running request."""
    ipython: Any = sys.modules["IPython"]
    return dict(ipython.get_ipython().kernel.get_parent("shell")["header"])


def take_gpus(uuids: List[str]) -> bool:
    """For the keeper, before the first user cell: let CUDA or ROCm see exactly these GPUs.

    Returns True if this process has opened the driver already, which may have read the environment before.
    """
    global _given
    # A keeper's successor says it again, and a cell may have changed the environment since.
    if uuids != _given:
        _given = list(uuids)
        os.environ.update(variables(uuids, device_variable()))
    return bool(procfs.has_opened_gpus(os.getpid()))


def visible_gpus() -> List[str]:
    """Return the GPUs that this process's environment makes visible."""
    return visible_uuids(os.environ, device_variable())


class CodeError(RuntimeError):
    """The code cannot be pinned."""


def take_code(code: Dict[str, Any], cell: str) -> None:
    """For the keeper, before the first user cell: work in this code, for the cell with this msg_id ("": since the
    start)."""
    if not cell and _code.get("tree") == code["tree"]:
        return  # a keeper's successor says it again
    os.chdir(code["cwd"])
    places = [code["repository"], *([_code["tree"]] if _code else [])]
    early = pinned_imports.redirect(places, code["tree"])
    _code.clear()
    _code.update(code, cell=cell)
    if early:
        _code["warnings"] = [
            *code["warnings"],
            f"These modules were imported before: {', '.join(early[:10])}.",
        ]


def skip(number: int) -> None:
    """For the keeper, which has answered cells itself: number the next cells from after `number`."""
    ipython: Any = sys.modules["IPython"]
    shell = ipython.get_ipython()
    shell.execution_count = max(shell.execution_count, number + 1)


def magic(line: str) -> None:
    """%gpu [status | missed | fresh | code REV | guard on | guard off]"""
    words = line.split() or ["status"]
    if words == ["status"]:
        rows = {
            name: value for name, value in status().items() if name == "gpus" or value not in ("", [], {})
        }
        for name, value in rows.items():
            print(wrapped(f"{name:14} {_shown(name, value)}", indent=" " * 15))
        if visible_gpus() and _torch_without_gpu():
            print(
                "This torch is a build without CUDA. “jupyter gpu-kernel check NAME --gpu” shows one that fits."
            )
    elif words == ["missed"]:
        if not missed(show=True):
            print("Nothing was missed.")
    elif words == ["fresh"]:
        print(_fresh())
    elif words[0] == "code":
        print(wrapped(_pinned(asked=len(words) > 1)))
    elif words in (["guard", "on"], ["guard", "off"]):
        print(_switch(words[1] == "on"))
    else:
        print("usage: %gpu [status | missed | fresh | code REV | guard on | guard off]")


def _torch_without_gpu() -> bool:
    """Whether torch is imported here, and is a build for the CPU."""
    version = getattr(sys.modules.get("torch"), "version", None)
    builds = [getattr(version, name, "unknown") for name in ("cuda", "hip")]
    return version is not None and not any(builds)


def _shown(name: str, value: Any) -> str:
    if name == "job":
        return _shown_job(value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {'-' if one is None else one}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) or "none") if isinstance(value, list) else str(value)


def _shown_job(job: Dict[str, Any]) -> str:
    where = ", ".join(job["hosts"][:8]) + (" …" if len(job["hosts"]) > 8 else "")
    text = f"{job['id']} in the partition {job['partition']}, on {where}"
    if job["seconds_left"] is None:
        return text
    clock = time.strftime("%H:%M on %Y-%m-%d", time.localtime(job["end_time"]))
    return f"{text}; it ends at {clock}, in {duration(round(job['seconds_left']))}"


def _pinned(asked: bool) -> str:
    """The pinned code, which the keeper has pinned before this cell. `asked`: the cell is to pin it."""
    if asked and _code.get("cell") != _header()["msg_id"]:
        raise CodeError(
            "“%gpu code REV” must be the first line of the first cell. Restart the kernel, and run it first."
        )
    if not _code:
        return "The code of this kernel is not pinned."
    return "\n".join([f"This kernel runs {_code['text']}.", *_code["warnings"]])


def _fresh() -> str:
    """Have the keeper replace this process by a new one with the same GPUs."""
    answer = _ask_keeper({"do": "fresh", "cell": _header()["msg_id"]})
    if answer is None:
        return (
            "No keeper is running that could start a new kernel. Restart the kernel from the notebook's menu."
        )
    return "A new kernel starts now, with the same GPUs and without variables."


def _switch(on: bool) -> str:
    if not _guard.installed:
        return (
            'This kernel was started without the guard (sigterm = "default"); it cannot be switched on later.'
        )
    if threading.current_thread() is not threading.main_thread():
        return "The guard can be switched only in the main shell, not in a subshell."
    _guard.switch_by_user(on)
    return "guard on" if on else "guard off: SIGTERM ends this kernel, as any other kernel"
