"""Who waits for GPUs, as users read it: the text of a waiting cell, and the rows of `gpus --json`."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from typing import Any, Dict, List, Mapping, Sequence

from ...system import procfs
from .turns import WaitingKernel

MOST_LINES = 8
_MOST_ROWS = 100


def place_text(ahead: Sequence[WaitingKernel]) -> str:
    """ " Position 4 in the queue, behind 2 of your kernels and 1 of bob's." """
    ahead = [kernel for kernel in ahead if not kernel.passed]
    if not ahead:
        return " Position 1 in the queue."
    users = Counter(kernel.uid for kernel in ahead)
    yours = users.pop(os.getuid(), 0)
    kernels = [f"{yours} of your kernels"] if yours else []
    kernels += [f"{many} of {procfs.known_user_name(uid)}'s" for uid, many in users.items()]
    return f" Position {len(ahead) + 1} in the queue, behind {' and '.join(kernels)}."


def lines(ahead: Sequence[WaitingKernel], notebooks: Mapping[str, str]) -> List[str]:
    """Return a line for each of these kernels, but no more than MOST_LINES, below a heading; then those that are passed
    over, in the same way. `notebooks`: those of this user's kernels, by id."""
    first = [_line(kernel, notebooks) for kernel in ahead if not kernel.passed]
    passed = [f"{_line(kernel, notebooks)}: {kernel.passed}" for kernel in ahead if kernel.passed]
    return [*_below("These kernels come first:", first), *_below("These places are passed over:", passed)]


def _below(heading: str, shown: List[str]) -> List[str]:
    more = [f"  and {len(shown) - MOST_LINES + 1} more"] if len(shown) > MOST_LINES else []
    return [heading, *(shown[: MOST_LINES - 1] + more if more else shown)] if shown else []


def _line(kernel: WaitingKernel, notebooks: Mapping[str, str]) -> str:
    return f"  {_who(kernel, notebooks)}: {gpu_count(kernel.gpus)}{_since(kernel)}"


def rows(queue: Sequence[WaitingKernel], uuid: str, notebooks: Mapping[str, str]) -> List[Dict[str, Any]]:
    """Return the kernels that wait for this GPU among others, in order, as JSON objects.

    `queue`: all that wait on the node, in order. `notebooks`: those of this user's kernels, by id.
    """
    can_use = [kernel for kernel in queue if kernel.can_use(uuid)]
    return [_row(place, kernel, notebooks) for place, kernel in enumerate(can_use[:_MOST_ROWS], 1)]


def gpu_count(count: int) -> str:
    """ "1 GPU", "2 GPUs"."""
    return "1 GPU" if count == 1 else f"{count} GPUs"


def _row(place: int, kernel: WaitingKernel, notebooks: Mapping[str, str]) -> Dict[str, Any]:
    yours = kernel.uid == os.getuid()
    return {
        "place": place,
        "user": procfs.user_name(kernel.uid),
        "id": kernel.kernel_id,
        "gpus": kernel.gpus,
        "since": None if kernel.since == math.inf else kernel.since,
        "yours": yours,
        "priority": kernel.priority if yours else None,  # that of others makes no difference
        "notebook": notebooks.get(kernel.kernel_id, "") if yours else "",
        "passed": kernel.passed,
    }


def _who(kernel: WaitingKernel, notebooks: Mapping[str, str]) -> str:
    if kernel.uid != os.getuid():
        return procfs.known_user_name(kernel.uid)
    facts = [notebooks.get(kernel.kernel_id, ""), f"priority {kernel.priority}" if kernel.priority else ""]
    known = ", ".join(filter(None, facts))
    return f"your kernel {kernel.kernel_id}" + (f" ({known})" if known else "")


def _since(kernel: WaitingKernel) -> str:
    if kernel.since == math.inf:
        return ""
    return f", since {time.strftime('%b %d %H:%M', time.localtime(kernel.since))}"
