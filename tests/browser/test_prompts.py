"""Questions in the browser: one dialog at a time, in every page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from remote import Remote

from browser.accessibility import assert_accessible
from browser.conftest import NewPage
from browser.lab import Lab
from browser.signing_in import SignIn, dialog_of, node

pytestmark = pytest.mark.full

__all__ = ["node"]


def test_a_start_asks_in_a_dialog_and_goes_on_when_it_is_answered(
    lab: Lab, page: Page, new_page: NewPage, node: dict[str, Any]
) -> None:
    other = new_page()
    other.goto(lab.url())
    expect(other.locator(".jp-Launcher")).to_be_visible()
    notebook = lab.notebook(page, "asked.ipynb", "print(6 * 7)", kernel="locked")
    dialog, field = dialog_of(page), dialog_of(page).get_by_label("Passphrase")
    expect(dialog).to_contain_text("Sign in to login")
    expect(dialog).to_contain_text("Passphrase of ")
    expect(dialog).to_contain_text("The kernel “locked” of asked.ipynb waits for it.")
    expect(dialog_of(other)).to_contain_text("asked.ipynb")
    expect(field).to_be_focused()
    expect(field).to_have_attribute("type", "password")
    assert_accessible(page, ".jp-RemoteGPU-prompt")
    page.keyboard.type("a wrong word")
    dialog.get_by_role("button", name="Show").click()
    expect(field).to_have_attribute("type", "text")
    expect(field).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog).to_contain_text("The passphrase is wrong.")

    page.keyboard.press("Escape")
    expect(dialog_of(other)).to_have_count(0)
    expect(notebook.dialog).to_contain_text("you cancelled the sign-in")
    expect(notebook.dialog).to_contain_text("To be asked again, start it again")
    notebook.dialog.locator("button.jp-mod-accept").click()
    expect(notebook.dialog).to_contain_text("Select Kernel")
    page.keyboard.press("Escape")
    page.locator(".Toastify").get_by_role("button", name="Sign In").click()
    expect(dialog).to_contain_text("You sign in to “locked”.")
    field.fill("sesame")
    dialog.get_by_role("button", name="Sign In").click()
    notebook.expect_kernel("idle")
    expect(dialog).to_have_count(0)
    expect(dialog_of(other)).to_have_count(0)


def test_a_first_host_key_is_accepted_by_typing_the_end_of_its_fingerprint(
    lab: Lab, remote: Remote, page: Page, node: dict[str, Any], tmp_path: Path
) -> None:
    config, empty = tmp_path / "config", tmp_path / "known_hosts"
    empty.touch()
    known = str(remote.hops.known_hosts)
    config.write_text(remote.hops.ssh_config.read_text().replace(known, str(empty)))
    with remote.written("unknown", provisioner=True, **{**node, "config": str(config)}):
        _type_the_fingerprint(lab, page)


def _type_the_fingerprint(lab: Lab, page: Page) -> None:
    page.goto(lab.url())
    signing_in = SignIn(lab, "unknown")
    dialog = dialog_of(page)
    expect(dialog).to_contain_text("New host key of login")
    fingerprint = dialog.locator("code").inner_text()
    assert fingerprint == signing_in.question()["fingerprint"]
    for wrong in ("yes", ""):
        page.keyboard.type(wrong)
        page.keyboard.press("Enter")
        expect(dialog.get_by_role("alert")).to_have_text("The fingerprint does not end with that.")
    page.keyboard.press("Escape")
    assert signing_in.done() == {"ok": False, "cancelled": True}
