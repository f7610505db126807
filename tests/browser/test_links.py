"""Buttons of a notebook that is not trusted, which execute our commands: JupyterLab keeps such “command links”."""

from __future__ import annotations

import json
from html import escape

import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output
from playwright.sync_api import Page, Request, expect
from waiting import DEADLINE

from browser.lab import Lab

pytestmark = pytest.mark.full

COMMANDS = """jupyterapp.commands.listCommands().map(name => name.split(':'))
    .filter(([of]) => of === 'jupyter-gpu-kernel').map(([_, name]) => name)"""
ASKING = {
    "interrupt": "“links.ipynb” on {node} ends.",
    "restart": "All variables of “links.ipynb” on {node} will be lost.",
    "stop": "The kernel of “links.ipynb” on {node} ends",
    "remove": "Remove “Remote GPU (gpu)”?",
}
"""The question of each command that ends or disturbs something."""
REFUSING = {
    "attach": {"id": "of nobody"},
    "sign-in": {"name": "gpu?x=<b>harm</b>"},
    "stop": {"id": 5},
    "interrupt": {"id": None},
    "restart": {"id": "of nobody"},
}
"""These do nothing with such arguments."""
ACTING = {"sign-in": {"name": "gpu"}, "add": {}}
"""These act without a question of their own."""
BY_OTHERS = [
    ("apputils:run-first-enabled", {"commands": ["jupyter-gpu-kernel:sign-in"], "args": {"name": "gpu"}}),
    ("apputils:run-all-enabled", {"commands": ["apputils:x", "jupyter-gpu-kernel:add"], "args": [{}, {}]}),
    ("apputils:run-first-enabled", {"commands": ["apputils:run-all-enabled"],
                                    "args": [{"commands": ["jupyter-gpu-kernel:add"]}]}),
]  # fmt: skip
"""Commands of JupyterLab that execute ours."""
HARMLESS = {"open-panel", "refresh", "add", "open-notebook", "log", "toggle-long-cells"}


def links(asked: list[tuple[str, object]]) -> str:
    """HTML with a button for each command, ours or JupyterLab's."""
    return "".join(
        f'<button data-commandlinker-command="{name if ":" in name else "jupyter-gpu-kernel:" + name}" '
        f'data-commandlinker-args="{escape(json.dumps(arguments))}">{number} harmless</button>'
        for number, (name, arguments) in enumerate(asked)
    )


def press(page: Page, number: int, answer: str = "Run") -> None:
    """Click on a button of the output, and answer the general question that comes first."""
    page.get_by_role("button", name=f"{number} harmless", exact=True).click()
    question = page.get_by_role("dialog").filter(
        has_text="You have clicked a button that executes this command"
    )
    expect(question.get_by_role("button", name="Cancel")).to_be_focused()
    question.get_by_role("button", name=answer, exact=True).click()
    expect(question).to_have_count(0)


def test_a_link_does_no_harm_without_a_question_that_names_it(lab: Lab, page: Page) -> None:
    """A link in an output, for each of our commands, about the notebook's kernel and about others."""
    asked = [*((name, {"name": "gpu"}) for name in ASKING), *REFUSING.items(), *ACTING.items(), *BY_OTHERS]
    html = {"text/html": links(asked)}
    cells = [
        new_code_cell("import time\ntime.sleep(600)", id="c0"),
        new_code_cell("1", id="c1", outputs=[new_output("display_data", data=html)]),
    ]
    spec = {"name": "gpu", "display_name": "Remote GPU (gpu)", "language": "python"}
    made = new_notebook(cells=cells, metadata={"kernelspec": spec})
    (lab.root / "links.ipynb").write_text(json.dumps(made))
    sent: list[str] = []

    def note(request: Request) -> None:
        if request.method != "GET" and "/jupyter-gpu-kernel/" in request.url:
            sent.append(f"{request.method} {request.url}")

    notebook = lab.open_in(page, "links.ipynb")
    page.locator("[data-id=jupyter-gpu-kernel-panel]").click()
    notebook.expect_kernel("idle")
    notebook.run(0)
    expect(notebook.prompt(0)).to_have_text("[*]:")
    panel = page.locator("#jupyter-gpu-kernel-panel .jp-RemoteGPU-kernel", has_text="links.ipynb")
    expect(panel).to_contain_text("busy")
    assert set(page.evaluate(COMMANDS)) == {*ASKING, *REFUSING, *HARMLESS}, "a new one has been thought about"
    page.on("request", note)

    dialog = page.get_by_role("dialog")
    for number, (name, text) in enumerate(ASKING.items()):
        press(page, number)
        words = text.partition("{node}")
        expect(dialog).to_contain_text(words[0])
        expect(dialog).to_contain_text(words[2] or words[0])
        assert page.locator(":focus").inner_text() == "Cancel", name
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
    for number in range(len(ASKING), len(asked)):
        press(page, number, "Cancel" if number >= len(ASKING) + len(REFUSING) else "Run")
    page.evaluate(
        "fetch('api/status').then(answer => answer.text())"
    )  # later requests would have come before
    assert dialog.count() == 0 and sent == []
    assert panel.inner_text().count("busy")

    press(page, 0)  # so the test can fail
    with page.expect_request("**/interrupt*", timeout=DEADLINE * 1000):
        dialog.get_by_role("button", name="Interrupt").click()
    expect(notebook.output(0)).to_contain_text("KeyboardInterrupt")
