"""What the form “Add a remote GPU” asks the server: hosts of ~/.ssh/config, probes over real hops, kernelspecs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from probed_node import real_venv
from remote import Remote
from server_fixtures import *  # noqa: F403 (for this file)
from sshd import Sshd
from tornado.httpclient import HTTPClientError
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel import kernelspecs
from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.server.add.probes import Probes
from jupyter_gpu_kernel.server.api import STATE

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
API = "/jupyter-gpu-kernel/api"
Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
def ask(jp_fetch: Callable[..., Awaitable[Any]]) -> Ask:
    """Return (status, answer) of a request to the API."""

    async def ask(method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        text = None if body is None else json.dumps(body)
        options = {"method": method, "body": text, "params": query, "request_timeout": DEADLINE}
        options["headers"] = {"Content-Type": "application/json"}
        try:
            answer = await jp_fetch(f"{API}/{path}", **options)
        except HTTPClientError as error:
            assert error.response is not None
            answer = error.response
        return answer.code, json.loads(answer.body)

    return ask


@pytest.fixture
def form(remote: Remote) -> dict[str, Any]:
    login, work = remote.hops.route
    config = str(remote.hops.ssh_config)
    return {"destination": work, "jumps": login, "config": config, "settings": {"gpus": 1}}


@pytest.fixture
def written() -> Iterator[str]:
    """The name of a kernelspec that a test writes."""
    yield "from-form"
    if "from-form" in [spec.name for spec in kernelspecs.find_all()]:
        kernelspecs.remove("from-form")


async def ended(ask: Ask, probe: dict[str, Any]) -> dict[str, Any]:
    async def end() -> dict[str, Any]:
        status, now = 200, probe
        while now["state"] == "running":
            await asyncio.sleep(0.05)
            status, now = await ask("GET", f"probes/{probe['id']}")
            assert status == 200
        return now

    return await asyncio.wait_for(end(), DEADLINE)


async def test_the_hosts_of_the_ssh_configuration_are_offered(ask: Ask, tmp_path: Path) -> None:
    more, config = tmp_path / "more", tmp_path / "ssh_config"
    more.write_text("Host gpu7 *.cluster\n  Port 7092\n")
    config.write_text(
        f"# secret\nInclude {more}\nHost login\n  User alice\n"
        "Host gpu2 gpu? !gpu9\n  ProxyJump login,hop2\n  IdentityFile ~/.ssh/hidden\nHost -oops a;b\n"
    )
    status, hosts = await ask("GET", "ssh-hosts", config=str(config))
    assert status == 200
    assert [(host["name"], host["port"], host["jumps"]) for host in hosts] == [
        ("gpu7", 7092, ["login", "hop2"]),
        ("login", 22, []),
        ("gpu2", 22, ["login", "hop2"]),
    ]
    assert hosts[1]["user"] == "alice"
    assert "hidden" not in json.dumps(hosts) and "secret" not in json.dumps(hosts)
    status, refusal = await ask("GET", "ssh-hosts", config=f"{tmp_path}/missing")
    assert status == 400 and refusal["field"] == "config" and "there is no file" in refusal["error"]["cause"]


async def test_a_machine_is_probed_and_added_as_by_the_command(
    ask: Ask, remote: Remote, form: dict[str, Any], written: str
) -> None:
    """The same kernelspec as `add` writes, with the progress of each hop before."""
    form["settings"] = {"gpus": 2, "python": sys.executable, "cwd": "/tmp"}
    status, probe = await ask("POST", "probes", form)
    assert status == 201 and probe["hops"] == list(remote.hops.route)
    probe = await ended(ask, probe)
    assert probe["state"] == "done", probe["error"]
    assert {step["hop"] for step in probe["steps"]} <= set(probe["hops"])
    found = probe["found"]
    assert found["python"]["path"] == sys.executable and len(found["gpus"]) == 4
    assert [gpu["free"] for gpu in found["gpus"]].count(True) == 3

    status, spec = await ask("POST", "kernelspecs", {"probe": probe["id"], "name": written})
    assert status == 201 and spec["display_name"] == f"Remote GPU ({written})"
    login, work = remote.hops.route
    words = ["-J", login, "-F", form["config"], "--gpus", "2", "--python", sys.executable, "--cwd", "/tmp"]
    assert "already exists" in remote.program("add", work, *words, "--name", written).stderr
    assert remote.program("add", work, *words, "--name", f"{written}2").returncode == 0
    assert kernelspecs.find(f"{written}2").settings.to_json() == spec["settings"]
    kernelspecs.remove(f"{written}2")

    status, specs = await ask("GET", "kernelspecs")
    assert status == 200 and written in [one["name"] for one in specs]
    status, taken = await ask("POST", "kernelspecs", {"probe": probe["id"], "name": written.upper()})
    assert (status, taken["field"], taken["replaceable"]) == (409, "name", True)
    again = {"probe": probe["id"], "name": written, "replace": True}
    assert (await ask("POST", "kernelspecs", again))[0] == 201
    status, gone = await ask("DELETE", f"kernelspecs/{written}")
    assert status == 200 and len(gone["removed"]) == 1
    assert not Path(spec["path"]).exists()
    status, missing = await ask("DELETE", f"kernelspecs/{written}")
    assert status == 404 and "there is no remote GPU kernelspec" in missing["message"]


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"destination": ""}, "destination", "no destination"),
        ({"destination": "a; rm -rf"}, "destination", "no valid host name"),
        ({"destination": "ssh -o ProxyCommand=x gpu2"}, "destination", "is not supported"),
        ({"destination": "x\ny"}, "destination", "one line"),
        ({"destination": 7}, "destination", "one line"),
        ({"jumps": "login,-oops"}, "jumps", "no valid host name"),
        ({"identity": "/no/such/key"}, "identity", "there is no file"),
        ({"config": "/no/such/config"}, "config", "there is no file"),
        ({"settings": {"gpus": 65}}, "gpus", "“gpus” is 65"),
        ({"settings": {"gpus": "1"}}, "gpus", "“gpus” is '1'"),
        ({"settings": {"partition": "gpu"}}, "partition", "“slurm” is not"),
        ({"settings": {"slurm": True, "time": "soon"}}, "time", "“time” is 'soon'"),
        ({"settings": {"slurm": True, "sbatch": ["--wrap=x"]}}, "sbatch", "sets itself"),
        ({"settings": {"setup": ["export HF_TOKEN=hf_abcdefghijklmnopqrst"]}}, "setup", "secret"),
        ({"settings": {"route": ["elsewhere"]}}, "settings", "route is no field"),
        ({"settings": {"nonsense": 1}}, "settings", "unknown"),
        ({"settings": []}, "settings", "not an object"),
    ],
)
async def test_what_cannot_be_is_refused_with_its_field(
    ask: Ask, form: dict[str, Any], change: dict[str, Any], field: str, words: str
) -> None:
    status, refusal = await ask("POST", "probes", {**form, **change})
    assert (status, refusal["field"]) == (400, field)
    assert words in refusal["error"]["cause"]


@pytest.mark.parametrize(
    ("settings", "cause"),
    [
        ({"gpus": 9}, "9 GPUs requested, but this node has 4"),
        ({"gpu_type": "h100"}, "its name does not contain “h100”"),
        ({"min_memory": "200G"}, "186.3 GiB are requested"),
    ],
)
async def test_a_kernel_that_can_never_start_is_not_added(
    ask: Ask, form: dict[str, Any], settings: dict[str, Any], cause: str
) -> None:
    """The search shows the GPUs all the same."""
    _, probe = await ask("POST", "probes", {**form, "settings": {"python": sys.executable, **settings}})
    probe = await ended(ask, probe)
    assert probe["state"] == "done" and len(probe["found"]["gpus"]) == 4
    status, refusal = await ask("POST", "kernelspecs", {"probe": probe["id"], "name": "never"})
    assert (status, refusal["field"]) == (400, "gpus")
    assert "can never start" in refusal["error"]["cause"] and cause in refusal["error"]["cause"]
    assert refusal["error"]["remedy"] == "Request fewer GPUs, or use another machine."
    assert "never" not in [spec["name"] for spec in (await ask("GET", "kernelspecs"))[1]]


async def test_names_lead_nowhere_else(ask: Ask, form: dict[str, Any], remote: Remote) -> None:
    _, probe = await ask("POST", "probes", {**form, "settings": {"python": sys.executable}})
    probe = await ended(ask, probe)
    for name in ("..", "../x", "a/b", "a\\b", "", "con", "x" * 101, "\0"):
        status, refusal = await ask("POST", "kernelspecs", {"probe": probe["id"], "name": name})
        assert (status, refusal["field"]) == (400, "name"), name
    foreign = remote.data / "kernels" / "foreign"
    foreign.mkdir(parents=True)
    (foreign / "kernel.json").write_text('{"argv": ["x"], "display_name": "x", "language": "x"}')
    try:
        body = {"probe": probe["id"], "name": "foreign", "replace": True}
        status, refusal = await ask("POST", "kernelspecs", body)
        assert (status, refusal["replaceable"]) == (409, False)
        for name in ("foreign", "..%2F..", "%2e%2e%2fkernels"):
            assert (await ask("DELETE", f"kernelspecs/{name}"))[0] == 404
        assert (foreign / "kernel.json").is_file()
    finally:
        (foreign / "kernel.json").unlink()
        foreign.rmdir()


async def test_one_that_is_broken_is_listed_and_can_be_removed(ask: Ask, remote: Remote) -> None:
    spec = remote.write("broken", route=list(remote.hops.route))
    spec.path.write_text(spec.path.read_text().replace('"route": [', '"route": [7, '))
    (row,) = [one for one in (await ask("GET", "kernelspecs"))[1] if one["name"] == "broken"]
    assert (row["settings"], row["path"]) == (None, str(spec.path)) and "“route”" in row["problem"]
    assert (await ask("DELETE", "kernelspecs/broken"))[0] == 200
    left = (await ask("GET", "kernelspecs"))[1]
    assert "broken" not in [one["name"] for one in left] and not any(one["problem"] for one in left)


async def test_an_error_names_its_hop(ask: Ask, form: dict[str, Any], remote: Remote) -> None:
    _, probe = await ask("POST", "probes", {**form, "destination": "nobody@127.0.0.1:1"})
    probe = await ended(ask, probe)
    assert probe["state"] == "failed" and probe["found"] is None
    assert probe["error"]["hop"] == probe["hops"][-1] and probe["error"]["remedy"]
    assert "nobody@127.0.0.1:1" not in [node["node"] for node in (await ask("GET", "nodes"))[1]]
    assert (await ask("POST", "kernelspecs", {"probe": probe["id"], "name": "x"}))[0] == 404


async def test_where_no_python_can_run_kernels_a_command_makes_an_environment(
    ask: Ask, form: dict[str, Any], remote: Remote, tmp_path: Path
) -> None:
    """The command does what the form says, and asks in its terminal."""
    bare = real_venv(tmp_path / "it's bare", None)
    form["settings"] = {
        "python": str(bare),
        "gpus": 2,
        "setup": ["export A='b c'"],
        "cwd": "/tmp",
        "env": {"A": "b"},
    }
    _, probe = await ask("POST", "probes", form)
    probe = await ended(ask, probe)
    assert probe["state"] == "failed" and "has no ipykernel" in probe["error"]["cause"]
    program, add, *words = shlex.split(probe["command"])
    assert program.endswith("jupyter-gpu-kernel") and add == "add" and words.pop() == "--create-env"
    done = remote.program("add", *words, "--no-probe", "--name", "same", "--json")
    try:
        settings = json.loads(done.stdout)["settings"]
        assert settings == {
            **{key: value for key, value in form["settings"].items() if key != "python"},
            "route": list(remote.hops.route),
            "config": form["config"],
        }
    finally:
        kernelspecs.remove("same")


@pytest.fixture
def stranger(remote: Remote, tmp_path: Path) -> Iterator[Sshd]:
    """A machine whose host key nobody knows."""
    sshd = Sshd("stranger", tmp_path / "stranger", remote.hops.key)
    sshd.environment.update(remote.hops.work.environment)
    sshd.start()
    yield sshd
    sshd.stop()


@pytest.mark.parametrize("agrees", [True, False])
async def test_the_first_host_key_is_a_question_to_the_page(
    ask: Ask, stranger: Sshd, form: dict[str, Any], agrees: bool
) -> None:
    body = {**form, "destination": stranger.address, "jumps": "", "settings": {"python": sys.executable}}
    _, probe = await ask("POST", "probes", body)

    async def question() -> dict[str, Any]:
        while not (waiting := (await ask("GET", "prompts"))[1]):
            await asyncio.sleep(0.05)
        return dict(waiting[0])

    asked = await asyncio.wait_for(question(), DEADLINE)
    assert (asked["kind"], asked["hop"]) == ("host", stranger.address)
    assert (
        asked["for"]["what"] == "probe"
        and (await ask("GET", f"probes/{probe['id']}"))[1]["state"] == "running"
    )
    if agrees:
        answer = {"answer": asked["fingerprint"][-4:], "save": False}
        assert (await ask("POST", f"prompts/{asked['id']}", answer))[0] == 200
        assert (await ended(ask, probe))["state"] == "done"
        return
    assert (await ask("DELETE", f"prompts/{asked['id']}"))[0] == 200
    error = (await ended(ask, probe))["error"]
    assert (error["hop"], error["cause"]) == (stranger.address, "you cancelled the sign-in")
    assert error["remedy"] == "To be asked again, connect again."


@pytest.fixture
def silent() -> Iterator[str]:
    """A machine that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"nobody@127.0.0.1:{server.getsockname()[1]}"


