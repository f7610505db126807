"""`jupyter gpu-kernel serve`: REST and websockets as VS Code uses them, who is refused, what a new window gets."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
import uuid
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil
import pytest
from editors import Editor, HubServer
from remote import Remote
from waiting import DEADLINE, eventually
from websocket import WebSocketBadStatusException, create_connection

pytestmark = pytest.mark.usefixtures("remote", "nothing_stays")
full = pytest.mark.full
PRINT = """import os, time
number = 0
while not os.path.exists({end!r}):
    print(number, flush=True)
    number += 1
    time.sleep(0.005)
print("end", number)"""


@pytest.fixture
def end(tmp_path: Path) -> Path:
    """The cell of PRINT ends when this file exists."""
    return tmp_path / "end"


def test_a_new_window_gets_the_whole_output_of_the_running_cell(remote: Remote, end: Path) -> None:
    """What the window before had received, it may not have saved. As VS Code requires: busy, a pause, the output, and
    at the end idle and the reply."""
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb")
        first = server.editor(kernel_id)
        asked = first.execute(PRINT.format(end=str(end)))
        first.until(lambda: len(first.printed(asked)) > 50)
        first.vanish()
        second = server.editor(kernel_id)
        second.until(lambda: bool(second.printed(asked)))
        end.touch()
        second.until(lambda: second.ended(asked))
        assert_complete(second.printed(asked))
        assert_resumable(second, asked)
        assert second.run("print(6 * 7)") == "42\n"
        server.ask("DELETE", f"api/kernels/{kernel_id}")
    remote.nothing_left()


def assert_complete(text: str) -> None:
    *numbers, last = text.splitlines()
    assert [int(one) for one in numbers] == list(range(len(numbers)))
    assert last == f"end {len(numbers)}"


def busy(message: dict[str, Any]) -> bool:
    return bool(message["content"].get("execution_state") == "busy")


def assert_resumable(editor: Editor, asked: str) -> None:
    """VS Code ends the resumed cell at a message of another request that is not busy, and at some types."""
    kinds = [(one["msg_type"], one["content"].get("execution_state")) for one in editor.of(asked)]
    assert kinds[0] == ("status", "busy") and kinds[-2:] == [("status", "idle"), ("execute_reply", None)]
    assert "execute_input" not in dict(kinds)
    begin = next(at for at, one in enumerate(editor.received) if one["msg_type"] == "clear_output")
    end = next(at for at, one in enumerate(editor.received) if one["msg_type"] == "execute_reply")
    begun = editor.received[begin:end]
    parents = {one["parent_header"].get("session") for one in begun if one["parent_header"] and not busy(one)}
    assert parents <= {editor.session, editor.of(asked)[0]["parent_header"]["session"]}
    sessions = {one["header"]["session"] for one in editor.received if one["channel"] == "iopub"}
    assert len(sessions) == 1, "VS Code drops messages of other sessions"


@full
def test_twenty_windows_get_one_cells_output_in_order_without_loss_or_repetition(
    remote: Remote, end: Path
) -> None:
    """They are closed, or killed, in mid-cell; some while they are not yet ready to show anything."""
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb")
        editor = server.editor(kernel_id)
        asked = editor.execute(PRINT.format(end=str(end)))
        for number in range(20):
            wanted = 0 if number % 5 == 4 else 1 + 37 * number
            editor.until(lambda one=editor, least=wanted: len(one.printed(asked)) >= least)  # type: ignore[misc]
            [editor.close, editor.vanish][number % 2]()
            editor = server.editor(kernel_id)
        end.touch()
        editor.until(lambda: editor.ended(asked))
        assert_complete(editor.printed(asked))
        assert_resumable(editor, asked)


@full
def test_a_cell_that_ended_while_no_window_was_there(remote: Remote, end: Path) -> None:
    """Its output, more than buffers hold, waits in the kernel's log; the server knows that the kernel is idle."""
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb")
        editor = server.editor(kernel_id)
        asked = editor.execute(
            f"import os, time\nprint('begun')\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)\n"
            "for number in range(1500): print(number, 'x' * 10_000, flush=True)"
        )
        editor.until(lambda: bool(editor.printed(asked)))
        editor.vanish()
        end.touch()
        eventually(lambda: states(server) == ["idle"], "the cell ends")
        editor = server.editor(kernel_id)
        editor.until(lambda: editor.ended(asked))
        begun, *lines = editor.printed(asked).splitlines()
        assert begun == "begun" and [line.split()[0] for line in lines] == [
            str(number) for number in range(1500)
        ]
        assert_resumable(editor, asked)
        third = server.editor(kernel_id)
        assert third.run("print('next')") == "next\n" and not third.of(asked)


