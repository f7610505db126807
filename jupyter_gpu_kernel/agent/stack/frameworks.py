"""What torch, tensorflow and jax are, which GPUs they see, and whether they multiply two matrices correctly.

Each class has three steps, of which each may raise anything, crash or hang: `describe` imports the framework, `devices`
initialises CUDA, and `matmul` computes. They return facts. They are called in a process of their own.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from typing import Any, Callable, Dict, List, Type

SIZE = 512
_PACKAGES = {
    "torch": ("torch",),
    "tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-rocm", "tf-nightly"),
    "jax": ("jax",),
}
_JAX_PLUGINS = ("jax-cuda13-plugin", "jax-cuda12-plugin", "jax-cuda11-plugin", "jax-rocm60-plugin")
Matrix = List[List[float]]


def installed() -> Dict[str, str]:
    """The frameworks that are installed, with their versions; none is imported."""
    found = {name: next(filter(None, map(_version, packages)), "") for name, packages in _PACKAGES.items()}
    for name, version in found.items():
        if not version and importlib.util.find_spec(name) is not None:
            found[name] = "?"
    return {name: version for name, version in found.items() if version}


def _version(package: str) -> str:
    try:
        return str(importlib.import_module("importlib.metadata").version(package))
    except Exception:  # PackageNotFoundError, or damaged metadata
        return ""


class Torch:
    """PyTorch."""

    def describe(self) -> Dict[str, Any]:
        """Import it."""
        self.torch = torch = importlib.import_module("torch")
        return {
            "version": str(torch.__version__),
            "file": str(torch.__file__),
            "cuda": str(torch.version.cuda or ""),
            "hip": str(getattr(torch.version, "hip", None) or ""),
            "archs": _attempt(lambda: torch._C._cuda_getArchFlags().split(), []),
        }

    def devices(self) -> Dict[str, Any]:
        """Initialise CUDA. Raises torch's own error if that fails."""
        cuda = self.torch.cuda
        if not cuda.is_available():
            cuda.init()  # raises the reason
        return {
            "devices": int(cuda.device_count()),
            "capability": "%d.%d" % cuda.get_device_capability(0),
            "device": str(cuda.get_device_name(0)),
        }

    def matmul(self, device: str = "cuda") -> Dict[str, Any]:
        """Multiply on the GPU."""

        def on_gpu(rows: Matrix) -> Any:
            return self.torch.tensor(rows, dtype=self.torch.float32, device=device)

        return _multiply(on_gpu, lambda a, b: (a @ b).cpu().tolist())


class TensorFlow:
    """TensorFlow."""

    def describe(self) -> Dict[str, Any]:
        """Import it."""
        self.tf = tf = importlib.import_module("tensorflow")
        info = dict(_attempt(tf.sysconfig.get_build_info, {}))
        return {
            "version": str(tf.__version__),
            "package": next(filter(_version, _PACKAGES["tensorflow"]), ""),
            "file": str(tf.__file__),
            "cuda": str(info.get("cuda_version") or ""),
            "hip": str(info.get("rocm_version") or "") or ("?" if info.get("is_rocm_build") else ""),
            "archs": [str(one) for one in info.get("cuda_compute_capabilities", ())],
        }

    def devices(self) -> Dict[str, Any]:
        """Initialise CUDA. Takes memory only as it is needed, as others may come."""
        config = self.tf.config
        gpus = config.list_physical_devices("GPU")
        if not gpus:
            raise RuntimeError("tensorflow lists no GPU")
        for gpu in gpus:
            config.experimental.set_memory_growth(gpu, True)
        details = dict(_attempt(lambda: config.experimental.get_device_details(gpus[0]), {}))
        capability = details.get("compute_capability") or ()
        return {
            "devices": len(gpus),
            "capability": ".".join(map(str, capability)),
            "device": str(details.get("device_name", "")),
        }

    def matmul(self, device: str = "/GPU:0") -> Dict[str, Any]:
        """Multiply on the GPU."""
        with self.tf.device(device):
            return _multiply(
                lambda rows: self.tf.constant(rows, dtype=self.tf.float32),
                lambda a, b: self.tf.linalg.matmul(a, b).numpy().tolist(),
            )


