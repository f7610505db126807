"""A page that is loaded anew while its kernel works."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from browser.lab import Lab


def test_a_page_that_is_loaded_in_mid_cell_says_busy(lab: Lab, page: Page, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    cell = f"import os, time\nprint('it runs')\nwhile not os.path.exists({str(go_on)!r}): time.sleep(0.05)"
    lab.write("reload.ipynb", cell)
    front = lab.page(lab.open("reload.ipynb", "cpu-argv"))
    front.until(front.execute(cell, cellId="c0"), "stream")
    notebook = lab.open_in(page, "reload.ipynb")
    expect(notebook.output(0)).to_contain_text("it runs")
    # As JupyterLab from 4.4 does itself at some moment: it takes the idle of this request for the kernel's.
    subshell = (
        "kernel => kernel.info.then(() => kernel.supportsSubshells && kernel.requestCreateSubshell({}).done)"
    )
    notebook.evaluate(f"({subshell})(PANEL.sessionContext.session.kernel).then(() => 0)")
    notebook.expect_kernel("busy")
    expect(notebook.prompt(0)).to_have_text("[*]:")
    go_on.touch()
    notebook.expect_kernel("idle")
