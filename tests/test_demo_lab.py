"""The demo in JupyterLab: its notebooks run in it as a user runs them, nothing printed is lost, nothing stays."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_output
from servers import HEADER, Page
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.demo.cluster import processes
from jupyter_gpu_kernel.demo.setup import NOTEBOOKS
from jupyter_gpu_kernel.demo.show import numbers_in, process_in

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="the practice cluster needs Linux"),
    pytest.mark.skipif(find_spec("jupyterlab") is None, reason="no JupyterLab: pip install '.[demo]'"),
]
PROGRAM = "from jupyter_gpu_kernel.demo import run_demo; raise SystemExit(run_demo(lab=True))"
# As in a terminal: what runs this test in the background may have it ignore Ctrl-C.
PROGRAM = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {PROGRAM}"
STORY, TROUBLE = "demo.ipynb", "trouble.ipynb"
ALL = list(range(90))


class Demo:
    """`demo --lab` as a process in a terminal's place, and JupyterLab in it as a browser sees it."""

    def __init__(self, home: Path) -> None:
        own = ("JUPYTER", "XDG_", "IPYTHON")
        environment = {name: value for name, value in os.environ.items() if not name.startswith(own)}
        environment |= {"HOME": str(home), "JUPYTER_TOKEN": "secret", "BROWSER": "true"}
        self._log = home.with_suffix(".log")
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._server: dict[str, Any] = {}
        self._pages: list[Page] = []

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def folder(self) -> Path:
        return Path(eventually(lambda: re.search(r"in the folder (\S+)", self.output), "its folder")[1])

    def wait_for_server(self) -> None:
        self._server = eventually(self._answering_server, "a server")

    def _answering_server(self) -> dict[str, Any]:
        for file in (self.folder / "jupyter" / "runtime").glob("jpserver-*[0-9].json"):
            try:
                server: dict[str, Any] = json.loads(file.read_text())
                urllib.request.urlopen(f"{server['url']}api", timeout=DEADLINE).close()
                return server
            except (OSError, ValueError):  # it begins
                continue
        return {}

    def ask(self, method: str, path: str, body: Any = None) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        url, headers = self._server["url"] + path, {**HEADER, "Content-Type": "application/json"}
        request = urllib.request.Request(url, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return bytes(answer.read())

    def open(self, notebook: str) -> tuple[Page, list[str]]:
        """A page on the notebook's kernel, and its code cells."""
        content = json.loads(self.ask("GET", f"api/contents/{notebook}"))["content"]
        kernel = {"name": content["metadata"]["kernelspec"]["name"]}
        body = {"path": notebook, "type": "notebook", "name": notebook, "kernel": kernel}
        session = json.loads(self.ask("POST", "api/sessions", body))
        address = self._server["url"].replace("http", "ws", 1)
        self._pages.append(Page(f"{address}api/kernels/{session['kernel']['id']}/channels"))
        return self._pages[-1], [one["source"] for one in content["cells"] if one["cell_type"] == "code"]

    def interrupt(self) -> None:
        """Ctrl-C in its terminal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        for page in self._pages:
            page.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(DEADLINE)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """One for all tests here: JupyterLab takes long to start. At its end nothing is left."""
    home = tmp_path_factory.mktemp("demo") / "home"
    home.mkdir()
    one = Demo(home)
    try:
        one.wait_for_server()
        yield one
        end(one)
        assert list(home.iterdir()) == []
    finally:
        one.close()


def end(demo: Demo) -> None:
    """Ctrl-C while the link is cut: it is restored, as the kernel is stopped through it."""
    local, (cut, *_) = demo.open(TROUBLE)
    local.until(local.execute(changed(cut, "cut(10)", "cut(60)")), "stream")
    folder = demo.folder
    demo.interrupt()
    assert demo.process.wait(DEADLINE) == 0, demo.output
    assert "FAILED" not in demo.output
    assert not folder.exists() and not processes(folder)


def changed(code: str, old: str, new: str) -> str:
    assert old in code
    return code.replace(old, new)


def save(demo: Demo, text: str) -> None:
    """demo.ipynb, with `text` below its long cell, as JupyterLab saves it."""
    model = json.loads(demo.ask("GET", f"api/contents/{STORY}"))
    model["content"]["cells"][3]["outputs"] = [new_output("stream", name="stdout", text=text)]
    body = {"type": "notebook", "format": "json", "content": model["content"]}
    demo.ask("PUT", f"api/contents/{STORY}", body)


def test_every_cell_runs_and_what_goes_wrong_harms_nothing(demo: Demo, tmp_path: Path) -> None:
    page, (where, long, short, know) = demo.open(STORY)
    local, (cut, sigterm, ask, complete) = demo.open(TROUBLE)
    process = process_in(page.run(where))
    assert process

    # The long cell waits in its middle, not a second after each number.
    go = tmp_path / "go"
    pause = f"while number == 45 and not os.path.exists({str(go)!r}): time.sleep(0.02)"
    quick = changed(long, "time.sleep(1)", pause)
    asked = page.execute(quick)
    page.until(asked, "stream")
    assert f"kill -TERM {process}" in local.run(sigterm)
    assert "is restored" in local.run(changed(cut, "cut(10)", "cut(1)"))
    assert "gpu-demo" in local.run(ask)
    go.touch()
    page.until(asked, "status", execution_state="idle")
    assert numbers_in(page.printed(asked)) == ALL
    assert "the kernel stays, the cell goes on" in page.printed(asked)
    assert page.run(short).split()[-1] == str(ALL[-1])

    save(demo, page.printed(asked))
    assert local.run(complete) == f"{len(ALL)} numbers, each once and in order\n"
    save(demo, page.printed(asked).replace("#07 ", ""))
    assert "NOT complete" in local.run(complete)

    known = page.run(know)
    assert f"process {process}: {len(ALL)} numbers, the last is {ALL[-1]}" in known
    assert re.search(r"sigterms +1\n", known)


def test_jupyterlab_has_the_extension_or_the_demo_says_that_it_is_missing(demo: Demo) -> None:
    page = demo.ask("GET", "lab").decode()
    has = '"name": "jupyter-gpu-kernel"' in page
    assert has == ("extension is not built" not in demo.output)
    built = NOTEBOOKS.parents[1] / "labextension" / "package.json"
    assert has or not built.exists()


@pytest.mark.parametrize("file", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda file: file.name)
def test_the_notebooks_are_valid(file: Path) -> None:
    nbformat.validate(nbformat.read(file, as_version=4))


def test_without_npm_make_says_so_and_goes_on(tmp_path: Path) -> None:
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make here")
    target = "jupyter_gpu_kernel/labextension/package.json"  # in an empty folder it is not built yet
    done = subprocess.run(
        [make, "-f", str(Path(__file__).parents[1] / "Makefile"), target],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stderr
    assert "no npm here" in done.stderr
