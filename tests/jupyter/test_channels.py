"""What else goes over a kernel's channels: input(), comms and widgets, buffers, two clients on one kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cells import run, started, wait_for
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from remote import Remote
from waiting import DEADLINE

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
Pair = tuple[KernelManager, BlockingKernelClient]


@pytest.fixture(scope="module", params=["cpu", "cpu-argv"])
def pair(remote: Remote, request: pytest.FixtureRequest) -> Iterator[Pair]:
    with started(remote, request.param) as pair:
        yield pair


def test_input(pair: Pair) -> None:
    _, client = pair

    def answer(message: dict[str, object]) -> None:
        assert message["content"] == {"prompt": "name? ", "password": False}
        client.input("Alice")

    ran = run(client, "print('hello', input('name? '))", allow_stdin=True, stdin_hook=answer)
    assert ran.text == "hello Alice\n"


def test_two_clients_see_the_same_and_get_their_own_replies(pair: Pair) -> None:
    manager, first = pair
    second = BlockingKernelClient()  # with a session of its own: the manager's clients all have the manager's
    second.load_connection_info(manager.get_connection_info(session=False))
    second.start_channels()
    second.wait_for_ready(timeout=DEADLINE)
    asked = second.execute("x = 'from the second'; print(x)")
    assert wait_for(first, "stream")["parent_header"]["msg_id"] == asked
    assert wait_for(second, "stream")["content"]["text"] == "from the second\n"
    assert second.get_shell_msg(timeout=DEADLINE)["parent_header"]["msg_id"] == asked
    assert run(first, "print(x)").text == "from the second\n"
    asked = second.execute("print(input())", allow_stdin=True)
    assert second.get_stdin_msg(timeout=DEADLINE)["parent_header"]["msg_id"] == asked
    second.input("only the second was asked")
    assert wait_for(second, "stream", text="only the second was asked\n")
    second.stop_channels()
    second.context.destroy(linger=0)


def test_comms_go_both_ways_with_buffers(pair: Pair) -> None:
    _, client = pair
    code = (
        "from ipykernel.comm import Comm\n"
        "comm = Comm(target_name='test', data={'x': 1}, buffers=[b'\\x00\\xff' * 50_000])\n"
        "comm.on_msg(lambda message: comm.send(\n"
        "    {'echo': message['content']['data']}, buffers=[bytes(b)[::-1] for b in message['buffers']]))"
    )
    ran = run(client, code)
    (opened,) = (message for message in ran.messages if message["msg_type"] == "comm_open")
    assert bytes(opened["buffers"][0]) == b"\x00\xff" * 50_000
    content = {"comm_id": opened["content"]["comm_id"], "data": {"n": 7}}
    message = client.session.msg("comm_msg", content)
    client.session.send(client.shell_channel.socket, message, buffers=[b"abc"])
    echo = wait_for(client, "comm_msg")
    assert echo["content"]["data"] == {"echo": {"n": 7}}
    assert bytes(echo["buffers"][0]) == b"cba"


def test_a_widget_follows_the_browser(pair: Pair) -> None:
    pytest.importorskip("ipywidgets", reason="pip install ipywidgets")
    _, client = pair
    ran = run(client, "import ipywidgets\nslider = ipywidgets.IntSlider(value=3)\ndisplay(slider)")
    assert ran.reply["status"] == "ok", ran.reply
    (shown,) = (data["data"] for data in ran.of("display_data"))
    model = shown["application/vnd.jupyter.widget-view+json"]["model_id"]
    assert model in {content["comm_id"] for content in ran.of("comm_open")}
    data = {"method": "update", "state": {"value": 42}, "buffer_paths": []}
    client.shell_channel.send(client.session.msg("comm_msg", {"comm_id": model, "data": data}))
    assert run(client, "print(slider.value)").text == "42\n"