class Jax:
    """JAX, whose support for GPUs is a package of its own."""

    def describe(self) -> Dict[str, Any]:
        """Import it."""
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # else it takes most of the memory
        self.jax = jax = importlib.import_module("jax")
        plugins = {
            name: version for name, version in zip(_JAX_PLUGINS, map(_version, _JAX_PLUGINS)) if version
        }
        return {
            "version": str(jax.__version__),
            "file": str(jax.__file__),
            "cuda": _attempt(_jax_cuda, "") or _family(plugins, "cuda"),
            "hip": _family(plugins, "rocm"),
            "plugins": plugins,
            "archs": [],
        }

    def devices(self) -> Dict[str, Any]:
        """Initialise CUDA. Raises jax's own error if that fails."""
        gpus = self.jax.devices("gpu")
        return {
            "devices": len(gpus),
            "capability": str(getattr(gpus[0], "compute_capability", "")),
            "device": str(gpus[0].device_kind),
        }

    def matmul(self, platform: str = "gpu") -> Dict[str, Any]:
        """Multiply on the GPU."""
        device = self.jax.devices(platform)[0]
        numpy = importlib.import_module("numpy")
        jnp = importlib.import_module("jax.numpy")
        return _multiply(
            lambda rows: self.jax.device_put(numpy.array(rows, dtype="float32"), device),
            lambda a, b: numpy.asarray(jnp.matmul(a, b)).tolist(),
        )


FRAMEWORKS: Dict[str, Type[Any]] = {"torch": Torch, "tensorflow": TensorFlow, "jax": Jax}


def _jax_cuda() -> str:
    """The CUDA that the plugin was built with: "12.8"."""
    number = int(importlib.import_module("jax._src.lib").cuda_versions.cuda_runtime_build_version())
    return f"{number // 1000}.{number % 1000 // 10}"


def _family(plugins: Dict[str, str], family: str) -> str:
    """The major version in the name of a plugin: "12" of jax-cuda12-plugin."""
    names = [name.split("-")[1] for name in plugins if name.startswith(f"jax-{family}")]
    return names[0][len(family) :] if names else ""


def _attempt(work: Callable[[], Any], otherwise: Any) -> Any:
    try:
        return work()
    except Exception:  # an older or newer version lacks it
        return otherwise


# -------------------------------------------------------------------------------------- arithmetic


def left() -> Matrix:
    """A matrix of small integers: float32 and TF32 hold each of its products and sums exactly."""
    return [[float((row * 7 + column * 3) % 11 - 5) for column in range(SIZE)] for row in range(SIZE)]


def right() -> Matrix:
    """Another one."""
    return [[float((row * 5 + column * column) % 13 - 6) for column in range(SIZE)] for row in range(SIZE)]


def is_product(product: Matrix) -> bool:
    """Whether this is left() · right(), by Freivalds' algorithm: both are multiplied by the same vector."""
    vector = [float(index % 17 - 8 or 9) for index in range(SIZE)]
    expected = _times(left(), _times(right(), vector))
    return len(product) == SIZE and _times(product, vector) == expected


def _times(matrix: Matrix, vector: List[float]) -> List[float]:
    return [sum(map(float.__mul__, row, vector)) for row in matrix]


def _multiply(put: Callable[[Matrix], Any], multiply: Callable[[Any, Any], Matrix]) -> Dict[str, Any]:
    """Multiply twice. The first time includes loading the libraries, and compiling for this GPU where needed."""
    began = time.monotonic()
    a, b = put(left()), put(right())
    product = multiply(a, b)
    first = time.monotonic() - began
    began = time.monotonic()
    again = multiply(a, b)
    seconds = time.monotonic() - began
    correct = is_product(product) and again == product
    return {"right": correct, "first_seconds": round(first, 4), "seconds": round(seconds, 4)}
