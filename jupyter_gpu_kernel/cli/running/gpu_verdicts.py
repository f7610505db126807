"""What `check --gpu` concludes from what a kernel reports of the driver and the frameworks: verdicts with remedies.

Pure functions. Frameworks say themselves why they fail: their words are quoted, and a few of them choose a remedy. The
words of the node are in messages only; the remedies are ours.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import GpuKernelError
from ...hub import sanitize

FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX", "cupy": "CuPy"}
_INSTALL = {
    "torch": "https://pytorch.org/get-started/locally/",
    "tensorflow": "https://www.tensorflow.org/install/pip",
    "jax": "https://docs.jax.dev/en/latest/installation.html",
    "cupy": "https://docs.cupy.dev/en/stable/install.html",
}
_REBOOT = (
    "The NVIDIA driver was updated while it was in use: an administrator must reboot the node or reload the driver. "
    "If LD_LIBRARY_PATH names a folder with another libcuda.so, remove it from there."
)
_CPU_ONLY = "the CPU only"
_REMEDIES = (
    ("driver/library version mismatch|SYSTEM_DRIVER_MISMATCH|unsupported display driver", _REBOOT),
    (
        "driver on your system is too old|driver version is insufficient|Outdated CUDA installation|which is newer|"
        "unsupported toolchain|UNSUPPORTED_PTX_VERSION",
        "The driver is too old for this build. Install a build for {cuda}: see {page}. Or ask the node's administrator "
        "for a newer driver.",
    ),
    (
        "no kernel image is available|NO_BINARY_FOR_GPU|device kernel image is invalid",
        "This build has no code for this GPU. Install one that supports it: see {page}.",
    ),
    (
        "out of memory|OUT_OF_MEMORY|OOM when allocating|RESOURCE_EXHAUSTED",
        "Another process may have begun to use the GPU: try again.",
    ),
    (f"{_CPU_ONLY}|not compiled with CUDA|Unknown backend", "Install a build for GPUs: see {page}."),
    (
        "",
        "Try “{python} -c 'import {name}'” on the node. If LD_LIBRARY_PATH names a folder with other CUDA libraries, "
        "remove it from there (--setup). Otherwise install another build: see {page}.",
    ),
)
"""What a framework says, as a regular expression, and the remedy. The first one that is found counts."""


@dataclass(frozen=True)
class StackVerdict:
    """`checked` is false where a GPU would have been needed, and none was free. `remedy` is "" if `ok`."""

    ok: bool
    message: str
    remedy: str = ""
    checked: bool = True


def judge_driver(facts: Mapping[str, Any], error: GpuKernelError | None) -> StackVerdict:
    """Judge the driver and the GPUs. `error`: why the GPUs cannot be read."""
    if error is not None:
        mismatch = "mismatch" in error.cause
        return StackVerdict(False, sanitize.one_line(error.cause), _REBOOT if mismatch else error.remedy)
    names: list[str] = facts["gpus"]
    gpus = ", ".join(f"{names.count(name)} × {name or '?'}" for name in dict.fromkeys(names)) or "no GPU"
    cuda = f", which supports CUDA up to {facts['cuda']}" if facts["cuda"] else ""
    driver = f"driver {facts['driver']}{cuda}" if facts["driver"] else "the driver answers"
    return StackVerdict(True, f"{driver}; {gpus}")


def judge_framework(name: str, python: str, cuda: str, answer: Mapping[str, Any]) -> StackVerdict:
    """Judge one framework by what it is, what it says, and what it computed.

    python: The kernel's. cuda: The newest CUDA that the driver supports, as the node says.
    """
    version, built_for = answer.get("version") or "", answer.get("built_for") or ""
    what = f"{version} (built for {built_for})" if built_for else version
    failure = _failure(name, answer)
    if built_for == _CPU_ONLY and not failure:
        failure = "it computes on the CPU"
    if failure:
        return StackVerdict(
            False, f"{what}: {failure}" if what else failure, _remedy(name, python, cuda, answer)
        )
    if answer.get("right"):
        return StackVerdict(True, f"{what}: computes correctly on {answer.get('gpu_name') or 'the GPU'}")
    why_not = answer.get("no_gpu") or "no GPU is free"
    return StackVerdict(True, f"{what}: not checked on a GPU: {why_not}", checked=False)


def _failure(name: str, answer: Mapping[str, Any]) -> str:
    """What is wrong, in the words of the framework if it has any; "" if nothing is known to be wrong."""
    stage = "while it computed" if answer.get("version") else "while it was imported"
    printed = (answer.get("output") or "").splitlines()[-1:]
    last = "".join(f"; it printed: {sanitize.one_line(line)}" for line in printed)
    if answer.get("late"):
        return f"did not end in time {stage}{last}"
    if answer.get("raised"):
        return f"fails {stage}; {FRAMEWORKS[name]} says: {sanitize.one_line(answer['raised'], 300)}{last}"
    if answer.get("ended"):
        return f"{answer['ended']} {stage}{last}"
    return "computes wrong numbers" if answer.get("right") is False else ""


def _remedy(name: str, python: str, cuda: str, answer: Mapping[str, Any]) -> str:
    if answer.get("late"):
        return "Try again: a first import from a slow file system takes long."
    text = f"{answer.get('built_for')}\n{answer.get('raised')}\n{answer.get('output')}"
    remedy = next(remedy for pattern, remedy in _REMEDIES if re.search(pattern, text, re.IGNORECASE))
    older = f"CUDA {cuda} or older" if re.fullmatch(r"[0-9.]{1,20}", cuda) else "an older CUDA"
    return remedy.format(name=name, python=shlex.quote(python), page=_INSTALL[name], cuda=older)


def conclude(verdicts: Mapping[str, StackVerdict], python: str, driver: StackVerdict) -> StackVerdict:
    """Say in one sentence whether the frameworks can use the GPUs."""
    if not verdicts:
        text = f"{python} has none of {', '.join(FRAMEWORKS)}, so nothing was tried"
        return StackVerdict(driver.ok, text, checked=False)
    words = {
        "can use the GPUs": [FRAMEWORKS[name] for name, one in verdicts.items() if one.ok and one.checked],
        "cannot use the GPUs": [FRAMEWORKS[name] for name, one in verdicts.items() if not one.ok],
        "not checked on a GPU": [FRAMEWORKS[name] for name, one in verdicts.items() if not one.checked],
    }
    text = "; ".join(f"{_listed(names)} {what}" for what, names in words.items() if names)
    return StackVerdict(
        all(one.ok for one in (driver, *verdicts.values())), text, checked=not words["not checked on a GPU"]
    )


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