def states(server: HubServer) -> list[str]:
    return [session["kernel"]["execution_state"] for session in server.ask("GET", "api/sessions")]


@full
def test_the_hub_is_killed_while_no_window_is_there(remote: Remote, end: Path) -> None:
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb")
        editor = server.editor(kernel_id)
        asked = editor.execute(PRINT.format(end=str(end)))
        editor.until(lambda: len(editor.printed(asked)) > 50)
        editor.close()
        hub = psutil.Process(remote.hub_pid())
        hub.kill()
        eventually(
            lambda: states(server) == ["busy"] and not hub.is_running(), "another hub lists the kernel"
        )
        editor = server.editor(kernel_id)
        editor.until(lambda: bool(editor.printed(asked)))
        end.touch()
        editor.until(lambda: editor.ended(asked))
        assert_complete(editor.printed(asked))


@full
def test_a_cell_that_a_new_window_runs_before_it_was_ready_follows_the_missed_output(
    remote: Remote, end: Path
) -> None:
    with HubServer(remote, resume_pause=100 * DEADLINE) as server:
        kernel_id = server.open("a.ipynb")
        editor = server.editor(kernel_id)
        asked = editor.execute(PRINT.format(end=str(end)))
        editor.until(lambda: len(editor.printed(asked)) > 50)
        editor.vanish()
        end.touch()
        eventually(lambda: states(server) == ["idle"], "the cell ends")
        editor = server.editor(kernel_id)
        assert editor.run("print('next')") == "next\n"
        assert editor.ended(asked)
        assert_complete(editor.printed(asked))


@full
def test_the_reply_to_a_cell_waits_for_its_output_also_behind_another_cells(
    remote: Remote, tmp_path: Path
) -> None:
    """The window does not read while both cells run, and confirms nothing: the kernel's iopub waits, shell does not."""
    with HubServer(remote) as server:
        editor = server.editor(server.open("a.ipynb"))
        editor.run("")
        first = editor.execute("for number in range(10): print(number, flush=True)")
        second = editor.execute(f"print('second')\nopen({str(tmp_path / 'ran')!r}, 'w').close()")
        eventually(lambda: (tmp_path / "ran").exists() and states(server) == ["idle"], "both cells end")
        editor.until(lambda: editor.ended(first) and editor.ended(second))
        for asked in (first, second):
            assert [one["msg_type"] for one in editor.of(asked)][-2:] == ["status", "execute_reply"]


@full
def test_the_replies_to_cells_after_an_error_come(remote: Remote) -> None:
    """The kernel aborts them: there is no execute_input."""
    with HubServer(remote) as server:
        editor = server.editor(server.open("a.ipynb"))
        content = {"silent": False, "store_history": True, "stop_on_error": True}
        code = "import time; time.sleep(1); 1 / 0"
        cells = [editor.send("execute_request", {"code": one, **content}) for one in (code, "1", "2")]
        editor.until(lambda: all(editor.ended(asked) for asked in cells))
        replies = [editor.of(asked)[-1]["content"]["status"] for asked in cells]
        assert replies == ["error", "aborted", "aborted"]


def connections(server: HubServer, kernel_id: str) -> int:
    return int(server.ask("GET", f"api/kernels/{kernel_id}")["connections"])


@full
def test_a_window_that_leaves_while_it_connects_is_not_counted(remote: Remote) -> None:
    """It leaves while the server attaches to the kernel, or before the kernel is known to answer."""
    with HubServer(remote) as server:
        server.editor(server.open("a.ipynb")).run("")
        assert server.stop(signal.SIGINT)[0] == 0
    with HubServer(remote) as server:
        (kernel,) = server.ask("GET", "api/kernels")
        for _ in range(2):
            for _ in range(5):
                leave_while_connecting(server, kernel["id"])
            editor = server.editor(kernel["id"])
            assert editor.run("print(1)") == "1\n"
            assert connections(server, kernel["id"]) == 1
            editor.close()
            eventually(lambda: connections(server, kernel["id"]) == 0, "the window has left")
        assert server.stop(signal.SIGINT) == (0, "")


