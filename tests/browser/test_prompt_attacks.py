"""Attacks on questions: by a notebook that is not trusted, and by a page of another origin."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from playwright.sync_api import Page, expect
from waiting import eventually

from browser.lab import Lab
from browser.signing_in import API, SignIn, node

pytestmark = pytest.mark.full

__all__ = ["node"]

# What runs in a page notes its name in `top.ran`.

ATTACK = """(async name => {
  (top.ran ??= []).push(name);
  const token = /_xsrf=([^;]*)/.exec(document.cookie)?.[1] ?? '';
  const headers = { 'Content-Type': 'application/json', 'X-XSRFToken': token };
  const found = await (await fetch('API/prompts', { headers })).json();
  (top.read ??= []).push(found[0].prompt);
  await fetch(`API/prompts/${found[0].id}`, { method: 'POST', headers, body: '{"answer": "stolen"}' });
})"""


def outputs(question: str) -> list[Any]:
    """Of an untrusted notebook: each tries to run a script, or to post an answer to the question."""
    script = f"{ATTACK.replace('API', API)}('the notebook')"
    quoted = script.replace('"', "&quot;")
    image = f'<img src="x:" onerror="{quoted}">'
    field = """<input name='{"answer": "stolen", "x": "' value='"}'><input type="submit" value="Press me">"""
    action = f'action="{API}/prompts/{question}" method="post"'
    forms = f'<form {action} enctype="text/plain">{field}</form><form {action}>{field}</form>'
    frame = f'<iframe srcdoc="<script>{quoted}</script>"></iframe>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" onload="{quoted}"><script>{script}</script></svg>'
    link = f'<a href="javascript:{quoted}">Press me</a>'
    html = f"<b>harmless</b><script>{script}</script>{image}{forms}{frame}{link}{svg}"
    parts = {"text/html": html, "image/svg+xml": svg, "text/markdown": html, "text/latex": f"$x$ {html}"}
    parts["application/javascript"] = script
    return [new_output("display_data", data={kind: text}) for kind, text in parts.items()]


def test_a_notebook_that_is_not_trusted_can_neither_read_nor_answer(
    lab: Lab, page: Page, node: dict[str, Any]
) -> None:
    page.goto(lab.url())
    signing_in = SignIn(lab)
    question = signing_in.question()
    made = outputs(question["id"])
    cells = [new_markdown_cell(made[0]["data"]["text/html"]), new_code_cell("1", outputs=made)]
    (lab.root / "evil.ipynb").write_text(json.dumps(new_notebook(cells=cells)))
    notebook = lab.open_in(page, "evil.ipynb")
    expect(page.locator(".jp-Notebook")).to_contain_text("harmless")
    shown = page.locator(".jp-Notebook .jp-RenderedHTMLCommon, .jp-Notebook .jp-OutputArea")
    assert shown.count() >= 4
    dangerous = "form[action], input:not([disabled]), script, object, embed, iframe[srcdoc]"
    assert shown.locator(dangerous).count() == 0
    for link in shown.locator("a, input").all():
        link.dispatch_event("click")
    assert page.evaluate("[top.ran, top.read]") == [None, None]
    assert lab.ask("GET", f"{API}/prompts") == [question]

    notebook.evaluate("[...PANEL.content.model.cells].forEach(cell => cell.trusted = true)")
    page.wait_for_function("top.ran?.length")  # so the test can fail
    assert set(page.evaluate("top.ran")) == {"the notebook"}
    eventually(lambda: signing_in.question()["again"], "the question once more")
    assert signing_in.cancelled()


OTHER_PAGE = """<!doctype html><title>evil</title>
<form id="f1" method="post" target="out" enctype="text/plain"></form>
<form id="f2" method="post" target="out"></form>
<iframe name="out"></iframe><iframe id="lab"></iframe>
<script>
async function attack(server, id) {
  const [url, seen] = [`${server}/jupyter-gpu-kernel/api/prompts`, []];
  const token = /_xsrf=([^;]*)/.exec(document.cookie)?.[1] ?? '';
  const json = '{"answer": "stolen"}';
  const attempt = async (name, options, path = '') => {
    try {
      const answer = await fetch(url + path, { credentials: 'include', ...options });
      seen.push([name, answer.type, answer.status, await answer.text()]);
    } catch (error) {
      seen.push([name, 'refused', 0, '']);
    }
  };
  await attempt('read', {});
  await attempt('read opaque', { mode: 'no-cors' });
  const headers = { 'Content-Type': 'application/json', 'X-XSRFToken': token };
  await attempt('answer', { method: 'POST', headers, body: json }, `/${id}`);
  await attempt('cancel', { method: 'DELETE', headers }, `/${id}`);
  await attempt('answer opaque', { method: 'POST', mode: 'no-cors', body: json }, `/${id}`);
  await attempt('with token', { method: 'POST', mode: 'no-cors', body: json }, `/${id}?_xsrf=${token}`);
  for (const form of [f1, f2]) {
    for (const action of [`${url}/${id}`, `${url}/${id}?_xsrf=${token}`]) {
      form.action = action;
      form.innerHTML = '<input name="_xsrf"><input name="answer" value="stolen">';
      form.elements[0].value = token;
      const loaded = new Promise(done => document.querySelector('[name=out]').onload = done);
      form.submit();
      await loaded;
    }
  }
  const socket = new WebSocket(`${server.replace('http', 'ws')}/api/events/subscribe`);
  seen.push([
    'events',
    await new Promise(done => {
      socket.onopen = () => done('open');
      socket.onerror = () => done('refused');
    })
  ]);
  return [seen, token];
}
</script>"""


@pytest.fixture
def other_origin(tmp_path: Path) -> Iterator[str]:
    """A page of another port of this machine: cookies do not tell ports apart."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text(OTHER_PAGE)
    handler = partial(_Quiet, directory=str(tmp_path / "site"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_page_of_another_origin_can_neither_read_nor_answer(
    lab: Lab, page: Page, node: dict[str, Any], other_origin: str
) -> None:
    """It has the owner's cookies, and knows the question's id, which nobody can guess."""
    page.goto(lab.url())
    expect(page.locator(".jp-Launcher")).to_be_visible()
    signing_in = SignIn(lab)
    question = signing_in.question()
    evil = page.context.new_page()
    evil.goto(other_origin)
    seen, token = evil.evaluate(f"attack('http://{lab.address}', '{question['id']}')")
    assert token, "it even reads the XSRF token"
    for name, kind, *more in seen:
        assert (kind, more) in (("refused", [0, ""]), ("refused", []), ("opaque", [0, ""])), name
    assert lab.ask("GET", f"{API}/prompts") == [question]

    evil.evaluate(f"document.querySelector('#lab').src = 'http://{lab.address}/lab'")
    eventually(lambda: [f for f in evil.frames if f.url.startswith("chrome-error")], "the frame is empty")

    # So the test can fail: the page itself may.
    page.evaluate("document.body.append(Object.assign(document.createElement('iframe'), {src: '/lab'}))")
    eventually(lambda: any(f.url.endswith("/lab") and f.title() for f in page.frames), "the frame is shown")
    page.evaluate(f"{ATTACK.replace('API', API)}('the page itself')")
    eventually(lambda: signing_in.question()["again"], "the question once more")
    assert signing_in.cancelled()
