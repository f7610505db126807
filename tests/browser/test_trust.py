"""What of a journal a page trusts: the journal is the node's word, and outputs may have scripts."""

from __future__ import annotations

import subprocess
import sys

import pytest
from playwright.sync_api import Page, expect
from remote import Remote
from waiting import DEADLINE

from browser.lab import Lab, Notebook

pytestmark = pytest.mark.full

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


def test_only_what_this_page_executed_is_trusted(lab: Lab, remote: Remote, page: Page) -> None:
    """Also in a notebook that the user trusts nothing of it runs by being opened."""
    file = lab.write("trust.ipynb", "attack('node')", "attack('user')")
    words = [sys.executable, "-m", "jupyter", "trust", str(file)]
    subprocess.run(words, env=remote.program_environment(), check=True, timeout=DEADLINE)
    kernel_id = lab.open("trust.ipynb")
    front = lab.page(kernel_id)
    front.run(OUTPUTS)
    front.until(front.execute("attack('node')", cellId="c0"), "execute_reply", status="ok")

    def loaded(tab: Page) -> Notebook:
        notebook = lab.open_in(tab, "trust.ipynb")
        for part in ("html of node", "markdown", "text of node"):
            expect(notebook.output(0)).to_contain_text(part)
        return notebook

    def trusted(notebook: Notebook) -> list[bool]:
        return list(notebook.evaluate("[...PANEL.content.model.cells].map(cell => cell.trusted)"))

    notebook = loaded(page)
    assert trusted(notebook) == [False, True] and page.evaluate("top.ran ?? 0") == 0
    notebook.run(1)
    page.wait_for_function("top.ran?.length >= 4")
    assert page.evaluate("[...new Set(top.ran)]") == ["user"]

    notebook = loaded(page)  # without having saved
    page.wait_for_function("top.ran?.length >= 4")
    expect(notebook.output(1)).to_contain_text("html of user")
    assert trusted(notebook) == [False, True] and page.evaluate("[...new Set(top.ran)]") == ["user"]

    tab = page.context.new_page()
    notebook = loaded(tab)
    expect(notebook.output(1)).to_contain_text("text of user")
    assert trusted(notebook) == [False, False] and tab.evaluate("top.ran ?? 0") == 0


def test_outputs_of_executed_cells_run_nothing_where_the_user_trusts_none(lab: Lab, page: Page) -> None:
    """The first cell defines what the second one shows; the setting is read when a cell is executed."""
    lab.set("jupyter-gpu-kernel/outputs", {"untrusted_output": True})
    try:
        notebook = lab.notebook(page, "none.ipynb", OUTPUTS, "attack('node')\nprint('the end')", kernel="cpu")
        notebook.expect_kernel("idle")
        notebook.run(0)
        notebook.run(1)
        notebook.expect_done(0, 1)
        for part in ("html of node", "markdown", "text of node", "the end"):
            expect(notebook.output(1)).to_contain_text(part)
        notebook.evaluate("PANEL.context.save()")
        assert '"trusted": true' not in (lab.root / "none.ipynb").read_text()
        assert page.evaluate("top.ran ?? 0") == 0
        notebook = lab.open_in(page, "none.ipynb")
        expect(notebook.output(1)).to_contain_text("text of node")
        assert notebook.evaluate("PANEL.content.model.cells.get(1).trusted") is False
        assert page.evaluate("top.ran ?? 0") == 0
    finally:
        lab.set("jupyter-gpu-kernel/outputs", {})
    notebook.page.reload()
    notebook.run(1)
    page.wait_for_function("top.ran?.length >= 4")


def test_what_was_executed_before_is_not_trusted_either_where_the_user_trusts_none(
    lab: Lab, page: Page
) -> None:
    """The page restores the outputs, as it does after every reload without saving."""
    notebook = lab.notebook(page, "before.ipynb", OUTPUTS, "attack('node')\nprint('the end')", kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.run(1)
    notebook.expect_done(0, 1)
    page.wait_for_function("top.ran?.length >= 4")
    lab.set("jupyter-gpu-kernel/outputs", {"untrusted_output": True})
    try:
        notebook = lab.open_in(page, "before.ipynb")
        expect(notebook.output(1)).to_contain_text("the end")
        assert notebook.evaluate("PANEL.content.model.cells.get(1).trusted") is False
        assert page.evaluate("top.ran ?? 0") == 0
    finally:
        lab.set("jupyter-gpu-kernel/outputs", {})
