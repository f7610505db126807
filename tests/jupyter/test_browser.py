"""JupyterLab in a real browser: what of a journal it trusts, and what its status bar says.

Needs Chromium and the built JupyterLab side (`make labextension`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import PROGRAM, Browser
from locked import Owner, log_in
from nbformat.v4 import new_code_cell, new_notebook
from remote import Remote
from servers import Page, Server
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient

BUILT = Path(sys.prefix, "share", "jupyter", "labextensions", "jupyter-gpu-kernel", "package.json")
pytestmark = [
    pytest.mark.usefixtures("remote"),
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium here"),
    pytest.mark.skipif(not BUILT.exists(), reason="the JupyterLab side is not built: make labextension"),
]
LAB = ["jupyterlab", "--LabApp.expose_app_in_browser=True", "--ContentsManager.allow_hidden=True"]

# What runs in the page notes its name in `top.ran`.
OUTPUTS = """
import ipywidgets
from IPython.display import HTML, SVG, Javascript, Latex, Markdown, display
def run(name): return f"(top.ran ??= []).push('{name}')"
def attack(name):
    image = f'<img src="x:" onerror="{run(name)}">'
    display(HTML(f"<b>html of {name}</b><script>{run(name)}</script>"), HTML(image), Markdown(f"**markdown** {image}"))
    display(Javascript(run(name)), Latex(f"$x^2$ {image}"), ipywidgets.HTML(image))
    display(SVG(f'<svg xmlns="http://www.w3.org/2000/svg" onload="{run(name)}"><script>{run(name)}</script></svg>'))
    shown = display(HTML("at first"), display_id=True)
    shown.update(HTML(image))
    print("text of", name)
"""
PANEL = "[...jupyterapp.shell.widgets('main')].find(widget => widget.context?.path === 'a.ipynb')"


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    one = Browser(tmp_path / "profile")
    yield one
    one.close()


def notebook(folder: Path, *sources: str, kernel: str = "") -> None:
    """a.ipynb, never executed; the cells' ids are c0, c1 …"""
    cells = [new_code_cell(source, id=f"c{i}") for i, source in enumerate(sources)]
    spec = {"name": kernel, "display_name": f"Remote GPU ({kernel})", "language": "python"}
    metadata = {"kernelspec": spec} if kernel else {}
    (folder / "a.ipynb").write_text(json.dumps(new_notebook(cells=cells, metadata=metadata)))


def in_kernel(page: Page, code: str, cell: str = "") -> None:
    asked = page.execute(code, **({"cellId": cell} if cell else {}))
    assert page.until(asked, "execute_reply")["content"]["status"] == "ok"


def test_only_what_this_page_executed_is_trusted(remote: Remote, tmp_path: Path, browser: Browser) -> None:
    """The journal is the node's word: also in a notebook that the user trusts nothing of it runs by being opened."""
    notebook(tmp_path, "attack('node')", "attack('user')")
    words = [sys.executable, "-m", "jupyter", "trust", str(tmp_path / "a.ipynb")]
    subprocess.run(words, env=remote.program_environment(), check=True, timeout=DEADLINE)

    def loaded() -> None:
        browser.open(f"http://{server.address}/lab/tree/a.ipynb?token=secret&reset")
        browser.until("document.querySelector('.jp-Notebook')?.innerText.includes('text of node')")

    def shown(cell: int) -> Any:
        return browser.evaluate(
            f"document.querySelectorAll('.jp-Notebook .jp-OutputArea')[{cell}].textContent"
        )

    def trusted() -> Any:
        return browser.evaluate(f"[...{PANEL}.content.model.cells].map(cell => cell.trusted)")

    with Server(remote, tmp_path, program=LAB) as server:
        kernel_id = server.open("a.ipynb")
        page = server.page(kernel_id)
        in_kernel(page, OUTPUTS)
        in_kernel(page, "attack('node')", "c0")
        loaded()
        assert trusted() == [False, True]
        eventually(lambda: all(word in shown(0) for word in ("html of node", "markdown")), "what is harmless")

        browser.evaluate(f"(jupyterapp.shell.activateById({PANEL}.id), {PANEL}.content.activeCellIndex = 1)")
        browser.evaluate("jupyterapp.commands.execute('notebook:run-cell').then(() => 0)")
        browser.until("top.ran?.length >= 4")
        assert browser.evaluate("[...new Set(top.ran)]") == ["user"]

        loaded()  # without having saved
        browser.until("top.ran?.length >= 4")
        eventually(lambda: "html of user" in shown(1), "restored")
        assert trusted() == [False, True]
        assert browser.evaluate("[...new Set(top.ran)]") == ["user"]

        browser.evaluate("sessionStorage.clear()")  # as a new tab is
        loaded()
        eventually(lambda: "html of user" in shown(1), "restored")
        assert trusted() == [False, False] and browser.evaluate("top.ran ?? 0") == 0
        server.ask("DELETE", f"/api/kernels/{kernel_id}")


