"""What users import in a kernel as `gpu_kernel`, and the line magic `%gpu`.

    import gpu_kernel
    gpu_kernel.status()                # which kernel, which GPUs, what the guard does
    @gpu_kernel.on_sigterm             # called when SIGTERM arrives, on the main thread
    def save(): ...
    with gpu_kernel.hold(): ...        # this kernel is in use, whatever else says
    gpu_kernel.missed()                # what cells did while nobody was there

This file must not know how the guard works or how ipykernel is started; `bind` gives it the guard.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import warnings
from collections import deque
from typing import Any, Callable, ContextManager, Deque, Dict, List, Optional, TypeVar

from .. import procfs
from ..exit.memory import meter
from ..gpus.nvidia_smi import read_gpus
from ..gpus.nvidia_smi_csv import SmiError
from ..keeper.client import KeeperTimeout, ask_keeper
from .guard import Guard
from .usage import Usage

__all__ = ["hold", "missed", "on_sigterm", "status"]

SMI_TIMEOUT = 5.0
F = TypeVar("F", bound=Callable[[], object])
_guard = Guard(Usage())
_given: Optional[List[str]] = None  # the keeper's GPUs, whatever a cell does to the environment
_begun: Deque[str] = deque(maxlen=200)


def bind(guard: Guard) -> None:
    """The guard of this kernel, installed or not."""
    global _guard
    _guard = guard


def status() -> Dict[str, Any]:
    """{id, gpus [uuid], pid, guard: "on" or "off", in_use, sigterms, last_sigterm, memory}.

    `gpus` is empty before there are any. `sigterms` is how many arrived so far, `last_sigterm` a sentence
    that names the last one's sender ("" if none). `memory` is the node's, its cgroup's where that is less, and that of
    this kernel's GPUs, whoever uses it: {node_available_mib, node_total_mib, cgroup_used_mib, cgroup_limit_mib,
    gpu_used_mib, gpu_total_mib}, None: unknown or unlimited. Asks nvidia-smi, which may take a second.
    """
    gpus = [uuid for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid]
    return {
        "id": os.environ.get("JUPYTER_GPU_KERNEL_ID", ""),
        "gpus": gpus,
        "pid": os.getpid(),
        "guard": "on" if _guard.on else "off",
        "in_use": _guard.usage.in_use(),
        "sigterms": _guard.count,
        "last_sigterm": _guard.last,
        "memory": {**meter(), **_gpu_memory(gpus)},
    }


def _gpu_memory(uuids: List[str]) -> Dict[str, Optional[int]]:
    """Sums over these GPUs; None where there are none, or one does not tell."""
    meters: Dict[str, Optional[int]] = {"gpu_used_mib": None, "gpu_total_mib": None}
    try:
        gpus = [gpu for gpu in read_gpus(SMI_TIMEOUT) if gpu.uuid in uuids] if uuids else []
    except SmiError:
        return meters  # a meter that cannot be read is no error of the cell that looks
    for name, values in (
        ("gpu_used_mib", [gpu.memory_used_mib for gpu in gpus]),
        ("gpu_total_mib", [gpu.memory_total_mib for gpu in gpus]),
    ):
        known = [value for value in values if value is not None]
        meters[name] = sum(known) if known and len(known) == len(uuids) else None
    return meters


def on_sigterm(function: F) -> F:
    """Call `function()` on the main thread whenever SIGTERM arrives; usable as a decorator.

    A failure is shown and ends nothing. In a kernel that is not in use, and so ends, all functions together
    have 10 s. The same function twice, as when its cell runs again, counts once: the name decides.
    """
    if not _guard.installed:
        warnings.warn("the guard is not installed in this kernel: on_sigterm has no effect", stacklevel=2)
    _guard.hooks.add(function)
    return function


def hold() -> ContextManager[None]:
    """A context manager: inside it this kernel is in use, from any thread."""
    return _guard.usage.hold()


def missed(show: bool = False) -> List[Dict[str, Any]]:
    """What cells did while nobody was there: [{msg_id, code, cell_id, status, execution_count, started, finished,
    outputs (how many), dropped}].

    `show`: their outputs appear below, in order; after that they count as seen. [] where there is no keeper.
    """
    request: Dict[str, Any] = {"do": "missed"}
    if show:
        request["parent"] = _this_cell()
    answer = _ask_keeper(request)
    return list((answer or {}).get("cells", []))


def _ask_keeper(request: Dict[str, Any]) -> Optional[Dict[str, Any]]:
    """None where there is no keeper, or none that answers."""
    try:
        return ask_keeper(_guard.keeper, request) if _guard.keeper else None
    except KeeperTimeout:
        return None


def _this_cell() -> str:
    """The header of the request that runs, as the front end wrote it."""
    return str(json.dumps(_header(), default=str))


def _header() -> Dict[str, Any]:
    ipython: Any = sys.modules["IPython"]
    return dict(ipython.get_ipython().kernel.get_parent("shell")["header"])


def take_gpus(uuids: List[str]) -> bool:
    """For the keeper, before the first user cell: CUDA sees exactly these GPUs.

    True if libcuda was mapped into this process already, and so may have looked at the environment too early.
    """
    global _given
    _given = list(uuids)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return bool(procfs.maps_file("self", "/libcuda.so"))


def skip(number: int) -> None:
    """For the keeper, which answered cells itself: the kernel's own get numbers after this one."""
    ipython: Any = sys.modules["IPython"]
    shell = ipython.get_ipython()
    shell.execution_count = max(shell.execution_count, number + 1)


def given(born: str) -> List[str]:
    """The GPUs that the keeper gave; `born`: CUDA_VISIBLE_DEVICES as it was at first."""
    return [uuid for uuid in born.split(",") if uuid] if _given is None else _given


def begin(request: Dict[str, Any]) -> None:
    """This cell came here."""
    _begun.append(str(request.get("header", {}).get("msg_id")))


def begun() -> List[str]:
    """For a keeper in a killed one's place: the msg_ids of the last cells that came here."""
    return list(_begun)


def magic(line: str) -> None:
    """%gpu [status | missed | fresh | guard on | guard off]"""
    words = line.split() or ["status"]
    if words == ["status"]:
        print("\n".join(f"{name:13} {_shown(value)}" for name, value in status().items()))
    elif words == ["missed"]:
        if not missed(show=True):
            print("Nothing was missed.")
    elif words == ["fresh"]:
        print(_fresh())
    elif words in (["guard", "on"], ["guard", "off"]):
        print(_switch(words[1] == "on"))
    else:
        print("usage: %gpu [status | missed | fresh | guard on | guard off]")


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {'-' if one is None else one}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) or "none yet") if isinstance(value, list) else str(value)


def _fresh() -> str:
    """A new process in this one's place: same GPUs, no variables."""
    answer = _ask_keeper({"do": "fresh", "cell": _header()["msg_id"]})
    if answer is None:
        return "There is no keeper that could start a new kernel: restart it from the notebook's menu."
    return "A new kernel follows, with the same GPUs and no variables."


def _switch(on: bool) -> str:
    if not _guard.installed:
        return 'This kernel was started without the guard (sigterm = "default"), which cannot be made up for.'
    if threading.current_thread() is not threading.main_thread():
        return "The guard is switched in the main shell, not in a subshell."
    _guard.switch(on)
    return "guard on" if on else "guard off: SIGTERM ends this kernel as it would any other"
