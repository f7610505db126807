"""The demo as a story on the terminal: cell by cell, trouble on purpose, and the judgement."""

from __future__ import annotations

import time

from . import gpus
from .notebook import NUMBERS, Runner, kernel_in, make, numbers_in, outputs, process_in
from .stage import KERNEL, Stage, end, stage, walk
from .trouble import Trouble


def show() -> int:
    """Run it all; 0 if everything that was promised held."""
    with stage() as at:
        held = walk(at) and _run_notebook(at)
        held = end(at) and held
    held = at.terminal.check(not at.cluster.folder.exists(), "the folder is gone") and held
    at.terminal.say("demo", "everything held" if held else "something did NOT hold")
    return 0 if held else 1


def _run_notebook(at: Stage) -> bool:
    trouble = Trouble(at.cluster, lambda text: at.terminal.say("!", text))

    def on_text(text: str) -> None:
        at.terminal.text(text)
        trouble.heard(text)

    notebook = make(KERNEL)
    runner = Runner(notebook, lambda number, code: at.terminal.say(f"In [{number}]", code), on_text)
    at.terminal.say("notebook", "nbclient starts the kernel; its first cell takes a GPU that nobody uses")
    try:
        runner.run()
    except Exception as error:  # nbclient's many, and ours through the provisioner: all mean the same here
        return at.terminal.check(False, f"the notebook did not come to its end: {error}")
    finally:
        trouble.end()
    cells = outputs(notebook)
    _tell_story(at, kernel_in(cells[-1]))
    return _judge(at, cells, trouble)


def _tell_story(at: Stage, kernel: str) -> None:
    """What the work node wrote down of the kernel, as `jupyter gpu-kernel logs` shows it."""
    story = at.hub.call("logs", kernel=kernel, specs=at.specs, timeout=30)
    lines = [f"{time.strftime('%H:%M:%S', time.localtime(line['time']))} {line['text']}" for line in story]
    at.terminal.say("logs", "\n".join(lines))


def _judge(at: Stage, cells: list[str], trouble: Trouble) -> bool:
    where, gpu, long, alive, guard = cells
    checks = (
        (numbers_in(long) == list(range(NUMBERS)), f"all {NUMBERS} numbers came, once each, in order"),
        (trouble.signalled and "1 SIGTERM" in guard, "the kernel got one SIGTERM and stayed"),
        (trouble.cut, "the link was cut, and came back"),
        (process_in(alive) == process_in(where) > 0, "it is the same process"),
        (str(sum(range(NUMBERS))) in alive, "its variables are alive"),
        (_fits(gpu, at.cluster.simulated), "it had a GPU that nobody else was on"),
    )
    held = [at.terminal.check(ok, text) for ok, text in checks]  # every one is told
    return all(held)


def _fits(gpu: str, simulated: bool) -> bool:
    """Whether `nvidia-smi -L` showed one GPU, of the right kind; of the simulated ones the first is taken."""
    return gpu.count("GPU-") == 1 and (gpus.NAME in gpu) == simulated and not (simulated and "GPU 0:" in gpu)
