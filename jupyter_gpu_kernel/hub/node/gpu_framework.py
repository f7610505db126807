"""Judges one framework by what it is, what it loaded, and what it computed: whether it can use the GPUs, and if not,
why, and what to install instead.

Pure functions of recorded facts (the answers to the request `stack`). The node's words are in messages only; the
remedies are ours.
"""

from __future__ import annotations

import posixpath
import re
import shlex
import signal
from collections.abc import Sequence
from typing import Any

from .. import sanitize
from . import cuda_versions as cuda
from .gpu_stack import ADMIN, REBOOT, NodeStack, Verdict, arch_name, number

_REMOVE = "Remove that folder from LD_LIBRARY_PATH (--setup, --env, or ~/.bash_profile): wheels bring their own CUDA."
_FIND_DRIVER = (
    "The driver's library, libcuda.so.1, is not found. If “ldconfig -p” on the node does not list it, ask the node's "
    "administrator; in a container, start it with the GPUs (--gpus, --nv)."
)
_EARLY = (
    "A kernel gets its GPU when its first cell runs. Do not use the GPU before that: look into the IPython start-up "
    "files, ipython_config.py, sitecustomize.py and usercustomize.py for code that calls torch.cuda, lists devices "
    "or sets CUDA_VISIBLE_DEVICES, and move it into the notebook."
)
_MISMATCH = re.compile(
    r"driver/library version mismatch|SYSTEM_DRIVER_MISMATCH|unsupported display driver|error 803", re.I
)
_TOO_OLD = re.compile(r"driver on your system is too old|CUDA driver version is insufficient", re.I)
_NO_KERNEL = re.compile(
    r"no kernel image is available|NO_BINARY_FOR_GPU|device kernel image is invalid", re.I
)
_LINKING = re.compile(
    r"undefined symbol|cannot open shared object|symbol \S+ version|not defined in file|not found \(required by",
    re.I,
)
_NO_LIBRARIES = re.compile(r"Cannot dlopen some GPU libraries|Could not load dynamic library", re.I)
_NO_DRIVER = re.compile(r"Found no NVIDIA driver|Could not find cuda drivers|libcuda\.so\.1", re.I)
_NO_DEVICE = re.compile(
    r"No CUDA GPUs are available|no CUDA-capable device|CUDA_ERROR_NO_DEVICE|lists no GPU|Unknown backend|"
    r"invalid device ordinal|device >= 0 && device < num_gpus",
    re.I,
)
_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY", re.I)
_GLIBC = re.compile(r"version [`'‘“]?(GLIBC(?:XX)?_[\d.]+)")


def judge_framework(name: str, node: NodeStack, answer: dict[str, Any]) -> Verdict:
    """Judge one framework by what it is, what it loaded, and what it computed."""
    return _Case(name, node, answer).verdict()


