"""The panel “Remote GPUs”: what it shows of real kernels and GPUs, what can be done there, and what it costs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from remote import Remote

from browser.conftest import NewPage
from browser.lab import Lab, Notebook

pytestmark = pytest.mark.full

AXE = Path(__file__).parents[2] / "labextension" / "node_modules" / "axe-core" / "axe.min.js"
RUN = """path => jupyterapp.commands.execute('docmanager:open', {path}).then(async document => {
    await document.context.ready; await document.sessionContext.ready;
    jupyterapp.commands.execute('notebook:run-all-cells');
})"""


@pytest.fixture
def overviews(page: Page) -> list[str]:
    """The requests of the panel so far."""
    found: list[str] = []
    page.on("request", lambda request: found.append(request.url) if "/api/overview" in request.url else None)
    return found


def opened(lab: Lab, page: Page) -> Locator:
    page.goto(lab.url())
    page.wait_for_function("globalThis.jupyterapp?.restored.then(() => true)")
    tab(page).click()
    return page.get_by_role("region", name="Remote GPUs")


def tab(page: Page) -> Locator:
    return page.locator("[data-id=jupyter-gpu-kernel-panel]")


def test_a_kernel_is_seen_interrupted_and_stopped(lab: Lab, page: Page, remote: Remote) -> None:
    lab.write("train.ipynb", "import time\ntime.sleep(600)", kernel="gpu")
    panel = opened(lab, page)
    node = panel.get_by_role("region", name="Nodes")
    expect(node).to_contain_text("3 of 4 free")
    expect(node.get_by_role("meter", name="Memory of GPU 0")).to_have_attribute(
        "aria-valuenow", re.compile(r"\d+")
    )

    page.evaluate(RUN, "train.ipynb")
    kernel = panel.get_by_role("region", name="My kernels").get_by_role("listitem")
    expect(kernel).to_contain_text(re.compile(r"busy \d+ s"))
    expect(node).to_contain_text("2 of 4 free")
    page.evaluate("jupyterapp.commands.execute('launcher:create').then(() => null)")
    node.get_by_role("button", name="Open train.ipynb").click()
    expect(page.locator(".jp-Notebook")).to_be_visible()

    kernel.get_by_role("button", name="Interrupt").click()
    expect(page.locator(".jp-OutputArea")).to_contain_text("KeyboardInterrupt")
    expect(kernel).to_contain_text("idle")

    kernel.get_by_role("button", name="Log of").click()
    log = page.locator(".jp-RemoteGPU-story")
    expect(log.locator("table")).to_contain_text("a front end is connected")

    kernel.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("its variables are lost")
    page.keyboard.press("Escape")
    expect(kernel).to_contain_text("idle")
    kernel.get_by_role("button", name="Stop").click()
    dialog.get_by_role("button", name="Stop").click()
    expect(panel).to_contain_text("None runs.")
    assert (
        page.evaluate("[...jupyterapp.serviceManager.kernels.running()].length") == 0
    )  # known to JupyterLab, too
    assert page.evaluate("[...jupyterapp.serviceManager.sessions.running()].length") == 0
    expect(node).to_contain_text("3 of 4 free")


def test_waiting_kernels_are_reordered_by_keyboard_and_by_dragging(
    lab: Lab, page: Page, remote: Remote
) -> None:
    remote.write("all", provisioner=True, gpus=3)
    for name, kernel in (("holds", "all"), ("first", "gpu"), ("second", "gpu")):
        lab.write(f"{name}.ipynb", "import time\ntime.sleep(600)", kernel=kernel)
    panel = opened(lab, page)
    page.evaluate(RUN, "holds.ipynb")
    expect(panel).to_contain_text("0 of 4 free")
    for number, name in enumerate(("first", "second"), 1):
        page.evaluate(RUN, f"{name}.ipynb")
        expect(panel.locator(".jp-RemoteGPU-waiter")).to_have_count(number)
    rows = panel.locator(".jp-RemoteGPU-waiter")
    names = rows.locator(".jp-RemoteGPU-name")
    expect(names).to_have_text(["first.ipynb", "second.ipynb"])

    places = panel.locator(".jp-RemoteGPU-kernel .jp-RemoteGPU-state")
    rows.nth(1).get_by_role("button", name="earlier").focus()
    page.keyboard.press("Enter")
    expect(names).to_have_text(["second.ipynb", "first.ipynb"])
    expect(panel.get_by_role("status")).to_have_text("second.ipynb is now 1 of your 2")
    expect(page.locator(":focus")).to_have_attribute("aria-label", "second.ipynb earlier")
    expect(panel.locator(".jp-RemoteGPU-kernel", has_text="second.ipynb")).to_contain_text("place 1")

    rows.nth(1).drag_to(rows.nth(0))
    expect(names).to_have_text(["first.ipynb", "second.ipynb"])
    expect(panel.locator(".jp-RemoteGPU-kernel", has_text="first.ipynb")).to_contain_text("place 1")
    expect(places.first).to_be_visible()

    page.add_script_tag(path=AXE)
    found = page.evaluate("axe.run('#jupyter-gpu-kernel-panel').then(result => result.violations)")
    assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []


def test_a_hidden_panel_makes_no_request(lab: Lab, page: Page, overviews: list[str]) -> None:
    page.clock.install()
    panel = opened(lab, page)
    expect(panel).to_contain_text("of 4 free")
    with page.expect_request("**/api/overview*"):
        page.clock.fast_forward(60_000)
    tab(page).click()
    expect(panel).to_be_hidden()
    count = len(overviews)
    page.clock.fast_forward(60_000)
    page.clock.fast_forward(60_000)
    page.evaluate(
        "fetch('api/status').then(response => response.text())"
    )  # later requests would have come before
    assert len(overviews) == count
    with page.expect_request("**/api/overview*"):
        tab(page).click()
    expect(panel).to_contain_text("of 4 free")


def lose_answers(route: Route) -> None:
    """The server does what is asked, and the page does not hear of it."""
    route.fetch()
    route.abort()


def with_kernel(lab: Lab, page: Page, path: str) -> Notebook:
    """A notebook of two cells, of which the first has run."""
    notebook = lab.notebook(page, path, "print('before')", "print('after')", kernel="cpu")
    notebook.expect_kernel("idle")
    notebook.run(0)
    notebook.expect_done(0)
    return notebook


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "answer lost"])
def test_a_cell_that_is_run_at_once_after_stop_gets_a_new_kernel(lab: Lab, page: Page, is_lost: bool) -> None:
    notebook = with_kernel(lab, page, f"ends-{is_lost}.ipynb")
    if is_lost:
        page.route("**/stop?*", lose_answers)
    tab(page).click()
    panel = page.get_by_role("region", name="Remote GPUs")
    kernel = panel.locator(".jp-RemoteGPU-kernel", has_text=notebook.path)
    kernel.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(kernel).to_have_count(0)
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("after")


@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "answer lost"])
def test_a_cell_that_is_run_at_once_after_stop_all_gets_a_new_kernel(
    lab: Lab, page: Page, is_lost: bool
) -> None:
    notebook = with_kernel(lab, page, f"all-end-{is_lost}.ipynb")
    if is_lost:
        page.route("**/stop?*", lose_answers)
    page.locator("[data-id=jp-running-sessions]").click()
    section = page.get_by_role("region", name="Remote GPU Kernels Section")
    expect(section).to_contain_text(notebook.path)
    page.locator(".jp-RunningSessions-toolbar").get_by_text("Stop All").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop All").click()
    expect(section).not_to_contain_text(notebook.path)
    notebook.run(1)
    expect(notebook.output(1)).to_contain_text("after")


def test_other_pages_are_notified_that_a_kernel_was_stopped(lab: Lab, page: Page, new_page: NewPage) -> None:
    """At once: the clock of the other page goes on by less than JupyterLab's ten seconds between two requests."""
    other = new_page()
    other.clock.install()
    notebook = with_kernel(lab, other, "elsewhere.ipynb")
    panel = opened(lab, page)
    kernel = panel.locator(".jp-RemoteGPU-kernel", has_text="elsewhere.ipynb")
    expect(kernel).to_be_visible()
    manager = "jupyterapp.serviceManager"
    refresh = f"Promise.all([{manager}.kernels.refreshRunning(), {manager}.sessions.refreshRunning()]).then(() => 0)"
    other.evaluate(refresh)  # the next requests are due in ten seconds
    other.clock.pause_at(other.evaluate("Date.now()") + 1000)
    kernel.get_by_role("button", name="Stop").click()
    page.get_by_role("dialog").get_by_role("button", name="Stop").click()
    expect(kernel).to_have_count(0)
    for _ in range(40):
        if notebook.evaluate("PANEL.sessionContext.session?.path ?? null") is None:
            break
        other.clock.run_for(100)
        other.evaluate(
            "fetch('api/status').then(response => response.text())"
        )  # answers to earlier requests come before
    assert notebook.evaluate("PANEL.sessionContext.session?.path ?? null") is None


