"""Which CUDA a driver serves, on which GPUs a build runs, which wheel index fits."""

from __future__ import annotations

import pytest

from jupyter_gpu_kernel.hub.node import cuda_versions as cuda


@pytest.mark.parametrize(
    ("driver", "reported", "newest"),
    [
        ("470.86", "", (11, 4)),
        ("525.60.13", "", (12, 0)),
        ("535.183.01", "12.2", (12, 2)),
        ("470.57.02", "12.4", (12, 4)),  # the forward compatibility package of a container
        ("9999.1", "", (13, 1)),
        ("340.108", "", ()),
        ("", "", ()),
    ],
)
def test_what_a_driver_serves(driver: str, reported: str, newest: tuple[int, ...]) -> None:
    assert cuda.served(driver, reported) == newest


@pytest.mark.parametrize(
    ("built", "newest", "driver", "runs"),
    [
        ((11, 8), (12, 2), "535.183.01", True),
        ((12, 4), (12, 2), "535.183.01", True),  # the same major version
        ((12,), (12, 2), "535.183.01", True),
        ((12, 4), (11, 4), "470.86", False),
        ((13, 0), (12, 9), "575.51.03", False),
        ((11, 8), (11, 0), "450.36.06", False),  # older than the family's minimum
        ((11, 8), (11, 0), "450.80.02", True),
        ((10, 2), (10, 1), "418.87.00", False),
        ((), (12, 2), "535.183.01", None),
        ((12, 4), (), "", None),
    ],
)
def test_which_builds_a_driver_runs(
    built: tuple[int, ...], newest: tuple[int, ...], driver: str, runs: bool | None
) -> None:
    assert cuda.can_run(built, newest, driver) is runs


@pytest.mark.parametrize(
    ("archs", "capability", "code"),
    [
        (["sm_80"], "8.6", "binary"),
        (["sm_86"], "8.0", "none"),
        (["sm_37", "sm_75", "compute_37"], "8.6", "ptx"),
        (["sm_90"], "10.0", "none"),
        (["sm_90a"], "9.0", "binary"),
        (["sm_120a"], "12.1", "none"),
        (["sm_100", "sm_120"], "12.1", "binary"),
        (["compute_90"], "8.6", "none"),
        ([], "8.6", ""),
        (["gfx90a"], "8.6", ""),
        (["sm_80"], "", ""),
    ],
)
def test_what_a_build_has_for_a_gpu(archs: list[str], capability: str, code: str) -> None:
    assert cuda.code_for(archs, capability) == code


@pytest.mark.parametrize(
    ("driver", "capability", "index"),
    [
        ("470.86", "8.6", "cu118"),
        ("525.60.13", "8.6", "cu126"),
        ("550.54.15", "8.6", "cu126"),
        ("570.86.10", "8.6", "cu128"),
        ("570.86.10", "6.1", "cu126"),
        ("570.86.10", "12.0", "cu128"),
        ("580.65.06", "8.6", "cu130"),
        ("580.65.06", "7.0", "cu126"),
        ("580.65.06", "", "cu130"),
        ("550.54.15", "12.0", "cu128"),
        ("440.33.01", "7.0", ""),
        ("470.86", "12.0", ""),
        ("580.65.06", "3.5", ""),
    ],
)
def test_the_wheel_index_that_fits(driver: str, capability: str, index: str) -> None:
    found = cuda.torch_wheel(cuda.served(driver, ""), driver, capability)
    assert found.rpartition("/")[2] == index


def test_the_driver_that_a_build_needs() -> None:
    assert cuda.needed_driver((11, 8)) == "driver 450.80.02 or newer"
    assert cuda.needed_driver((9, 2)) == ""
