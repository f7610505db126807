"""Measures one kernel with jupyter_client alone, here or on the work node; prints one JSON object.

    python benchmarks/measure.py KERNELSPEC      a kernel that this machine's Jupyter knows
    python measure.py --bare                     a plain ipykernel of this very Python

Times are until reply *and* idle are there, in seconds. No dependency but jupyter_client.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from jupyter_client import BlockingKernelClient, KernelManager
from jupyter_client.kernelspec import KernelSpec

ROUNDS = 200
LINES = 100_000
DISPLAY = 50_000_000


def main(name: str) -> None:
    """Starts the kernel, measures, shuts it down."""
    began = time.perf_counter()
    manager = KernelManager(kernel_name=name if name != "--bare" else "")
    if name == "--bare":
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        manager._kernel_spec = KernelSpec(argv=argv, display_name="bare", language="python")
    manager.start_kernel()
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    result: dict[str, Any] = {"ready": time.perf_counter() - began}
    try:
        run(client, "1")
        result["first_cell"] = time.perf_counter() - began
        result.update(measure(client))
        began = time.perf_counter()
        manager.restart_kernel()
        client.wait_for_ready(timeout=120)
        run(client, "1")
        result["restart"] = time.perf_counter() - began
    finally:
        began = time.perf_counter()
        client.stop_channels()
        manager.shutdown_kernel()
        result["shutdown"] = time.perf_counter() - began
    print(json.dumps(result))


def measure(client: BlockingKernelClient) -> dict[str, float]:
    """Round trips, bulk text, one large display."""
    trips = sorted(run(client, "pass")[0] for _ in range(ROUNDS))
    lines, size = run(client, f"for _ in range({LINES}): print('x' * 99)")
    assert size >= LINES * 100, f"{LINES * 100 - size} bytes are missing"
    code = f"from IPython.display import display; display({{'text/plain': 'x' * {DISPLAY}}}, raw=True)"
    display, size = run(client, code)
    assert size >= DISPLAY, f"{DISPLAY - size} bytes are missing"
    return {
        "execute_p50": trips[len(trips) // 2],
        "execute_p99": trips[int(len(trips) * 0.99)],
        "lines_100k": lines,
        "display_50mb": display,
    }


def run(client: BlockingKernelClient, code: str) -> tuple[float, int]:
    """Seconds and bytes of text that the cell took and made."""
    size = 0

    def count(message: dict[str, Any]) -> None:
        nonlocal size
        content = message["content"]
        size += len(content.get("text", "")) + len(content.get("data", {}).get("text/plain", ""))

    began = time.perf_counter()
    reply = client.execute_interactive(code, timeout=300, allow_stdin=False, output_hook=count)
    assert reply["content"]["status"] == "ok", reply["content"]
    return time.perf_counter() - began, size


if __name__ == "__main__":
    main(sys.argv[1])