def test_buttons_of_a_kernel_stay_where_they_are_when_the_round_trip_changes(lab: Lab, page: Page) -> None:
    """In a narrow panel, too: a click must not hit another button."""
    with_kernel(lab, page, "narrow.ipynb")
    shown = {"round_trip_ms": 0.4}

    def change(route: Route) -> None:
        answer = route.fetch()
        overview = answer.json()
        route.fulfill(
            response=answer, json={**overview, "kernels": [{**one, **shown} for one in overview["kernels"]]}
        )

    page.route("**/api/overview*", change)
    tab(page).click()
    panel = page.get_by_role("region", name="Remote GPUs")
    kernel = panel.locator(".jp-RemoteGPU-kernel", has_text="narrow.ipynb")
    expect(kernel).to_contain_text("< 1 ms")
    handle = page.locator("#jp-main-split-panel > .lm-SplitPanel-handle:not(.lm-mod-hidden)").first
    place, panel_box = handle.bounding_box(), panel.bounding_box()
    assert place is not None and panel_box is not None
    x, y = place["x"] + place["width"] / 2, place["y"] + place["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 250 - panel_box["width"], y, steps=5)
    page.mouse.up()
    page.wait_for_function("Math.abs(document.querySelector('.jp-RemoteGPU-panel').clientWidth - 250) < 20")
    buttons = kernel.get_by_role("button")
    before = [one.bounding_box() for one in buttons.all()]
    shown["round_trip_ms"] = 123
    expect(kernel).to_contain_text("123 ms")
    assert [one.bounding_box() for one in buttons.all()] == before and len(before) >= 4