def test_a_refused_start_goes_on_when_its_user_has_signed_in(
    remote: Remote, tmp_path: Path, browser: Browser, locked: dict[str, Any]
) -> None:
    """The page says where to type what; the kernel then starts by itself, and so it is after a drop."""
    remote.write("locked", provisioner=True, **locked)
    with remote.in_use(), HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    notebook(tmp_path, "print(6 * 7)", kernel="locked")
    shown = "document.querySelector('.Toastify')?.innerText"
    status = "[...document.querySelectorAll('.jp-StatusBar-TextItem')].map(one => one.textContent).join('; ')"

    with Server(remote, tmp_path, program=LAB) as server, remote.in_use():
        browser.open(f"http://{server.address}/lab/tree/a.ipynb?token=secret&reset")
        browser.until("document.querySelector('.jp-Dialog')?.innerText.includes('File → New → Terminal')")
        browser.until(f"{shown}?.includes('/jupyter-gpu-kernel login locked')")
        browser.evaluate("[...document.querySelectorAll('.jp-Dialog')].forEach(one => one.remove())")
        log_in(remote, locked, Owner())
        browser.until(f"{PANEL}.sessionContext.session?.kernel?.status === 'idle'")
        browser.until(f"!{shown}?.includes('login locked')")
        browser.until(f"{status}.includes('no GPU yet')")

        browser.evaluate("jupyterapp.commands.execute('terminal:create-new').then(() => 0)")
        remote.hops.login.drop()
        browser.until(f"{status}.includes('until you sign in')")
        log_in(remote, locked, Owner())
        browser.until(f"{status}.includes('no GPU yet')")
        (kernel,) = server.ask("GET", "/api/kernels")
        server.ask("DELETE", f"/api/kernels/{kernel['id']}")


def test_a_page_that_is_loaded_in_mid_cell_says_busy(
    remote: Remote, tmp_path: Path, browser: Browser
) -> None:
    go_on, kernel = tmp_path / "go-on", f"{PANEL}.sessionContext.session?.kernel"
    cell = f"import os, time\nprint('it runs')\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.05)"
    notebook(tmp_path, cell)
    with Server(remote, tmp_path, program=LAB) as server:
        kernel_id = server.open("a.ipynb", "cpu-argv")
        page = server.page(kernel_id)
        page.until(page.execute(cell, cellId="c0"), "stream")
        browser.open(f"http://{server.address}/lab/tree/a.ipynb?token=secret&reset")
        browser.until("document.querySelector('.jp-OutputArea-output')?.innerText.includes('it runs')")
        # As JupyterLab from 4.4 does itself at some moment: it takes the idle of this request for the kernel's.
        subshell = "kernel => kernel.info.then(() => kernel.supportsSubshells && kernel.requestCreateSubshell({}).done)"
        browser.evaluate(f"({subshell})({kernel}).then(() => 0)")
        browser.until(f"{kernel}.status === 'busy'")
        assert browser.evaluate("document.querySelector('.jp-InputPrompt').innerText") == "[*]:"
        go_on.touch()
        browser.until(f"{kernel}.status === 'idle'")
        server.ask("DELETE", f"/api/kernels/{kernel_id}")
