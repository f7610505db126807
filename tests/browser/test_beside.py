"""JupyterLab extensions that share notebooks between pages or execute cells in the server: cells are filled once.

Run by `make test-collaboration`, which makes an environment for each of them: some are large, and change often.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from remote import Remote

from browser.conftest import NewPage
from browser.lab import Lab, Notebook

FOLDER = os.environ.get("JUPYTER_GPU_KERNEL_BESIDE", "")
pytestmark = [pytest.mark.full, pytest.mark.skipif(not FOLDER, reason="run by make test-collaboration")]
EXTENSIONS = ["jupyter-collaboration", "jupyter_server_documents", "jupyter_server_nbmodel"]
LINES = [f"line {i}" for i in range(5)]
CELL = """import os, time
for i in range(5): print("line", i)
while not os.path.exists({0!r}): time.sleep(0.05)
print("done")"""


@pytest.fixture(params=EXTENSIONS)
def beside(request: pytest.FixtureRequest, remote: Remote, tmp_path: Path) -> Iterator[Lab]:
    """JupyterLab with ours and another extension."""
    with Lab(remote, tmp_path, python=str(Path(FOLDER, request.param, "bin", "python"))) as lab:
        yield lab
        lab.end_kernels()


def shared(page: Page, notebook: Notebook) -> bool:
    return bool(notebook.evaluate("PANEL.content.model.collaborative"))


def begin(lab: Lab, page: Page, go_on: Path) -> Notebook:
    """A notebook whose first cell runs until `go_on` exists. (A cell that the server executes may show nothing yet.)"""
    notebook = lab.notebook(page, "a.ipynb", CELL.format(str(go_on)), "print('i is', i)", kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_kernel("busy")
    return notebook


def expect_all(notebook: Notebook) -> None:
    """Everything, once."""
    expect(notebook.output(0)).to_have_text("\n".join([*LINES, "done", ""]))
    expect(notebook.prompt(0)).to_have_text("[1]:")


def test_a_page_is_loaded_anew_in_mid_cell_beside_another_one(
    beside: Lab, page: Page, new_page: NewPage, tmp_path: Path
) -> None:
    go_on = tmp_path / "go-on"
    notebook = begin(beside, page, go_on)
    pages = [notebook]
    if shared(page, notebook):
        other = beside.open_in(new_page(), "a.ipynb")
        expect(other.output(0)).to_contain_text(LINES[-1])
        pages.append(other)
    page.reload()
    expect(notebook.output(0)).to_contain_text(LINES[-1])
    go_on.touch()
    for one in pages:
        expect_all(one)
    pages[-1].run(1)
    expect(pages[-1].output(1)).to_have_text("i is 4\n")
    for one in pages:
        expect_all(one)


def test_a_page_is_closed_in_mid_cell(beside: Lab, page: Page, new_page: NewPage, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    notebook = begin(beside, page, go_on)
    other = beside.open_in(new_page(), "a.ipynb") if shared(page, notebook) else None
    page.close()
    go_on.touch()
    if other is not None:
        expect_all(other)
    else:  # the same browser: another one has no reason to take the cell for the one that ran
        expect_all(beside.open_in(page.context.new_page(), "a.ipynb"))


def test_the_server_is_killed_in_mid_cell(beside: Lab, remote: Remote, page: Page, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    notebook = begin(beside, page, go_on)
    page.keyboard.press("Control+s")
    beside.kill()
    beside.start_again()
    page.reload()
    expect(notebook.output(0)).to_contain_text(LINES[-1])
    go_on.touch()
    expect_all(notebook)
    notebook.run(1)
    expect(notebook.output(1)).to_have_text("i is 4\n")
