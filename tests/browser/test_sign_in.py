"""What a page says while a kernel waits until its user has signed in, and what it does then."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from launchers import launched
from locked import Owner, log_in
from playwright.sync_api import Page, expect
from remote import Remote
from waiting import DEADLINE

from browser.lab import Lab
from jupyter_gpu_kernel.client import HubClient

pytestmark = pytest.mark.full


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

    remote.hops.login.drop()
    expect(notebook.status_bar).to_contain_text("until you sign in")
    notebook = lab.notebook(page, "second.ipynb", "print(6 * 7)", kernel="locked")
    expect(notebook.dialog).to_contain_text(
        "Sign in to login"
    )  # although the link of the first kernel has failed
    page.keyboard.type("sesame")
    page.keyboard.press("Enter")
    notebook.expect_kernel("idle")
    lab.end_kernels()  # while their node can be reached


def test_a_kernel_of_vs_code_waits_until_a_page_has_signed_in(
    lab: Lab, remote: Remote, page: Page, locked: dict[str, Any]
) -> None:
    """The notification stays while the kernel waits, also after a cancelled one that came before."""
    remote.write("locked-argv", **locked)
    with HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    page.goto(lab.url())
    expect(page.locator(".jp-Launcher")).to_be_visible()
    text = "A kernel “locked-argv”, started by VS Code or another program, waits until you sign in to login."
    notification, dialog = (
        page.locator(".Toastify__toast", has_text=text),
        page.locator(".jp-RemoteGPU-prompt"),
    )
    with launched(remote, "locked-argv") as launcher:
        notification.get_by_role("button", name="Cancel").click()
        code, printed = launcher.end()
        assert code == 1 and "you cancelled the sign-in" in printed
        expect(notification).to_have_count(0)
    with launched(remote, "locked-argv") as launcher:
        notification.get_by_role("button", name="Sign In").click()
        expect(dialog).to_contain_text("Sign in to login")
        expect(notification).to_have_count(1)
        page.keyboard.type("sesame")
        page.keyboard.press("Enter")
        client = launcher.client()
        expect(notification).to_have_count(0)
        client.shutdown()
        assert launcher.end() == (0, "")


def test_no_page_offers_a_sign_in_where_questions_are_answered_in_a_terminal(
    chromium: object, remote: Remote, page: Page, tmp_path: Path, locked: dict[str, Any]
) -> None:
    remote.write("locked", provisioner=True, **locked)
    with HubClient() as hub:
        hub.call("hang_up", timeout=DEADLINE)
    with Lab(remote, tmp_path, more=["--GpuKernelExtension.prompts=terminal"]) as lab:
        notebook = lab.notebook(page, "terminal.ipynb", "print(6 * 7)", kernel="locked")
        notification = page.locator(".Toastify")
        expect(notification).to_contain_text("requires you to sign in in a terminal")
        expect(notification).to_contain_text("/jupyter-gpu-kernel login locked")
        expect(notification.get_by_role("button", name="Copy Command")).to_be_visible()
        notebook.dialog.locator("button.jp-mod-accept").click()
        log_in(remote, locked, Owner())
        notebook.expect_kernel("idle")
        page.keyboard.press("Escape")  # JupyterLab has asked for another kernel meanwhile
        expect(notebook.dialog).to_have_count(0)

        remote.hops.login.drop()
        expect(notebook.status_bar).to_contain_text("until you sign in")
        notebook.run(0)
        expect(notebook.cells.first).to_contain_text("jupyter-gpu-kernel login locked")
        item = page.locator(".jp-RemoteGPU-status")
        expect(item).not_to_have_attribute("aria-label", re.compile("Sign in"))
        item.click()
        expect(page.get_by_role("region", name="Remote GPUs")).to_contain_text("login locked")
        expect(page.get_by_role("button", name=re.compile("^sign in", re.IGNORECASE))).to_have_count(0)
        log_in(remote, locked, Owner())
        lab.end_kernels()
