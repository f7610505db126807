"""What a page shows of a node that means harm: inert text, and the other nodes as always."""

from __future__ import annotations

import re

import pytest
from hostile import Hostile, hostile, status
from playwright.sync_api import Page, expect

from browser.lab import Lab
from browser.test_panel import opened

pytestmark = pytest.mark.full

__all__ = ["hostile"]
SCRIPT = "(top.ran ??= []).push(1)"
EVIL = (
    f'<img src=x: onerror="{SCRIPT}"><script>{SCRIPT}</script>\x1b[2J\u202e\u2066 %1 [x](javascript:{SCRIPT})'
)
WAITER = {"user": EVIL, "gpus": 99, "since": 1e308, "yours": True, "priority": 1e308, "notebook": EVIL}
TEXTS = dict.fromkeys(("node", "name", "reason", "warning"), EVIL)
NUMBERS = {"index": -1e308, "memory_used_mib": 1e9, "memory_total_mib": 1e-9, "utilization": -5}
USERS = {
    "processes": [{"user": EVIL, "since": -1}],
    "lease": {"user": EVIL, "since": 1e12, "idle_since": 1e12},
}
KERNEL = dict.fromkeys(("name", "node", "problem", "waiting_text", "cause"), EVIL)
SHOWN = re.compile("[\x00-\x08\x1b\u202e\u2066]|NaN|undefined|Infinity|object Object")


def test_what_it_says_is_inert_text_of_bounded_length(lab: Lab, page: Page, hostile: Hostile) -> None:
    job = {"id": EVIL, "end_time": 1e12, "state": {}}
    evil = status("evil", **KERNEL, notebook=EVIL, gpus=[EVIL], gpu_names=[EVIL], state="busy", job=job)
    bare = {"id": "bare", "state": "idle", "attached": True, "owner": "z", "by": EVIL}
    queue = [{**WAITER, "id": f"w{place}", "place": place} for place in (1, 2)]
    gpus = [{**TEXTS, **NUMBERS, **USERS, "uuid": f"{number}{EVIL}", "queue": queue} for number in range(2)]
    story = [{"time": 1e308, "event": EVIL, "text": EVIL, "remedy": EVIL, "x": float("nan")}]
    story.append({"text": "l" * 1_000_000})
    hostile.sends(list={"kernels": [evil, bare]}, gpus={"gpus": gpus}, story={"story": story})

    panel = opened(lab, page)
    kernels, nodes = (panel.get_by_role("region", name=name) for name in ("My kernels", "Nodes"))
    expect(kernels.locator("li")).to_have_count(2)
    expect(nodes).to_contain_text("0 of 2 free")
    expect(nodes).to_contain_text("of 4 free")
    kernels.get_by_role("button", name="Log of").last.click()
    log = page.locator(".jp-RemoteGPU-story")
    expect(log).to_contain_text("lll")
    for shown in (panel, log):
        assert shown.locator("img, script, a, iframe").count() == 0
        assert SHOWN.search(shown.inner_html()) is None and "<script>" in shown.inner_text()
        assert len(shown.inner_text()) < 20_000
    assert page.evaluate("top.ran") is None
