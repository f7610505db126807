"""The form “Add a remote GPU”: a machine with an unknown host key is found, added, used by a notebook, and removed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from remote import Remote
from sshd import Sshd

from browser.lab import Lab
from jupyter_gpu_kernel import kernelspecs

pytestmark = pytest.mark.full

NAME = "stranger"


@pytest.fixture
def stranger(remote: Remote, tmp_path: Path) -> Iterator[Path]:
    """An ssh configuration with one more machine, whose host key is not known."""
    sshd = Sshd(NAME, tmp_path / NAME, remote.hops.key)
    sshd.environment.update(remote.hops.work.environment)
    sshd.start()
    config = tmp_path / "ssh_config"
    config.write_text(f"Host {NAME}\n  Port {sshd.port}\n{remote.hops.ssh_config.read_text()}")
    yield config
    sshd.stop()
    if NAME in [spec.name for spec in kernelspecs.find_all()]:
        kernelspecs.remove(NAME)


@pytest.fixture
def form(lab: Lab, page: Page, stranger: Path) -> Locator:
    """The form, opened from the launcher, with that configuration."""
    page.goto(lab.url())
    page.locator(".jp-LauncherCard", has_text="Add a Remote GPU").click()
    form = page.locator(".jp-RemoteGPU-add")
    form.get_by_text("More options").click()
    form.get_by_label("SSH configuration file").fill(str(stranger))
    return form


def search(form: Locator, machine: str) -> None:
    form.get_by_role("combobox", name="Machine").fill(machine)
    form.get_by_role("button", name="Connect and look").click()


def test_a_machine_is_added_used_and_removed(lab: Lab, page: Page, form: Locator) -> None:
    search(form, "no host")
    expect(form.get_by_role("combobox", name="Machine")).to_have_accessible_description(
        re.compile("has no valid host name")
    )
    search(form, "nobody@127.0.0.1:1")
    failed = form.get_by_role("list", name="Way to the machine").get_by_role("alert")
    expect(failed).to_contain_text("refused")

    expect(form.locator(f"datalist option[value={NAME}]")).to_have_count(1)
    search(form, NAME)
    question = page.locator(".jp-RemoteGPU-prompt")
    fingerprint = question.locator(".jp-RemoteGPU-promptFingerprint").inner_text()
    question.locator("input").first.fill(fingerprint[-4:])
    question.locator("button.jp-mod-accept").click()
    expect(form.get_by_text("The machine is ready for kernels.")).to_be_visible()
    expect(form.get_by_role("radio").first).to_be_checked()
    expect(form.get_by_role("row")).to_have_count(5)  # the head, and four GPUs

    # What is changed now is checked on the machine before the kernelspec is written.
    form.get_by_label("GPUs of each kernel").fill("0")
    form.locator("#jp-RemoteGPU-add-python").fill(sys.executable)
    form.get_by_role("button", name="Add", exact=True).click()
    expect(form.get_by_text("Added.")).to_be_visible()
    assert kernelspecs.find(NAME).settings.python == sys.executable
    form.get_by_role("button", name="New notebook on it").click()
    # Before that JupyterLab forgets a cell: docs/upstream/cell-before-session.md.
    page.wait_for_function(
        "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    )
    page.locator(".jp-Notebook .jp-CodeCell .jp-InputArea-editor").click()
    page.keyboard.type("print(6 * 7)")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".jp-Notebook .jp-OutputArea-output")).to_have_text(re.compile("42"))
    lab.end_kernels()

    page.evaluate("jupyterapp.commands.execute('jupyter-gpu-kernel:add')")
    form.get_by_role("button", name=f"Remove Remote GPU ({NAME})").click()
    page.locator(".jp-Dialog button.jp-mod-warn").click()
    expect(form.get_by_role("button", name=f"Remove Remote GPU ({NAME})")).to_have_count(0)
    assert NAME not in [spec.name for spec in kernelspecs.find_all()]
