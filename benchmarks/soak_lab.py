"""A long notebook in a real JupyterLab, undisturbed and disturbed; the saved notebooks must be the same.

    PYTHONPATH=tests NODE_PATH=…/node_modules python benchmarks/soak_lab.py [SEED]

The kernel is behind two real sshd on loopback. Disturbed is: the link, dropped and frozen at random, and a server
that is quit and started again in the middle. Needs sshd, Node with playwright-core, a Chromium, and in this Python
jupyterlab, ipywidgets, matplotlib and tqdm. Prints where the notebooks differ; exits with 1 if they do.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat
from remote import Remote, eventually
from sshd import Sshd, _sessions, free_port

WITHIN = 300.0
LABEXTENSION = Path(__file__).parent.parent / "jupyter_gpu_kernel" / "labextension"

CELLS = (
    "import sys, time\nfor i in range(60):\n    print(i, '·' * i, flush=True)\n    time.sleep(0.02)\n'end'",
    "from tqdm import tqdm\nbar = '{percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt}'\n"
    "for i in tqdm(range(40), bar_format=bar, ncols=60):\n    time.sleep(0.02)",
    "%matplotlib inline\nimport matplotlib.pyplot as plt\nfor n in range(1, 4):\n"
    "    plt.plot([x**n for x in range(30)])\n    plt.show()\n    time.sleep(0.2)",
    "from ipywidgets import IntProgress\nbar = IntProgress(max=20)\ndisplay(bar)\n"
    "for i in range(20):\n    bar.value += 1\n    time.sleep(0.03)\nprint(bar.value)",
    "print('before')\ntime.sleep(0.3)\nprint('to stderr', file=sys.stderr)\n1 / 0",
    "shown = display('0', display_id=True)\nfor i in range(30):\n    shown.update(str(i))\n    time.sleep(0.02)",
    "from IPython.display import clear_output\nfor i in range(20):\n    clear_output(wait=True)\n    print(i)\n"
    "    time.sleep(0.03)",
    "shown.update('from another cell')\nprint(input('who? '))\ntime.sleep(0.3)",
)


class Lab:
    """A JupyterLab server and the address of its notebook."""

    def __init__(self, remote: Remote, root: Path) -> None:
        self._remote = remote
        self._root = root
        self._port = free_port()
        extensions = remote.folder / "prefix" / "share" / "jupyter" / "labextensions"
        extensions.mkdir(parents=True, exist_ok=True)
        (extensions / LABEXTENSION.parent.name.replace("_", "-")).symlink_to(LABEXTENSION)
        self.start()

    def start(self) -> None:
        """Return once its port is open."""
        words = [sys.executable, "-m", "jupyterlab", "--allow-root", "--no-browser", f"--port={self._port}"]
        words += ["--IdentityProvider.token=soak", f"--ServerApp.root_dir={self._root}"]
        words += ["--ServerApp.port_retries=0", "--LabApp.expose_app_in_browser=True"]
        environment = self._remote.program_environment()
        with open(self._root.parent / "lab.log", "ab") as log:
            self._process = subprocess.Popen(words, env=environment, stdout=log, stderr=log, cwd=self._root)
        eventually(lambda: f":{self._port}/lab" in self.log(), "JupyterLab listens")

    def log(self) -> str:
        return (self._root.parent / "lab.log").read_text()

    def url(self, notebook: str) -> str:
        return f"http://127.0.0.1:{self._port}/lab/tree/{notebook}?token=soak&reset"

    def stop(self) -> None:
        """As Ctrl+C and y do."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(WITHIN)
        (self._root.parent / "lab.log").write_text("")