def leave_while_connecting(server: HubServer, kernel_id: str) -> None:
    host = server.url.split("/")[2]
    lines = [
        f"GET /api/kernels/{kernel_id}/channels?session_id={uuid.uuid4().hex} HTTP/1.1",
        f"Host: {host}",
        f"Authorization: token {server.token}",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    with socket.create_connection(("127.0.0.1", int(host.rpartition(":")[2]))) as leaving:
        leaving.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())


@full
def test_a_window_whose_kernel_does_not_answer_in_time(remote: Remote, spec: list[dict[str, Any]]) -> None:
    """It gets what comes when the kernel answers again, and is not counted when it has left."""
    with HubServer(remote, "--PageConnection.kernel_info_timeout=0.5") as server:
        kernel_id = server.open("a.ipynb")
        first = server.editor(kernel_id)
        assert first.run("print(1)") == "1\n"
        kernel = psutil.Process(remote.ask("ps", specs=spec)[0]["pid"])
        kernel.suspend()
        second, third = server.editor(kernel_id), server.editor(kernel_id)
        second.until(lambda: bool(second.received))
        asked = second.execute("print(2)")
        third.close()
        eventually(lambda: connections(server, kernel_id) == 2, "the window that has left is not counted")
        kernel.resume()
        second.until(lambda: second.ended(asked))
        assert second.printed(asked) == "2\n"
        assert server.stop(signal.SIGINT)[0] == 0


@full
def test_a_window_that_answers_pings_stays_open(remote: Remote) -> None:
    with HubServer(remote, "--PageConnection.ping_interval=0.2") as server:
        editor = server.editor(server.open("a.ipynb"))
        editor.until(lambda: editor.pings > 5)
        assert editor.run("print(1)") == "1\n"
        assert server.stop(signal.SIGINT) == (0, "")


@full
def test_a_pong_that_was_not_asked_for_confirms_nothing(remote: Remote) -> None:
    with HubServer(remote) as server:
        editor = server.editor(server.open("a.ipynb"))
        assert editor.run("print(1)") == "1\n"
        editor.socket.pong(b"confirm")
        assert editor.run("print(2)") == "2\n"


@full
def test_a_window_that_answers_no_pings_is_closed(remote: Remote) -> None:
    with HubServer(remote, "--PageConnection.ping_interval=0.2") as server:
        kernel_id = server.open("a.ipynb")
        server.editor(kernel_id)  # which answers when it reads
        eventually(lambda: connections(server, kernel_id) == 0, "the window is given up")


@full
def test_output_for_a_window_that_confirms_nothing_is_limited(remote: Remote) -> None:
    """Without the newer protocol the server does not know what a window has received."""
    with HubServer(remote) as server:
        url = (
            f"{server.url.replace('http:', 'ws:')}api/kernels/{server.open('a.ipynb')}/channels?session_id=a"
        )
        window = create_connection(url, DEADLINE, header={"Authorization": f"token {server.token}"})
        header = {
            "msg_id": "a",
            "msg_type": "execute_request",
            "session": "a",
            "username": "",
            "version": "5.3",
        }
        message = {"header": header, "parent_header": {}, "metadata": {}, "channel": "shell", "buffers": []}
        code = {"code": "print('x' * 10_000_000)", "silent": False}
        window.send(json.dumps({**message, "content": code}))
        while "IOPub data rate exceeded" not in window.recv():
            pass
        window.shutdown()


@full
def test_requests_about_a_kernel_that_no_window_has_opened(remote: Remote) -> None:
    with HubServer(remote) as server:
        server.editor(server.open("a.ipynb")).run("x = 1")
        assert server.stop(signal.SIGINT)[0] == 0
    with HubServer(remote) as server:
        (session,) = server.ask("GET", "api/sessions")
        kernel_id = session["kernel"]["id"]
        for path in (f"kernels/{kernel_id}", f"sessions/{session['id']}"):
            with pytest.raises(HTTPError) as refused:
                server.ask("DELETE", f"api/{path}")
            assert refused.value.code == 409
            assert "jupyter gpu-kernel stop" in json.loads(refused.value.read())["message"]
        server.ask("POST", f"api/kernels/{kernel_id}/interrupt")
        assert server.editor(kernel_id).run("print(x)") == "1\n"
        assert server.stop(signal.SIGINT)[0] == 0
    with HubServer(remote) as server:
        (session,) = server.ask("GET", "api/sessions")
        kernel_id = session["kernel"]["id"]
        assert server.ask("POST", f"api/kernels/{kernel_id}/restart")["id"] == kernel_id
        assert server.editor(kernel_id).run("print('x' in globals())") == "False\n"
        server.ask("DELETE", f"api/kernels/{kernel_id}")
    remote.nothing_left()


