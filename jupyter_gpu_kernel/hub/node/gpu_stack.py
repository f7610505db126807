"""What is known of a node's GPUs and driver, and what `check --gpu` concludes from it and from the frameworks.

Pure functions of recorded facts (the answers to the request `stack`). Versions of the node become part of remedies,
which are ours; its other words do not.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import sanitize
from . import cuda_versions as cuda

FRAMEWORKS = ("torch", "tensorflow", "jax")
NAMES = {"torch": "PyTorch", "tensorflow": "TensorFlow", "jax": "JAX"}
REBOOT = (
    "The NVIDIA driver was updated while it was in use: an administrator must reboot the node or reload the driver. "
    "If LD_LIBRARY_PATH names a folder with another libcuda.so, remove it from there."
)
ADMIN = "Ask the node's administrator to look at the NVIDIA driver, or use another node."


@dataclass(frozen=True)
class Verdict:
    """`checked` is false where a GPU would have been needed, and none was free. `remedy` is "" if `ok`."""

    ok: bool
    message: str
    remedy: str = ""
    checked: bool = True


@dataclass(frozen=True)
class NodeStack:
    """What is known of the node. `python` is the kernel's."""

    python: str
    driver: str = ""
    reported_cuda: str = ""
    capabilities: tuple[str, ...] = ()
    amd: bool = False

    @classmethod
    def from_answer(cls, python: str, answer: dict[str, Any]) -> NodeStack:
        """From the answer about the node."""
        known = {number(gpu.get("capability")) for gpu in answer.get("gpus", [])} - {""}
        driver, newest = number(answer.get("driver")), number(answer.get("cuda"))
        amd = answer.get("amd") is True
        return cls(python, driver, newest, tuple(sorted(known, key=cuda.parse)), amd)

    @property
    def cuda(self) -> cuda.Version:
        """The newest CUDA that the driver serves, () if that is unknown."""
        return cuda.served(self.driver, self.reported_cuda)

    @property
    def driver_words(self) -> str:
        """The driver, as a phrase."""
        newest = f", which serves CUDA up to {cuda.dotted(self.cuda)}" if self.cuda else ""
        return f"driver {self.driver}{newest}" if self.driver else "a driver of unknown version"

    def install(self, name: str, capability: str) -> str:
        """The command that installs a build that fits, as a sentence; what to do if there is none."""
        if self.amd:
            return (
                f"Install a build of {NAMES[name]} for the node's ROCm (rocm-smi shows the driver's version)."
            )
        packages = cuda.packages(name, self.cuda, self.driver, capability)
        if packages:
            return f"On the node run: {shlex.quote(self.python)} -m pip install {packages}"
        if not self.cuda:
            return "Install a build for a CUDA that the driver serves: nvidia-smi shows it as “CUDA Version”."
        gpu = f" and a GPU of compute capability {capability}" if capability else ""
        what = f"No present build of {NAMES[name]} fits {self.driver_words}{gpu}"
        return f"{what}: use an older release, or another node."


def judge_driver(node: NodeStack, answer: dict[str, Any]) -> Verdict:
    """Judge the driver and the GPUs."""
    if problem := answer.get("problem"):
        text = sanitize.one_line(str(problem["text"]))
        remedies = {"driver": REBOOT if "mismatch" in text else ADMIN, "hang": ADMIN}
        absent = "If the node has GPUs, add the folder of nvidia-smi to PATH (--setup). Otherwise use another node."
        return Verdict(False, text, remedies.get(str(problem["code"]), absent))
    driver = "AMD's driver" if node.amd else node.driver_words
    return Verdict(True, f"{driver}; {_gpu_words(answer.get('gpus', []))}")


def number(value: Any) -> str:
    """The value if it is a version, else "": it becomes part of remedies, which are ours."""
    return value if isinstance(value, str) and re.fullmatch(r"[0-9.]{1,20}", value) else ""


def _gpu_words(gpus: Sequence[dict[str, Any]]) -> str:
    kinds: dict[str, int] = {}
    for gpu in gpus:
        capability = str(gpu.get("capability") or "")
        kind = f"{gpu.get('name') or '?'}" + (f" ({arch_name(capability)})" if capability else "")
        kinds[kind] = kinds.get(kind, 0) + 1
    return ", ".join(f"{many} × {kind}" for kind, many in kinds.items()) or "no GPU"


def conclude(verdicts: dict[str, Verdict], node: NodeStack, driver: Verdict) -> Verdict:
    """Say in one sentence whether the frameworks can use the GPUs."""
    if not verdicts:
        hint = node.install("torch", node.capabilities[0] if len(node.capabilities) == 1 else "")
        text = f"{node.python} has neither torch nor tensorflow nor jax, so nothing was tried. For PyTorch: {hint}"
        return Verdict(driver.ok, text, checked=False)
    good = [NAMES[name] for name, one in verdicts.items() if one.ok and one.checked]
    open_ = [NAMES[name] for name, one in verdicts.items() if not one.checked]
    bad = [NAMES[name] for name, one in verdicts.items() if not one.ok]
    parts = [f"{' and '.join(good)} can use the GPUs"] if good else []
    parts += [f"{' and '.join(bad)} cannot use the GPUs"] if bad else []
    parts += [f"nothing speaks against {' and '.join(open_)}, but no computation was tried"] if open_ else []
    return Verdict(not bad and driver.ok, "; ".join(parts), checked=not open_)


def arch_name(capability: str) -> str:
    """Return "sm_86" for the compute capability "8.6"."""
    return "sm_" + capability.replace(".", "") if capability else "of unknown compute capability"