class Browser:
    """`browser("cells")`: a command of soak_lab.mjs."""

    def __init__(self) -> None:
        script = Path(__file__).with_suffix(".mjs")
        self._process = subprocess.Popen(
            ["node", str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self, command: str, **more: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(json.dumps({"do": command, **more}), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WITHIN)


def write(path: Path, cells: list[str]) -> None:
    """A notebook with these cells, on the kernelspec “cpu”; a cell that fails may."""
    spec = {"name": "cpu", "display_name": "cpu", "language": "python"}
    notebook = nbformat.v4.new_notebook(metadata={"kernelspec": spec})
    for number, source in enumerate(cells):
        cell = nbformat.v4.new_code_cell(source, id=f"cell-{number}")
        cell.metadata["tags"] = ["raises-exception"]
        notebook.cells.append(cell)
    nbformat.write(notebook, path)


def finish(browser: Browser, path: Path, count: int, after: Callable[[int], None] = lambda done: None) -> Any:
    """Until `count` cells have their number, whatever is asked being answered; then what is saved.

    `after` is called with how many have one, whenever that was looked at.
    """

    def look() -> bool:
        browser("answer", text="me")
        numbered = [cell["count"] is not None for cell in browser("cells")]
        after(sum(numbered))
        return all(numbered[:count])

    eventually(look, "all cells have ended", WITHIN)
    time.sleep(1)  # what may still come
    browser("command", id="docmanager:save")
    return json.loads(re.sub(r'"model_id": "\w+"', '"model_id": ""', path.read_text()))


@contextlib.contextmanager
def trouble(servers: list[Sshd], dice: random.Random) -> Iterator[None]:
    """Drops connections, or stops their servers for some seconds, every few seconds."""
    over = threading.Event()

    def make() -> None:
        while not over.wait(dice.uniform(2, 6)):
            server = dice.choice(servers)
            if dice.random() < 0.5:
                server.drop()
            else:
                freeze(server, dice.uniform(1, 8))

    thread = threading.Thread(target=make)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def freeze(server: Sshd, seconds: float) -> None:
    assert server._process is not None
    pids = _sessions(server._process.pid)
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        time.sleep(seconds if number == signal.SIGSTOP else 0)


def same(name: str, one: Any, other: Any) -> bool:
    """Whether two notebooks are; prints where not."""
    differ = [pair for pair in zip(one["cells"], other["cells"], strict=True) if pair[0] != pair[1]]
    for pair in differ:
        print(f"{name} differs:", *(json.dumps(cell, ensure_ascii=False)[:2000] for cell in pair), sep="\n  ")
    if one["metadata"] != other["metadata"]:
        print(f"{name} differs:", one["metadata"], other["metadata"], sep="\n  ")
    print(f"{name}: {len(one['cells']) - len(differ)} of {len(one['cells'])} cells are the same", flush=True)
    return one == other


def soak(remote: Remote, root: Path, seed: str) -> bool:
    """Three times the same notebook, that asks in its first half only: nobody can answer what a gone page was asked."""
    cells = [*CELLS, *CELLS, *CELLS[:-1], *CELLS[:-1], *CELLS[:-1], *CELLS[:3]]
    lab, browser = Lab(remote, root), Browser()

    def run(name: str, after: Callable[[int], None] = lambda done: None) -> Any:
        write(root / name, cells)
        browser("open", url=lab.url(name))
        browser("run")
        return finish(browser, root / name, len(cells), after)

    def quit_and_start(done: int) -> None:
        if done > len(cells) // 2 and not quitted:
            quitted.append(done)
            lab.stop()
            lab.start()
            browser("open", url=lab.url("quit.ipynb"))

    quitted: list[int] = []
    try:
        wanted = run("undisturbed.ipynb")
        with trouble([remote.hops.login, remote.hops.work], random.Random(seed)):
            fine = same(f"dropped (seed {seed})", wanted, run("dropped.ipynb"))
        return same("quit", wanted, run("quit.ipynb", quit_and_start)) and fine
    finally:
        browser.close()
        lab.stop()


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="jgk-", dir="/tmp") as folder:  # a socket's path must be short
        root = Path(folder) / "root"
        root.mkdir()
        (Path(folder) / "remote").mkdir()
        remote = Remote(Path(folder) / "remote")
        remote.start()
        try:
            return 0 if soak(remote, root, sys.argv[1] if len(sys.argv) > 1 else "1") else 1
        finally:
            end_all(remote)
            remote.stop()


def end_all(remote: Remote) -> None:
    """The kernels that a server's exit has left."""
    spec = remote.write("cpu", provisioner=True)
    specs = [{"name": spec.name, "settings": spec.settings}]
    for kernel in remote.ask("ps", specs=specs):
        remote.ask("stop", kernel=kernel["id"], specs=specs)


if __name__ == "__main__":
    sys.exit(main())
