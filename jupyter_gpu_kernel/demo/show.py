"""The demo in a terminal: run the notebook, disturb it, and check the results."""

from __future__ import annotations

import time

from . import gpus
from .notebook import NUMBERS, Runner, kernel_in, make, numbers_in, outputs, process_in
from .stage import KERNEL, Stage, check_connection, end, stage
from .trouble import Trouble


def show() -> int:
    """Run the demo. Return 0 if all checks pass, else 1."""
    with stage() as at:
        passed = check_connection(at) and _run_notebook(at)
        passed = end(at) and passed
    passed = at.terminal.check(not at.cluster.folder.exists(), "the demo's folder is removed") and passed
    at.terminal.say("demo", "all checks passed" if passed else "a check FAILED")
    return 0 if passed else 1


def _run_notebook(at: Stage) -> bool:
    trouble = Trouble(at.cluster, lambda text: at.terminal.say("!", text))

    def on_text(text: str) -> None:
        at.terminal.text(text)
        trouble.printed(text)

    notebook = make(KERNEL)
    runner = Runner(notebook, lambda number, code: at.terminal.say(f"In [{number}]", code), on_text)
    at.terminal.say("notebook", "nbclient starts the kernel; the first cell takes a free GPU")
    try:
        runner.run()
    except Exception as error:  # one of nbclient's many errors, or ours from the provisioner
        return at.terminal.check(False, f"the notebook failed: {error}")
    finally:
        trouble.end()
    cells = outputs(notebook)
    _print_log(at, kernel_in(cells[-1]))
    return _check_results(at, cells, trouble)


def _print_log(at: Stage, kernel: str) -> None:
    """Print the kernel's log, as `jupyter gpu-kernel logs` shows it."""
    log = at.hub.call("logs", kernel=kernel, specs=at.specs, timeout=30)
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(line['time']))} {line['text']}" for line in log]
    at.terminal.say("logs", "\n".join(lines))


def _check_results(at: Stage, cells: list[str], trouble: Trouble) -> bool:
    where, gpu, long, alive, guard = cells
    checks = (
        (numbers_in(long) == list(range(NUMBERS)), f"all {NUMBERS} numbers arrived once, in order"),
        (trouble.signalled and "1 SIGTERM" in guard, "the kernel survived one SIGTERM"),
        (trouble.cut, "the link was cut and restored"),
        (process_in(alive) == process_in(where) > 0, "the kernel is the same process"),
        (str(sum(range(NUMBERS))) in alive, "its variables are kept"),
        (_is_expected_gpu(gpu, at.cluster.simulated), "it had a GPU that nobody else used"),
    )
    passed = [at.terminal.check(ok, text) for ok, text in checks]  # all of them are printed
    return all(passed)


def _is_expected_gpu(gpu: str, simulated: bool) -> bool:
    """Whether `nvidia-smi -L` listed one GPU of the right kind; the first simulated GPU is in use by others."""
    return gpu.count("GPU-") == 1 and (gpus.NAME in gpu) == simulated and not (simulated and "GPU 0:" in gpu)