@full
def test_two_windows_of_one_kernel_get_every_message_once(remote: Remote) -> None:
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb")
        one, other = server.editor(kernel_id), server.editor(kernel_id)
        other.run("")
        asked = one.execute("for number in range(100): print(number, flush=True)")
        for editor in (one, other):
            editor.until(lambda editor=editor: "99\n" in editor.printed(asked))  # type: ignore[misc]
            assert editor.printed(asked).split() == [str(number) for number in range(100)]


@full
def test_an_exit_leaves_the_kernels_and_the_next_server_lists_them(
    remote: Remote, spec: list[dict[str, Any]], tmp_path: Path
) -> None:
    notebook = str(tmp_path / "a.ipynb")
    with HubServer(remote) as server:
        kernel_id = server.open("a-jvsc-1234.ipynb", "gpu")
        editor = server.editor(kernel_id)
        editor.run("treasure = 42", cellId=f"vscode-notebook-cell:{notebook}#W0sZmlsZQ==")
        eventually(lambda: remote.ask("ps", specs=spec)[0]["notebook"] == notebook, "the notebook is known")
        (before,) = remote.ask("ps", specs=spec)
        assert server.stop(signal.SIGINT) == (0, "")
    (left,) = remote.ask("ps", specs=spec)
    assert (left["pid"], left["attached"]) == (before["pid"], False)

    with HubServer(remote) as server:
        (session,) = server.ask("GET", "api/sessions")
        assert session["path"] == notebook and session["name"] == "a.ipynb"
        kernel = session["kernel"]
        assert (kernel["name"], kernel["execution_state"], kernel["gpus"]) == ("gpu", "idle", left["gpus"])
        assert [one["id"] for one in server.ask("GET", "api/kernels")] == [kernel["id"]]
        assert server.editor(kernel["id"]).run("print(treasure)") == "42\n"
        (again,) = server.ask("GET", "api/sessions")
        assert (again["id"], again["kernel"]["id"]) == (session["id"], kernel["id"])
        assert again["kernel"]["connections"] == 1 and server.ask("GET", "api/status")["kernels"] == 1
        server.ask("DELETE", f"api/sessions/{session['id']}")
    remote.nothing_left()


@full
def test_a_restart_is_a_restart(remote: Remote) -> None:
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb", "gpu")
        editor = server.editor(kernel_id)
        gpu = editor.run("x = 1; import os; print(os.environ['CUDA_VISIBLE_DEVICES'])")
        asked = editor.execute("print('runs', flush=True)\nimport time; time.sleep(600)")
        editor.until(lambda: bool(editor.printed(asked)))
        server.ask("POST", f"api/kernels/{kernel_id}/interrupt")
        editor.until(lambda: editor.ended(asked))
        assert server.ask("POST", f"api/kernels/{kernel_id}/restart")["id"] == kernel_id
        code = "print('x' in globals()); import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"
        assert editor.run(code) == f"False\n{gpu}"


@full
def test_what_is_served(remote: Remote) -> None:
    """Our kernelspecs, with the provisioner; and nothing of the user's own server."""
    config = Path(remote.environment["JUPYTER_CONFIG_DIR"])
    config.mkdir(exist_ok=True)
    theirs = config / "jupyter_server_config.py"
    theirs.write_text(
        "c.ServerApp.base_url = '/theirs/'\nc.ServerApp.certfile = '/nowhere'\n"
        "c.ServerApp.jpserver_extensions = {'jupyterlab': True}\nc.IdentityProvider.token = 'theirs'\n"
    )
    try:
        with HubServer(remote) as server:
            known = server.ask("GET", "api/kernelspecs")["kernelspecs"]
            assert {"cpu", "gpu", "cpu-argv", "gpu-argv"} <= set(known) and "python3" not in known
            assert server.open("a.ipynb", "cpu-argv") and states(server)
            for path in ("api/contents", "api/terminals", "files/a", "lab", "nbconvert/html/a", "hub/api"):
                assert refusal(f"{server.url}{path}", Authorization=f"token {server.token}") == 404
            folders = [remote.runtime, remote.data, Path(remote.environment["XDG_RUNTIME_DIR"])]
            files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
            assert not [path for path in files if server.token.encode() in path.read_bytes()]
            assert server.token not in " ".join(psutil.Process(server.process.pid).cmdline())
    finally:
        theirs.unlink()


