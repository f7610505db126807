"""Run train.ipynb for ten learning rates, all at once: the queue of the GPU machine starts each when a GPU is free."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

KERNEL = sys.argv[1] if len(sys.argv) > 1 else "gpu2"  # the name that was given to `jupyter gpu-kernel add`
HERE = Path(__file__).parent
RATES = ["0.9", "0.5", "0.3", "0.2", "0.1", "0.05", "0.03", "0.02", "0.01", "0.001"]

runs = {}
for rate in RATES:
    output = Path(f"train-{rate}.ipynb")
    command = [sys.executable, "-m", "papermill", str(HERE / "train.ipynb"), str(output)]
    command += ["-k", KERNEL, "-p", "learning_rate", rate, "--no-progress-bar"]
    runs[output] = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
for output, run in runs.items():
    errors = run.communicate()[1]
    print(output, "is complete" if run.returncode == 0 else f"failed: {errors.splitlines()[-1:]}", flush=True)
sys.exit(any(run.returncode for run in runs.values()))
