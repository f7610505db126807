"""In a notebook: the node, or the Jupyter server, is out of reach meanwhile; the button shows GPUs; long cells end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from remote import Remote

from browser.accessibility import assert_accessible
from browser.conftest import NewPage
from browser.lab import Lab

pytestmark = pytest.mark.full


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
        assert_accessible(page, ".jp-RemoteGPU-cellNotice")
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


def test_the_button_shows_gpus_and_the_list_shows_what_runs(lab: Lab, page: Page, tmp_path: Path) -> None:
    """The button asks the kernel without a cell, and the hub while the kernel is busy."""
    go_on = tmp_path / "go-on"
    notebook = lab.notebook(page, "button.ipynb", waiting_cell(go_on), "In", kernel="cpu")
    notebook.expect_kernel("idle")
    button = page.locator(".jp-RemoteGPU-gpuButton")
    button.click()
    expect(notebook.dialog).to_contain_text("none; the first cell takes them")
    expect(notebook.dialog).to_contain_text("Guard against SIGTERM")
    page.keyboard.press("Escape")
    notebook.run(0)
    notebook.expect_kernel("busy")
    button.click()
    expect(notebook.dialog).to_contain_text("The kernel is busy")
    page.keyboard.press("Escape")
    page.locator('[data-id="jp-running-sessions"]').click()
    section = page.locator("#jp-running-sessions").get_by_role("region", name="Remote GPU Kernels")
    expect(section.get_by_text("button.ipynb")).to_be_visible()
    go_on.touch()
    notebook.expect_done(0)
    notebook.run(1)  # the history of cells has these two only
    expect(notebook.output(1)).to_contain_text("'In']")
    expect(notebook.output(1)).not_to_contain_text("gpu_kernel")


# A page that a test drives is never hidden, and its notifications are not seen.
HIDE = """() => {
  window.shown = [];
  window.Notification = class extends window.Notification {
    constructor(title, options) { super(title, options); window.shown.push(`${title}: ${options.body}`); }
  };
  Object.defineProperty(document, 'hidden', { get: () => window.isHidden });
  window.look = isHidden => { window.isHidden = isHidden; document.dispatchEvent(new Event('visibilitychange')); };
  window.look(true);
}"""


def test_the_end_of_a_long_cell_is_reported_to_a_hidden_page_if_its_user_wants_that(
    lab: Lab, new_page: NewPage, tmp_path: Path
) -> None:
    go_on, toggle = tmp_path / "go-on", "jupyter-gpu-kernel:toggle-long-cells"
    page = new_page(permissions=["notifications"])
    source = f"secret = 1\n{waiting_cell(go_on)}\nraise ValueError('private')"
    notebook = lab.notebook(page, "long.ipynb", source, "7", kernel="cpu")
    notebook.expect_kernel("idle")
    assert not page.evaluate(f"jupyterapp.commands.isToggled('{toggle}')")
    page.evaluate(f"jupyterapp.commands.execute('{toggle}')")
    assert page.evaluate(f"jupyterapp.commands.isToggled('{toggle}')")
    lab.set("jupyter-gpu-kernel/long-cells", {"enabled": True, "seconds": 1})
    notebook = lab.open_in(page, "long.ipynb")
    notebook.expect_kernel("idle")
    notebook.run(1)
    notebook.expect_done(1)
    notebook.run(0)
    notebook.expect_kernel("busy")
    page.wait_for_function("performance.now() > (window.begun ??= performance.now()) + 1000")
    title = page.title()
    page.evaluate(HIDE)
    go_on.touch()
    page.wait_for_function("document.title === '✗ long.ipynb'")
    (shown,) = page.evaluate("window.shown")
    assert shown.startswith("long.ipynb: A cell has failed after") and "private" not in shown
    page.evaluate("window.look(false)")
    assert page.title() == title
    lab.set("jupyter-gpu-kernel/long-cells", {})
