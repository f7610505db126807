"""Which CUDA a driver serves, which GPUs a build runs on, and which builds fit both. Pure tables and rules.

A driver runs programs that were built for its own CUDA and for every older one. It also runs those for a newer CUDA of
the same major version, from the family's minimum driver on (minor version compatibility), except code that the driver
would have to compile (PTX). A binary for sm_80 runs on 8.0 to 8.9; PTX (compute_80) is compiled for 8.0 and later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

Version = tuple[int, ...]
MINIMUM_DRIVER: dict[int, Version] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""The oldest driver of each CUDA family."""
_BRANCHES: dict[int, Version] = {
    590: (13, 1), 580: (13, 0), 575: (12, 9), 570: (12, 8), 565: (12, 7), 560: (12, 6), 555: (12, 5), 550: (12, 4),
    545: (12, 3), 535: (12, 2), 530: (12, 1), 525: (12, 0), 520: (11, 8), 515: (11, 7), 510: (11, 6), 495: (11, 5),
    470: (11, 4), 465: (11, 3), 460: (11, 2), 455: (11, 1), 450: (11, 0), 440: (10, 2), 418: (10, 1), 410: (10, 0),
}  # fmt: skip
"""The newest CUDA of each branch of the driver."""
_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")
_TORCH_INDEX = "https://download.pytorch.org/whl/"
_JAX_RELEASES = "https://storage.googleapis.com/jax-releases/jax_cuda_releases.html"


class _Wheel(NamedTuple):
    """A wheel index of PyTorch: the CUDA of its builds, and the compute capabilities, from and to."""

    name: str
    cuda: Version
    first: Version
    last: Version


_WHEELS = (
    _Wheel("cu118", (11, 8), (5, 0), (9, 0)),  # until torch 2.7
    _Wheel("cu126", (12, 6), (5, 0), (9, 0)),
    _Wheel("cu128", (12, 8), (7, 5), (12, 1)),
    _Wheel("cu130", (13, 0), (7, 5), (12, 1)),
)


def parse(text: str) -> Version:
    """Return the numbers of a version, such as (12, 4) of "12.4"; () if it has none."""
    return tuple(int(part) for part in re.findall(r"\d{1,6}", text)[:4])


def dotted(version: Version) -> str:
    """Return the version as text."""
    return ".".join(map(str, version))


def served(driver: str, reported: str) -> Version:
    """Return the newest CUDA that the driver serves: as it reports, or by its branch; () if that is unknown."""
    if found := parse(reported)[:2]:
        return found
    branch = next(iter(parse(driver)), 0)
    return next((cuda for first, cuda in _BRANCHES.items() if branch >= first), ())


def can_run(built: Version, newest: Version, driver: str) -> bool | None:
    """Return whether the driver, which serves `newest`, runs what was built for this CUDA; None if that is unknown."""
    if not built or not newest:
        return None
    if built[0] != newest[0]:
        return built[0] < newest[0]
    if built[:2] <= newest[: len(built)]:
        return True
    version = parse(driver)
    return built[0] in MINIMUM_DRIVER and (not version or version >= MINIMUM_DRIVER[built[0]])


def needed_driver(built: Version) -> str:
    """Return the oldest driver for this CUDA, as a phrase; "" if that is unknown."""
    oldest = MINIMUM_DRIVER.get(built[0]) if built else None
    return f"driver {oldest[0]}.{oldest[1]:02}.{oldest[2]:02} or newer" if oldest else ""


def code_for(archs: Sequence[str], capability: str) -> str:
    """Return what a build for these architectures has for a GPU: "binary", "ptx" (compiled at the first use), "none";
    "" if that is unknown."""
    wanted = parse(capability)[:2]
    found = [_ARCH.fullmatch(arch) for arch in archs]
    known = [(one[1], (int(one[2]), int(one[3])), one[4]) for one in found if one]
    if len(wanted) < 2 or not known:
        return ""
    if any(kind == "sm" and _is_binary(arch, suffix, wanted) for kind, arch, suffix in known):
        return "binary"
    ptx = any(kind == "compute" and arch <= wanted and not suffix for kind, arch, suffix in known)
    return "ptx" if ptx else "none"


def _is_binary(arch: Version, suffix: str, wanted: Version) -> bool:
    return arch == wanted if suffix == "a" else arch[0] == wanted[0] and arch <= wanted


def torch_wheel(newest: Version, driver: str, capability: str) -> str:
    """Return the URL of the wheel index of PyTorch for this driver and GPU; "" if none fits, or too little is known.

    The nearest one to the driver's CUDA is taken: the newest that is not newer, within its major version if possible.
    """
    wanted = parse(capability)[:2]
    fitting = [
        wheel
        for wheel in _WHEELS
        if can_run(wheel.cuda, newest, driver) and (not wanted or wheel.first <= wanted <= wheel.last)
    ]
    same = [wheel for wheel in fitting if wheel.cuda[0] == newest[0]]
    not_newer = [wheel for wheel in same if wheel.cuda <= newest]
    choice = not_newer[-1:] or same[:1] or fitting[-1:]
    return _TORCH_INDEX + choice[0].name if choice else ""


def packages(name: str, newest: Version, driver: str, capability: str) -> str:
    """Return the arguments of `pip install` for a build of this framework that fits, also in place of one that does
    not; "" if there is none."""
    if name == "torch":
        url = torch_wheel(newest, driver, capability)
        return f"--force-reinstall torch --index-url {url}" if url else ""
    if not can_run((11, 8), newest, driver):
        return ""
    old = newest[0] == 11
    if name == "tensorflow":
        return '"tensorflow[and-cuda]==2.14.*"' if old else '--upgrade "tensorflow[and-cuda]"'
    if old:
        return f'"jax[cuda11_pip]==0.4.25" -f {_JAX_RELEASES}'
    turing = (parse(capability) or (7, 5)) >= (7, 5)
    return '--upgrade "jax[cuda13]"' if newest[0] >= 13 and turing else '--upgrade "jax[cuda12]"'