class _Case:
    """One framework: the first of the possible causes that explains the facts."""

    def __init__(self, name: str, node: NodeStack, answer: dict[str, Any]) -> None:
        self.name = name
        self.node = node
        self.answer = answer
        self.facts: dict[str, Any] = answer["facts"]
        self.error: dict[str, Any] = self.facts.get("error") or {}
        self.said = f"{self.error.get('text', '')}\n{answer.get('output', '')}"
        self.built = cuda.parse(str(self.facts.get("cuda") or ""))
        known = number(self.facts.get("capability"))
        self.capability = known or (node.capabilities[0] if len(node.capabilities) == 1 else "")
        self.fits = cuda.can_run(self.built, node.cuda, node.driver)

    def verdict(self) -> Verdict:
        if self.facts.get("right"):
            return Verdict(True, "; ".join([self._what(), self._speed(), *self._notes()]))
        for find in (
            self._late, self._not_imported, self._not_built_for_it, self._libraries, self._driver,
            self._too_early, self._architecture, self._computation,
        ):  # fmt: skip
            if found := find():
                return found
        why = self.answer.get("no_gpu") or "no GPU is free"
        message = "; ".join([self._what(), *self._notes(), f"not checked on a GPU: {why}"])
        return Verdict(True, message, checked=False)

    # -------------------------------------------------------------------------------- the causes

    def _late(self) -> Verdict | None:
        if not self.answer.get("late"):
            return None
        remedy = "Try again: a first import from a slow file system takes long. Otherwise try it by hand on the node."
        return self._bad(f"did not answer in time ({self._stage()})", remedy)

    def _not_imported(self) -> Verdict | None:
        failed = self.error.get("stage") == "import"
        died = not failed and self.facts.get("stage") in ("startup", "import") and not self._ended_well()
        if not failed and not died:
            return None
        if glibc := _GLIBC.search(self.said):
            remedy = "Install an older build, or one from conda-forge, which needs less of the system."
            return self._bad(f"cannot be imported: the node's C library lacks {glibc[1]}", remedy)
        cause = self._error_words() if failed else self._end_words()
        if (folders := self._foreign_folders()) and (
            (failed and _LINKING.search(self.said)) or self._shadowing()
        ):
            named = f"LD_LIBRARY_PATH has {_shown(folders)}"
            return self._bad(f"cannot be imported: {cause} ({named})", _REMOVE)
        by_hand = f"{shlex.quote(self.node.python)} -c 'import {self.name}'"
        remedy = f"Run on the node: {by_hand}, and reinstall it if that fails, too."
        return self._bad(f"cannot be imported: {cause}", remedy)

    def _not_built_for_it(self) -> Verdict | None:
        if hip := self.facts.get("hip"):
            if not self.node.driver:
                return None
            text = f"is built for AMD GPUs (ROCm {hip}), and the node's are NVIDIA's"
            return self._bad(text, self._install())
        if self.built and self.node.amd:
            return self._bad("is built for NVIDIA GPUs, and the node's are AMD's", self._install())
        if self.built:
            return None
        what = "has no plugin for CUDA" if self.name == "jax" else "is a build without CUDA"
        remedy = self._install()
        if (
            self.facts.get("package") == "tensorflow-cpu"
        ):  # its files would be mixed with those of the other one
            remedy = (
                f"Remove it first: {shlex.quote(self.node.python)} -m pip uninstall tensorflow-cpu\n{remedy}"
            )
        return self._bad(f"{what}: it computes on the CPU", remedy)

    def _too_early(self) -> Verdict | None:
        if not (self.facts.get("early") and _NO_DEVICE.search(str(self.error.get("text")))):
            return None
        return self._bad("finds no GPU, because CUDA was initialised before the kernel had one", _EARLY)

    def _driver(self) -> Verdict | None:
        if _MISMATCH.search(self.said):
            return self._bad(f"cannot use the driver: {self._error_words()}", REBOOT)
        if not (self.fits is False or _TOO_OLD.search(self.said)):
            return None
        needed = cuda.needed_driver(self.built)
        more = f"\nOr ask the node's administrator for {needed}." if needed and self.fits is False else ""
        return self._bad(f"is too new for {self.node.driver_words}", self._install() + more)

    def _libraries(self) -> Verdict | None:
        if not self.error or self.fits is False:
            return None
        if shadowing := self._shadowing():
            text = f"uses {_shown(shadowing)} instead of its own libraries: {self._error_words()}"
            return self._bad(text, _REMOVE)
        if self.name == "tensorflow" and _NO_LIBRARIES.search(self.said):
            return self._bad("does not find the CUDA libraries", self._install())
        return None

    def _architecture(self) -> Verdict | None:
        archs = self.facts.get("archs") or []
        code = cuda.code_for(archs, self.capability)
        if not (code == "none" or _NO_KERNEL.search(self.said)):
            return None
        listed = f": it is built for {' '.join(archs)}" if archs else ""
        return self._bad(f"has no code for this GPU ({arch_name(self.capability)}){listed}", self._install())

    def _computation(self) -> Verdict | None:
        if self.facts.get("right") is False:
            remedy = "Try another GPU. If only this one computes wrongly, tell the node's administrator."
            return self._bad(f"computes wrong numbers on {self.answer.get('gpu_name')}", remedy)
        if self.error:
            return self._failed()
        if self._ended_well():
            return None
        return self._bad(f"{self._end_words()} ({self._stage()})", self._otherwise())

    def _failed(self) -> Verdict:
        """The words of an error that nothing else explains."""
        if _MEMORY.search(self.said):
            return self._bad("the GPU has no free memory", "Try again: somebody may have begun to use it.")
        if _NO_DRIVER.search(self.said):
            return self._bad(f"does not find the driver: {self._error_words()}", _FIND_DRIVER)
        if _NO_DEVICE.search(self.said):
            return self._bad(
                f"finds no GPU: {self._error_words()}", f"Try the same by hand on the node. {ADMIN}"
            )
        return self._bad(f"fails ({self._stage()}): {self._error_words()}", self._otherwise())

    # -------------------------------------------------------------------------------- words

    def _bad(self, text: str, remedy: str) -> Verdict:
        return Verdict(False, f"{self._what()}: {text}" if self.facts.get("version") else text, remedy)

    def _what(self) -> str:
        version = str(self.facts.get("version") or "?")
        if self.facts.get("hip"):
            return f"{version}, built for ROCm {self.facts['hip']}"
        return f"{version}, built for CUDA {cuda.dotted(self.built[:2])}" if self.built else version

    def _speed(self) -> str:
        first, then = self.facts.get("first_seconds"), self.facts.get("seconds")
        times = f": {then} s, the first time {first} s" if first is not None and then is not None else ""
        return f"multiplies matrices correctly on {self.answer.get('gpu_name') or 'the GPU'}{times}"

    def _notes(self) -> list[str]:
        notes = []
        if shadowing := self._shadowing():
            notes.append(f"it uses {_shown(shadowing)} instead of its own, because of LD_LIBRARY_PATH")
        if cuda.code_for(self.facts.get("archs") or [], self.capability) == "ptx":
            notes.append(
                f"it has no binary code for {arch_name(self.capability)}, which is compiled at the first use"
            )
        if self.facts.get("startup_error"):
            notes.append(
                f"a start-up file of IPython fails: {sanitize.one_line(str(self.facts['startup_error']))}"
            )
        return notes

    def _install(self) -> str:
        return self.node.install(self.name, self.capability)

    def _otherwise(self) -> str:
        return f"Try the same by hand on the node, on another GPU, and with another build. {self._install()}"

    def _stage(self) -> str:
        stage = str(self.error.get("stage") or self.facts.get("stage") or "")
        stages = {
            "startup": "in IPython's start-up files", "import": "while it was imported",
            "devices": "while CUDA was initialised", "matmul": "while it multiplied matrices",
        }  # fmt: skip
        return stages.get(stage, "at its start")

    def _ended_well(self) -> bool:
        return self.answer.get("status") == 0

    def _end_words(self) -> str:
        status = self.answer.get("status")
        if isinstance(status, int) and status < 0:
            return f"was ended by {_signal_name(-status)}"
        return f"exited with status {status}"

    def _error_words(self) -> str:
        text = sanitize.one_line(str(self.error.get("text") or "no reason given"), 300)
        return f"{sanitize.one_line(str(self.error.get('type') or 'error'), 60)}: {text}"

    # -------------------------------------------------------------------------------- libraries

    def _shadowing(self) -> list[str]:
        """The libraries that were loaded although others of the same kind were installed with the framework."""
        own = list(map(str, self.facts.get("own") or []))
        kinds = {_kind(path) for path in own}
        roots = {posixpath.dirname(path) for path in own}
        loaded = map(str, self.facts.get("libraries") or [])
        return [path for path in loaded if _kind(path) in kinds and posixpath.dirname(path) not in roots]

    def _foreign_folders(self) -> list[str]:
        """The folders of LD_LIBRARY_PATH, those of loaded libraries first; without the framework's own."""
        roots = {posixpath.dirname(str(path)) for path in self.facts.get("own") or []}
        named = [part for part in str(self.facts.get("library_path") or "").split(":") if part]
        shadowing = {posixpath.dirname(path) for path in self._shadowing()}
        folders = [posixpath.normpath(part) for part in named]
        return sorted((one for one in folders if one not in roots), key=lambda one: one not in shadowing)


def _shown(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 2} more" if len(paths) > 2 else ""
    return ", ".join(sanitize.one_line(path) for path in paths[:2]) + more


def _kind(path: str) -> str:
    """ "libcudart" of "/…/libcudart-a7b20f20.so.11.0"."""
    return re.split(r"[-.]", posixpath.basename(path), maxsplit=1)[0]


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
