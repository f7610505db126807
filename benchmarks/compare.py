"""Compares a remote kernel with the same kernel used on its node itself; prints a table of medians and ratios.

    python benchmarks/compare.py NAME [ROUNDS]

NAME is a kernelspec made by `jupyter gpu-kernel add`, best with `--gpus 0` (so that sampling GPUs does not count).
The two ways are measured in turn, as machines are noisy; the node's Python needs jupyter_client (ipykernel brings it).
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from jupyter_gpu_kernel.hub.paths import trust_file
from jupyter_gpu_kernel.hub.ssh import connect, route
from jupyter_gpu_kernel.kernelspecs import find

MEASURE = Path(__file__).with_name("measure.py")


def main(name: str, rounds: int) -> None:
    """Measures in turn, prints."""
    settings = find(name).settings
    hops = route.resolve(
        settings["route"], identity=settings.get("identity", ()), config=settings.get("config")
    )
    node = connect.connect(hops, ask=None, trust_file=trust_file())
    bare, remote = [], []
    for turn in range(rounds):
        print(f"round {turn + 1} of {rounds}", file=sys.stderr)
        done = node.run(
            shlex.join([settings["python"], "-", "--bare"]), stdin=MEASURE.read_bytes(), timeout=300
        )
        if done.returncode:
            raise SystemExit(done.stderr.decode())
        bare.append(json.loads(done.stdout.splitlines()[-1]))
        command = [sys.executable, str(MEASURE), name]
        remote.append(json.loads(subprocess.check_output(command, text=True).splitlines()[-1]))
    node.close()
    print(f"{'':14}{'bare':>10}{'remote':>10}{'ratio':>8}")
    for key in bare[0]:
        ours, theirs = (statistics.median(run[key] for run in runs) for runs in (remote, bare))
        print(f"{key:14}{theirs * 1e3:9.1f}ms{ours * 1e3:8.1f}ms{ours / theirs:8.2f}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 3)
