"""The process `check-framework NAME`: imports one framework, and computes with it if a GPU is visible.

It runs in the Python of the user, with whatever is installed there, so it may crash, hang or print. It answers with
lines of JSON on its stdout, each before the step that may fail; what libraries print there goes to stderr.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from typing import Any, Callable, Dict, Iterator

from ..gpus.devices.visible_devices import AMD, NVIDIA

_SIZE = 512
_ERROR = 1500
"""Characters of an error that are told."""


def main(name: str) -> None:
    """Check the framework, and end this process at once: the exit of a broken library may hang or crash, too."""
    answer = os.dup(1)
    os.dup2(2, 1)

    def tell(**facts: Any) -> None:
        os.write(answer, json.dumps(facts).encode() + b"\n")

    _restore_path()
    if name == "installed":
        tell(installed=[name for name in FRAMEWORKS if importlib.util.find_spec(name) is not None])
    else:
        check(name, tell)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def check(name: str, tell: Callable[..., None]) -> None:
    """Tell the framework's version and what it was built for, then whether it computed correctly; or its error."""
    steps = FRAMEWORKS[name]()
    try:
        version, built_for = next(steps)
        tell(version=str(version), built_for=built_for)
        if os.environ.get(NVIDIA):
            tell(right=next(steps) == float(_SIZE**3))
    except BaseException as error:  # also SystemExit of a library
        tell(raised=f"{type(error).__name__}: {error}"[:_ERROR])


def _restore_path() -> None:
    """Make sys.path as a kernel's: the working directory comes first, and the agent is not on it."""
    archive = os.path.abspath(sys.argv[0])
    rest = [entry for entry in sys.path if entry and os.path.abspath(entry) not in (archive, os.getcwd())]
    sys.path[:] = ["", *rest]


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
    os.environ.setdefault(
        "XLA_PYTHON_CLIENT_PREALLOCATE", "false"
    )  # otherwise it takes most of the GPU's memory
    jax = importlib.import_module("jax")
    yield jax.__version__, ""
    platform = "rocm" if AMD in os.environ else "cuda"  # its error has a reason, that of "gpu" none
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
