"""Nothing is missed: a page that is loaded anew, a browser that is offline, a server that is restarted, in mid-cell."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from proxies import Forwarder
from remote import Remote
from waiting import eventually

from browser.lab import Lab, Notebook
from browser.pages import pages

pytestmark = pytest.mark.full

PINGS = {"ws_ping_interval": 2000, "ws_ping_timeout": 6000}
"""Milliseconds; a Jupyter server waits 90 seconds for the answer to a ping."""
OUTAGE = 20.0
"""Seconds that the browser is offline, so that the server closes the connection, and keeps what follows for the page.
What the server had written before is lost. The other tests of this module run meanwhile."""


def counting(go_on: Path) -> str:
    """A cell that prints numbers until the file is there."""
    return f"""import itertools, os, time
for number in itertools.count():
    print(number, flush=True)
    if os.path.exists({str(go_on)!r}): break
    time.sleep(0.05)
print("the end")"""


def expect_whole(notebook: Notebook, cell: int = 0) -> None:
    """Waits until the cell has ended, and each number is there once, and in order. A part that was lost is restored
    soon after the end, when the page has requested the outputs twice."""
    notebook.expect_done(cell)
    expect(notebook.output(cell)).to_contain_text("the end")

    def is_whole() -> bool:
        *numbers, _, _ = notebook.output(cell).inner_text().split()
        return numbers == [str(number) for number in range(len(numbers))]

    eventually(is_whole, "each number is there once, and in order", every=0.1)


@pytest.fixture(scope="module", autouse=True)
def offline(
    remote: Remote, chromium: Browser, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[], Notebook]]:
    """A notebook whose browser goes offline in mid-cell, as this module begins. Call it: the outage is over."""
    folder = tmp_path_factory.mktemp("offline")
    go_on = folder / "go-on"
    with (
        Lab(remote, folder, more=[f"--ServerApp.tornado_settings={PINGS}"]) as lab,
        pages(chromium, []) as new,
    ):
        page = new()
        notebook = lab.notebook(page, "offline.ipynb", counting(go_on), "print(number > 0)", kernel="cpu")
        notebook.expect_kernel("idle")
        notebook.run(0)
        expect(notebook.output(0)).to_contain_text("3")
        page.context.set_offline(True)
        began = time.monotonic()

        def over() -> Notebook:
            page.wait_for_timeout(max(0, began + OUTAGE - time.monotonic()) * 1000)
            page.context.set_offline(False)
            go_on.touch()
            return notebook

        yield over
        go_on.touch()
        lab.end_kernels()


def test_a_page_that_is_loaded_in_mid_cell_says_busy(lab: Lab, page: Page, tmp_path: Path) -> None:
    cell = counting(tmp_path / "go-on")
    lab.write("reload.ipynb", cell)
    front = lab.page(lab.open("reload.ipynb", "cpu-argv"))
    front.until(front.execute(cell, cellId="c0"), "stream")
    notebook = lab.open_in(page, "reload.ipynb")
    expect(notebook.output(0)).to_contain_text("3")
    # As JupyterLab from 4.4 does itself at some moment: it takes the idle of this request for the kernel's.
    subshell = "kernel.info.then(() => kernel.supportsSubshells && kernel.requestCreateSubshell({}).done)"
    notebook.evaluate(f"(kernel => {subshell})(PANEL.sessionContext.session.kernel).then(() => 0)")
    notebook.expect_kernel("busy")
    expect(notebook.prompt(0)).to_have_text("[*]:")
    (tmp_path / "go-on").touch()
    expect_whole(notebook)
    notebook.expect_kernel("idle")


def test_a_cell_goes_on_after_the_page_was_loaded_anew(lab: Lab, page: Page, tmp_path: Path) -> None:
    """Without having saved, in a notebook that was not trusted before."""
    notebook = lab.notebook(page, "again.ipynb", counting(tmp_path / "go-on"), kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    expect(notebook.output(0)).to_contain_text("3")
    notebook = lab.open_in(page, "again.ipynb")
    expect(notebook.output(0)).to_contain_text("3")
    (tmp_path / "go-on").touch()
    expect_whole(notebook)


def test_a_cell_that_waits_for_input_says_so_after_the_page_was_loaded_anew(lab: Lab, page: Page) -> None:
    """Nobody is asked again."""
    notebook = lab.notebook(page, "asks.ipynb", "name = input('Name? ')", kernel="cpu")
    notebook.expect_kernel("idle")
    question = notebook.cells.nth(0).locator(".jp-RemoteGPU-question")
    notebook.run(0)
    expect(notebook.output(0).locator("input")).to_be_visible()
    expect(question).to_have_count(0)
    notebook = lab.open_in(page, "asks.ipynb")
    expect(question).to_contain_text("input(): “Name? ”. To end it, interrupt the kernel.")
    notebook.evaluate("PANEL.sessionContext.session.kernel.interrupt().then(() => 0)")
    expect(notebook.output(0)).to_contain_text("KeyboardInterrupt")
    expect(question).to_have_count(0)


def test_a_restarted_server_finds_the_kernel_and_what_it_printed(
    own_lab: Lab, remote: Remote, page: Page, tmp_path: Path
) -> None:
    notebook = own_lab.notebook(page, "restart.ipynb", counting(tmp_path / "go-on"), kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    expect(notebook.output(0)).to_contain_text("3")
    page.keyboard.press("Control+s")
    own_lab.kill()
    kernels = remote.kernels_on_node()
    own_lab.start_again()
    # Another tab does not trust what this one has executed. It shows the part that was saved, and then the rest.
    tab = page.context.new_page()
    page.close()
    notebook = own_lab.open_in(tab, "restart.ipynb")
    notebook.expect_kernel("busy")
    assert set(remote.kernels_on_node()) <= set(kernels)
    (tmp_path / "go-on").touch()
    expect_whole(notebook)


def test_a_browser_that_was_offline_gets_all_that_it_missed(offline: Callable[[], Notebook]) -> None:
    notebook = offline()
    # JupyterLab's “Server Connection Error”. When one is closed, the next may be shown at once.
    dismiss = notebook.dialog.get_by_role("button", name=re.compile("Close|Dismiss"))
    notebook.page.add_locator_handler(dismiss, lambda: dismiss.click(), no_wait_after=True)
    expect_whole(notebook)
    notebook.run(1)
    notebook.expect_done(1)
    expect(notebook.output(1)).to_contain_text("True")


@pytest.fixture
def proxy(lab: Lab) -> Iterator[Forwarder]:
    """A proxy between the browser and the server."""
    forwarder = Forwarder(int(lab.address.rpartition(":")[2]))
    yield forwarder
    forwarder.close()


def open_over(proxy: Forwarder, lab: Lab, page: Page, path: str, *cells: str) -> Notebook:
    lab.write(path, *cells, kernel="cpu")
    page.goto(lab.url(path).replace(lab.address, proxy.address))
    notebook = Notebook(page, path)
    notebook.expect_kernel("idle")
    return notebook


def lose(proxy: Forwarder, messages: bytes, count: int) -> None:
    """The connection is lost; the server sends so many messages of a type into it before it notices."""
    proxy.lose()
    eventually(lambda: proxy.swallowed.count(messages) >= count, "lost messages")


def reconnect(notebook: Notebook, proxy: Forwarder) -> None:
    """As “Reconnect to Kernel” does, since the page itself tries at long intervals."""
    proxy.restore()
    notebook.evaluate("PANEL.sessionContext.session.kernel.reconnect().then(() => 0)")


def test_what_the_server_sent_into_a_dead_connection_is_restored(
    lab: Lab, proxy: Forwarder, page: Page, tmp_path: Path
) -> None:
    """The cell goes on to print over the new connection: the lost part is in its middle."""
    notebook = open_over(proxy, lab, page, "lost.ipynb", counting(tmp_path / "go-on"))
    notebook.run(0)
    expect(notebook.output(0)).to_contain_text("3")
    lose(proxy, b'"stream"', 10)
    before = int(notebook.output(0).inner_text().split()[-1])
    reconnect(notebook, proxy)
    expect(notebook.output(0)).to_have_text(re.compile(rf"\b{before}\s{before + 1}\b"))  # while the cell runs
    (tmp_path / "go-on").touch()
    expect_whole(notebook)


def test_a_cell_whose_end_was_sent_into_a_dead_connection_ends(
    lab: Lab, proxy: Forwarder, page: Page, tmp_path: Path
) -> None:
    notebook = open_over(proxy, lab, page, "end.ipynb", counting(tmp_path / "go-on"), "print(number > 0)")
    notebook.run(0)
    notebook.run(1)
    expect(notebook.output(0)).to_contain_text("3")
    proxy.lose()
    (tmp_path / "go-on").touch()
    lose(proxy, b'"execute_reply"', 2)
    reconnect(notebook, proxy)
    expect_whole(notebook)
    notebook.expect_done(1)
    expect(notebook.output(1)).to_contain_text("True")
    notebook.expect_kernel("idle")
