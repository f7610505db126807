"""Imports one framework, and computes with it if a GPU is visible: a program of its own, for `check --gpu`.

The local side sends this file as text, in a cell of a kernel that the check has started (`cli/running/gpu_check.py`);
Python 3.8 or newer runs it. A framework may crash, hang or print, so facts are printed as lines of MARK and JSON, each
before the step that may fail. A process that hangs ends by itself after the limit.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
from typing import Any, Callable, Dict, Iterator

MARK = "=== jupyter-gpu-kernel check "
_SIZE = 512
_ERROR = 1500
"""Characters of an error that are printed."""
_DRIVER_TIMEOUT = 15.0
_NVIDIA, _AMD = "CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"


def describe() -> None:
    """Print the installed frameworks, the version of the NVIDIA driver, and the newest CUDA that the driver supports.

    That CUDA is not the version of an installed toolkit. What is not reported is "", never a guess.
    """
    installed = [name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None]
    report = _driver_report()
    _print(
        installed=installed, driver=_version(report, "driver_version"), cuda=_version(report, "cuda_version")
    )


def check(name: str, limit: float) -> None:
    """Print which GPUs are visible; the framework's version and what it was built for; and whether it computed
    correctly, or its error. The process ends if that takes longer than `limit` seconds."""
    faulthandler.dump_traceback_later(limit, exit=True, file=2)
    visible = os.environ.get(_AMD) or os.environ.get(_NVIDIA, "")
    _print(gpu=visible)
    steps = FRAMEWORKS[name]()
    try:
        version, built_for = next(steps)
        _print(version=str(version), built_for=built_for)
        if visible:
            _print(right=next(steps) == float(_SIZE**3))
    except BaseException as error:  # also SystemExit of a library
        _print(raised=f"{type(error).__name__}: {error}"[:_ERROR])
    finally:
        faulthandler.cancel_dump_traceback_later()


def _print(**facts: Any) -> None:
    print(f"\n{MARK}{json.dumps(facts)}", flush=True)


def _driver_report() -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    process = subprocess.Popen([program, "-q", "-x"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        return process.communicate(timeout=_DRIVER_TIMEOUT)[0].decode("utf-8", "replace")
    except subprocess.TimeoutExpired:
        process.kill()  # and nothing waits for it: where the driver hangs, it does not end
        return ""


def _version(report: str, name: str) -> str:
    found = re.search(rf"<{name}>\s*(\d+(?:\.\d+){{1,3}})\s*</{name}>", report)
    return found[1] if found else ""


# Each of these generators imports a framework, and yields its version and what it was built for ("": unknown). Then it
# multiplies two matrices of ones on the GPU, and yields the sum of the product, which float32 holds exactly.


def _torch() -> Iterator[Any]:
    torch = importlib.import_module("torch")
    yield torch.__version__, _built_for(torch.version.cuda, getattr(torch.version, "hip", None))
    ones = torch.ones(_SIZE, _SIZE, device="cuda")
    yield float((ones @ ones).sum())


def _tensorflow() -> Iterator[Any]:
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")  # otherwise it takes all of the GPU's memory
    tf = importlib.import_module("tensorflow")
    build = tf.sysconfig.get_build_info()
    rocm = build.get("rocm_version") or ("?" if build.get("is_rocm_build") else "")
    yield tf.__version__, _built_for(build.get("cuda_version"), rocm)
    if not tf.config.list_physical_devices("GPU"):
        raise RuntimeError("tensorflow lists no GPU")
    with tf.device("/GPU:0"):
        ones = tf.ones((_SIZE, _SIZE))
        yield float(tf.reduce_sum(tf.linalg.matmul(ones, ones)))


def _jax() -> Iterator[Any]:
    # Otherwise JAX takes most of the GPU's memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = importlib.import_module("jax")
    yield jax.__version__, ""
    platform = "rocm" if _AMD in os.environ else "cuda"  # its error has a reason, that of "gpu" none
    with jax.default_device(jax.devices(platform)[0]):
        ones = importlib.import_module("jax.numpy").ones((_SIZE, _SIZE))
        yield float((ones @ ones).sum())


def _cupy() -> Iterator[Any]:
    cupy = importlib.import_module("cupy")
    yield cupy.__version__, ""
    ones = cupy.ones((_SIZE, _SIZE), dtype="float32")
    yield float((ones @ ones).sum())


def _built_for(cuda: Any, rocm: Any) -> str:
    return f"CUDA {cuda}" if cuda else f"ROCm {rocm}" if rocm else "the CPU only"


FRAMEWORKS: Dict[str, Callable[[], Iterator[Any]]] = {
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "cupy": _cupy,
}