async def test_a_probe_ends_with_its_page_or_when_it_is_cancelled(
    ask: Ask, silent: str, form: dict[str, Any], jp_serverapp: Any
) -> None:
    await asyncio.to_thread(lambda: HubClient().close())  # a search that is cancelled at once starts no hub
    body = {**form, "destination": silent, "jumps": ""}
    _, probe = await ask("POST", "probes", body)
    assert await ask("DELETE", f"probes/{probe['id']}") == (200, {"ok": True})
    assert (await ask("GET", f"probes/{probe['id']}"))[0] == 404
    settings, state = jp_serverapp.web_app.settings, jp_serverapp.web_app.settings[STATE]
    probes = Probes(lambda name: contextlib.nullcontext(), page_timeout=0.2)
    settings[STATE] = replace(state, probes=probes)
    _, probe = await ask("POST", "probes", body)
    await asyncio.to_thread(eventually, lambda: not probes.ids, "the probe has ended with its page")
    probes = Probes(lambda name: contextlib.nullcontext())
    settings[STATE] = replace(state, probes=probes)
    statuses = [(await ask("POST", "probes", body))[0] for _ in range(9)]
    assert statuses == [201] * 8 + [429]
    await probes.close()


class OldServer(threading.Thread):
    """A machine that speaks only SSH 1, and says so when it is told to."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"nobody@127.0.0.1:{self._server.getsockname()[1]}"
        self.came, self.let_go = threading.Event(), threading.Event()
        self.connections = 0
        self.start()

    def run(self) -> None:
        with self._server, contextlib.suppress(OSError):
            while True:
                with self._server.accept()[0] as connection:
                    self.connections += 1
                    self.came.set()
                    self.let_go.wait(DEADLINE)
                    connection.sendall(b"SSH-1.0-old\r\n")

    def end(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)


async def test_searches_that_are_cancelled_connect_no_more(ask: Ask, form: dict[str, Any]) -> None:
    """They wait for each other, so that a new search would wait for all of them."""
    await asyncio.to_thread(lambda: HubClient().close())
    machine = OldServer()
    body = {**form, "destination": machine.address, "jumps": ""}
    probes = [(await ask("POST", "probes", body))[1] for _ in range(4)]
    await asyncio.to_thread(eventually, machine.came.is_set, "the first one connects")
    for probe in probes:
        while not (await ask("GET", f"probes/{probe['id']}"))[1]["steps"]:
            await asyncio.sleep(0.05)  # until the hub knows it
        assert (await ask("DELETE", f"probes/{probe['id']}"))[0] == 200
    _, probe = await ask("POST", "probes", body)
    machine.let_go.set()
    assert (await ended(ask, probe))["state"] == "failed"
    assert machine.connections == 3, "the first one, and the last one by paramiko and by ssh"
    machine.end()


async def test_a_request_that_is_too_large_is_refused(ask: Ask, form: dict[str, Any]) -> None:
    assert (await ask("POST", "probes", {**form, "more": "x" * 100_000}))[0] == 413
    assert (await ask("POST", "probes", [1]))[0] == 400
    assert (await ask("POST", "kernelspecs", {"probe": "x"}))[0] == 400
    assert (await ask("GET", f"probes/{os.urandom(16).hex()}"))[0] == 404
