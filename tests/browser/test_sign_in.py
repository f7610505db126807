"""What a page says while a kernel waits until its user has signed in, and what it does then."""

from __future__ import annotations

from typing import Any

from locked import Owner, log_in
from playwright.sync_api import Page, expect
from remote import Remote
from waiting import DEADLINE

from browser.lab import Lab
from jupyter_gpu_kernel.client import HubClient


def test_a_refused_start_goes_on_when_its_user_has_signed_in(
    lab: Lab, remote: Remote, page: Page, locked: dict[str, Any]
) -> None:
    """The page says where to type what; the kernel then starts by itself, and so it is after a drop."""
    remote.write("locked", provisioner=True, **locked)
    with HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    notebook = lab.notebook(page, "locked.ipynb", "print(6 * 7)", kernel="locked")
    notification = page.locator(".Toastify")
    expect(notebook.dialog).to_contain_text("Sign in to login")
    page.keyboard.press("Escape")
    expect(notebook.dialog).to_contain_text("File → New → Terminal")
    expect(notification).to_contain_text("/jupyter-gpu-kernel login locked")
    notebook.dialog.locator("button.jp-mod-accept").click()
    log_in(remote, locked, Owner())
    notebook.expect_kernel("idle")
    expect(notification).not_to_contain_text("login locked")
    expect(notebook.status_bar).to_contain_text("no GPU yet")

    remote.hops.login.drop()
    expect(notebook.status_bar).to_contain_text("until you sign in")
    log_in(remote, locked, Owner())
    expect(notebook.status_bar).to_contain_text("no GPU yet")
