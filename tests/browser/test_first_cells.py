"""In a notebook: the kernel is picked, and its first cells run. `make test` runs no other test in a browser."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from browser.lab import Lab

PLOT = """from IPython.display import SVG
SVG('<svg xmlns="http://www.w3.org/2000/svg" width="80" height="40"><path d="M0 40L80 0" stroke="red"/></svg>')"""


def test_a_kernel_is_picked_and_runs_cells(lab: Lab, page: Page) -> None:
    notebook = lab.notebook(
        page, "picked.ipynb", "import os\nprint(6 * 7, os.environ['SSH_CONNECTION'])", PLOT
    )
    notebook.choose_kernel("Remote GPU (cpu)")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.run(1)
    notebook.expect_done(0, 1)
    expect(notebook.output(0)).to_contain_text("42 127.0.0.1")
    expect(notebook.output(1).locator(".jp-RenderedSVG img")).to_be_visible()
    expect(notebook.status_bar).to_contain_text("no GPU yet")


def test_the_status_item_shows_memory_and_use_while_no_panel_is_open(lab: Lab, page: Page) -> None:
    notebook = lab.notebook(page, "use.ipynb", "1 + 1", kernel="gpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_done(0)
    expect(notebook.status_bar).to_contain_text(re.compile(r"GPU \d · [\d.]+ of 80 GiB, \d+ % · connected, "))
    lab.end_kernels()