def refusal(url: str, **headers: str) -> int:
    """The status of a request."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=DEADLINE) as answer:
            return int(answer.status)
    except HTTPError as error:
        error.close()
        return error.code


TOKEN = "token TOKEN"
REFUSED = {
    "no token": {},
    "another token": {"Authorization": "token wrong"},
    "an empty token": {"Authorization": "token "},
    "a cookie": {"Cookie": "username-127-0-0-1-PORT=TOKEN"},
    "another host": {"Authorization": TOKEN, "Host": "attacker.example:PORT"},
}


@full
def test_who_is_refused(remote: Remote) -> None:
    with HubServer(remote) as server:
        kernel_id = server.open("a.ipynb")
        port = server.url.rstrip("/").rpartition(":")[2]
        for name, headers in REFUSED.items():
            sent = {
                key: text.replace("TOKEN", server.token).replace("PORT", port)
                for key, text in headers.items()
            }
            for path in ("api/kernels", "api/sessions", "api/kernelspecs", "api/status"):
                assert refusal(f"{server.url}{path}", **sent) == 403, (name, path)
            assert websocket_status(server, kernel_id, sent) == 403, name
        right = {"Authorization": f"token {server.token}"}
        assert websocket_status(server, kernel_id, right, "http://attacker.example") == 403
        assert websocket_status(server, kernel_id, right) == 101
        assert refusal(f"{server.url}api/kernels?token={server.token}") == 200


def websocket_status(server: HubServer, kernel_id: str, headers: dict[str, str], origin: str = "") -> int:
    url = f"{server.url.replace('http:', 'ws:')}api/kernels/{kernel_id}/channels"
    more = {"origin": origin} if origin else {"suppress_origin": True}
    host = headers.get("Host")
    others = {key: text for key, text in headers.items() if key != "Host"}
    try:
        opened = create_connection(url, DEADLINE, header=others, host=host, **more)
    except WebSocketBadStatusException as error:
        return int(error.status_code)
    opened.shutdown()
    return 101


@full
def test_a_port_that_is_taken(remote: Remote) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = remote.program("serve", "--port", str(port))
    assert refused.returncode == 1 and refused.stdout == ""
    assert (
        refused.stderr.startswith(f"the server cannot listen on port {port}: ") and "--port" in refused.stderr
    )
    assert "Traceback" not in refused.stderr
    assert remote.program("serve", "--port", "99999").returncode == 1
    assert remote.program("serve", "--port", "x").returncode == 2


@full
def test_what_it_prints(remote: Remote) -> None:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "serve", "--port"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [*command, str(port)], env=remote.program_environment(), stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(rf"(http://127\.0\.0\.1:{port}/)\?token=([\w-]{{40,}})\n", line)
    assert found and refusal(f"{found[1]}api/status?token={found[2]}") == 200
    assert "Existing Jupyter Server" in process.stdout.readline() and "Ctrl-C" in process.stdout.readline()
    process.terminate()
    assert process.communicate(timeout=DEADLINE) == ("", None) and process.returncode == 0


def test_a_server_that_nobody_uses_ends_where_that_was_wanted(remote: Remote) -> None:
    remote.program("ps")  # there is a hub, which this test does not start
    server = HubServer(remote, "--while-used", "1s")
    assert server.process.wait(DEADLINE) == 0
    assert server.process.communicate() == ("", "")


@full
def test_a_server_with_a_connected_page_is_used(remote: Remote) -> None:
    """Although the page requests nothing for longer than the given time."""
    with HubServer(remote, "--while-used", "8s") as server:
        editor = server.editor(server.open("a.ipynb"))
        asked = editor.execute("import time; time.sleep(12); print('used')")
        editor.until(lambda: editor.ended(asked))
        assert "used" in "".join(editor.printed(asked))
        editor.close()
        assert server.process.wait(DEADLINE) == 0
