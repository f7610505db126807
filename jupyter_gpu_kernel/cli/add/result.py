"""What `add` prints of the machine that it found, and of the kernelspec that it wrote."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import adding, kernelspecs
from ...errors import GpuKernelError
from ...wire.kernel_settings import KernelSettings
from ...wire.texts import printable
from ..show import slurm, tables


def probe_result(probe: dict[str, Any], settings: KernelSettings) -> list[str]:
    if "hosts" not in probe:
        return _one_result(probe, settings) + _unknown_leases([probe], settings)
    lines = _hosts_result(probe["hosts"], lambda one: _one_result(one, settings))
    return lines + _unknown_leases(probe["hosts"], settings)


def _hosts_result(probes: list[dict[str, Any]], result: Callable[[dict[str, Any]], list[str]]) -> list[str]:
    """Return the lines about each host; `result(probe)` has those of one that works."""
    lines: list[str] = []
    for one in probes:
        lines.append(printable(f"{one['host']}:"))
        if "error" in one:
            error = GpuKernelError.from_json(one["error"])
            lines += [f"  {line}" for line in printable(str(error)).splitlines()]
            lines.append("  It stays in the list; kernels start on the other hosts while it cannot be used.")
        else:
            lines += [f"  {line}" for text in result(one) for line in text.splitlines()]
    if not adding.common_python(adding.working_hosts(probes)):
        lines.append("The Pythons have different paths, so each start looks for one (or give --python PATH).")
    return lines


def _unknown_leases(probes: list[dict[str, Any]], settings: KernelSettings) -> list[str]:
    """Notes about --ignore-lease, if the GPUs of all hosts are known."""
    if not all(one.get("gpus") for one in probes):
        return []
    known = {gpu.get("uuid") for one in probes for gpu in one["gpus"]}
    unknown = [uuid for uuid in settings.ignore_lease if uuid not in known]
    return [f"Note: there is no GPU {uuid}, which --ignore-lease names." for uuid in unknown]


def _one_result(probe: dict[str, Any], settings: KernelSettings) -> list[str]:
    lines = [f"  {hop['hop']}: {hop['step']} {hop['seconds']:.2f} s" for hop in probe["hops"]]
    python, node = probe["python"], probe["node"]
    lines.append(f"Python: {python['path']} ({python['version']}, ipykernel {python['ipykernel']})")
    lines += [f"  not used: {other['path']} {other['why_not']}" for other in probe["others"]]
    lines += [f"  not searched: {place}" for place in probe.get("unseen", [])]
    if node.get("home_problem"):
        lines.append(
            f"Note: the node's home folder {node.get('home')} is not writable: {node['home_problem']}"
        )
    if "slurm" in probe:
        lines += slurm.probe_result(probe["slurm"], settings)
    elif probe["gpus"]:
        lines.append(tables.gpus(probe["gpus"]))
        if probe.get("gpus_problem"):
            lines.append(f"Note: this kernel cannot get GPUs on this node: {probe['gpus_problem']}")
    elif probe.get("gpus_error"):
        lines.append(f"Note: the GPUs could not be listed: {probe['gpus_error']}")
    elif settings.gpus:
        lines.append("Note: this machine has no GPU. With --gpus 0 the kernel does not wait for one.")
    return [printable(line) for line in lines]


def next_step(spec: kernelspecs.Kernelspec) -> list[str]:
    other = kernelspecs.shadowed_by(spec)
    note = (
        [f"Note: front ends of this environment use another kernelspec of this name: {other}"]
        if other
        else []
    )
    return [
        f"Written: {spec.path}",
        *note,
        f"Select “{spec.display_name}” in JupyterLab, or in VS Code: Select Kernel → Jupyter Kernel…",
    ]
