"""In a notebook: the kernel is picked and cells are run; the node, or the Jupyter server, is out of reach meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Page, expect
from remote import Remote

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


@contextlib.contextmanager
def without_login_node(remote: Remote) -> Iterator[None]:
    remote.hops.login.stop()
    try:
        yield
    finally:
        remote.hops.login.restart()


def waiting_cell(go_on: Path, shows: str = "") -> str:
    """The source of a cell that runs until the file `go_on` is there."""
    wait = f"while not os.path.exists({str(go_on)!r}): time.sleep(0.05)"
    return f"import os, time\n{shows and f'print({shows!r})'}\n{wait}\nprint('the end')"


def test_the_running_cell_says_that_its_node_is_out_of_reach(
    lab: Lab, remote: Remote, page: Page, tmp_path: Path
) -> None:
    """Also after a reload, never as an output, and never in the file."""
    go_on = tmp_path / "go-on"
    notebook = lab.notebook(page, "away.ipynb", waiting_cell(go_on), kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_kernel("busy")
    notice = notebook.cells.nth(0).locator(".jp-RemoteGPU-cellNotice")
    with without_login_node(remote):
        expect(notice).to_contain_text("has been out of reach since")
        expect(notice).to_contain_text("keeps running. This cell keeps running.")
        expect(notebook.status_bar.locator(".jp-RemoteGPU-status")).to_contain_text("reconnecting since")
        expect(notebook.output(0)).to_have_text("")
        notebook.evaluate("PANEL.context.save()")
        assert "out of reach" not in (lab.root / "away.ipynb").read_text()
        notebook = lab.open_in(page, "away.ipynb")
        expect(notice).to_contain_text("This cell keeps running.")
    expect(notice).to_have_count(0)
    go_on.touch()
    expect(notebook.output(0)).to_contain_text("the end")
    notebook.expect_done(0)


def test_a_kernel_is_offered_after_its_server_was_killed(lab: Lab, page: Page, tmp_path: Path) -> None:
    """The page stays open: it says that the server is gone, and one click brings the kernel back."""
    lab.end_kernels()  # or they would be detached
    go_on = tmp_path / "go-on"
    cell = waiting_cell(go_on, "begun")
    notebook = lab.notebook(page, "offered.ipynb", "x = 41", cell, "print(x + 1)", kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_done(0)
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("begun")
    expect(notebook.status_bar.locator(".jp-RemoteGPU-status")).to_contain_text("connected")
    lab.kill()
    notice = notebook.cells.nth(1).locator(".jp-RemoteGPU-cellNotice")
    expect(notice).to_contain_text("The browser has not reached the Jupyter server since")
    lab.start_again()
    page.add_locator_handler(notebook.dialog, lambda dialog: dialog.locator("button").last.click())
    offer = page.locator(".jp-RemoteGPU-offer")
    expect(offer).to_contain_text("The kernel is still running on")
    go_on.touch()
    offer.get_by_role("button", name="Reconnect").click()
    expect(offer).to_have_count(0)
    expect(notebook.output(1)).to_contain_text("the end")
    notebook.expect_done(1)
    notebook.run(2)
    expect(notebook.output(2)).to_contain_text("42")
