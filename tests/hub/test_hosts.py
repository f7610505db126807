"""One kernelspec, several hosts: which one is chosen, and which are left out."""

from __future__ import annotations

import asyncio
import contextlib
import os
from typing import Any

import pytest
from fronts import Front
from practice_gpus import VISIBLE
from practice_hosts import Lab, hosts, lab, loop
from runtimes import RUNTIME
from streams import LoopThread, log, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError, GpuKernelError, HubError, KernelStartError
from jupyter_gpu_kernel.hub.kernel.kernel_state import KernelState
from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.hub.node.node import Node
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.node.nodes import none_usable
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.several_hosts import host_wait
from jupyter_gpu_kernel.hub.several_hosts.host_wait import HostWait, Reservation
from jupyter_gpu_kernel.hub.several_hosts.placement import GRACE, PATIENCE, Offer, left_out, wait_until
from jupyter_gpu_kernel.served_kernel import ServedKernel, StartCall
from jupyter_gpu_kernel.wire.messages import keeper_message

__all__ = ["hosts", "lab", "loop"]
pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


def refuse(*_: Any, **__: Any) -> Any:
    raise ConnectError("nobody connects here")


def offer(at: float = 0.0, error: ConnectError | None = None, **answer: Any) -> Offer:
    node = Node(RUNTIME, RouteSettings(("gpu1",), (), None), refuse, log)
    return Offer(node, {}, answer, error, at)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (offer(detached=5.0), offer(enough=True, idle=True, memory=80)),
        (offer(detached=5.0), offer(left=4.0)),
        (offer(enough=True, idle=True, memory=10), offer(enough=True, idle=False, memory=80)),
        (offer(enough=True, idle=True, memory=80), offer(enough=True, idle=True, memory=10)),
        (offer(enough=True, idle=False, memory=10), offer(enough=False, waiting=0)),
        (offer(enough=False, waiting=1), offer(enough=False, waiting=2)),
        (offer(enough=False, waiting=9), offer(enough=False, problem="this node has none")),
    ],
)
def test_the_better_offer(better: Offer, worse: Offer) -> None:
    assert better.rank < worse.rank


FULL, FREE, FAILED = offer(at=10.0), offer(at=14.0, enough=True), offer(at=1.0, error=ConnectError("no"))


@pytest.mark.parametrize(
    ("offers", "home_is_pending", "until"),
    [
        ([], False, None),
        ([FAILED], False, None),
        ([FAILED, FULL], False, 10.0 + PATIENCE),
        ([FULL, FREE], False, 14.0 + GRACE),
        ([FULL, FREE], True, 10.0 + PATIENCE),
        ([FULL, offer(at=12.0, detached=5.0)], True, 0.0),
    ],
)
def test_how_long_hosts_are_waited_for(
    offers: list[Offer], home_is_pending: bool, until: float | None
) -> None:
    assert wait_until(offers, home_is_pending) == until


@pytest.mark.parametrize(("state", "granted"), [("waiting", False), ("idle", True)])
def test_a_reservation_is_granted_once_its_kernel_knows_its_gpus(
    loop: LoopThread, state: str, granted: bool
) -> None:
    def each() -> list[bool]:  # in one step, before the link reports that it cannot connect
        reservation = Reservation(RUNTIME, "k", KernelSettings(gpus=1), {}, link, lambda: None)
        reservation.attached()
        seen = []
        for gpus in ([], ["GPU-1"]):
            status = keeper_message(event="state", id="k", state=state, gpus=gpus, reservation=True)
            reservation.deliver(status.encode())
            seen.append(reservation.granted)
        reservation.detached("an outage")
        return [*seen, reservation.granted]

    link = loop.call(lambda: Link(RUNTIME, "gpu2", refuse, log))
    assert loop.call(each) == [False, granted, False]
    loop.run(link.close())


def test_a_host_is_tried_again_only_when_the_last_reservation_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both have the kernel's id: a late `stop` would end the next one."""
    monkeypatch.setattr(host_wait, "RECONNECT_AFTER", 0.0)
    events: list[str] = []

    def connect(*_: Any) -> Any:
        events.append("tried")
        raise ConnectError("no route to host", hop="gpu1")

    async def run() -> None:
        async def end() -> None:
            while not events:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.3)  # time for a wrong second try
            events.append("ended")

        node = Node(RUNTIME, RouteSettings(("gpu1",), (), None), connect, log)
        settings = KernelSettings(("gpu1",), python="/usr/bin/python3")
        remote = KernelState("k1", settings, NoLink("gpu1"))
        wait = HostWait(RUNTIME, remote, {}, Offer(node, settings, {}), lambda node: False)  # type: ignore[arg-type]
        wait._ending = asyncio.ensure_future(end())
        assert wait.occupies
        wait.begin()
        while events.count("tried") < 2:
            await asyncio.sleep(0.01)
        assert not wait.occupies
        wait.take()
        await node.close()

    asyncio.run(asyncio.wait_for(run(), DEADLINE))
    assert events[:3] == ["tried", "ended", "tried"]


def test_a_kernel_starts_on_the_best_host_and_its_notebook_finds_it_there(lab: Lab) -> None:
    one, two = lab.hosts.values()
    one.gpus.show(
        {"gpus": [{"uuid": name, "processes": [{"pid": 1, "memory": 9}]} for name in one.gpus.uuids[:1]]}
    )
    client = lab.client()
    remote = lab.start("/home/me/a.ipynb", client)
    assert not one.kernels() and not two.kernels(), "opening a notebook starts nothing"
    specs = [{"name": "lab", "settings": lab.settings()}]
    (row,) = lab.call("ps", specs=specs)
    assert (row["id"], row["hop"], row["state"]) == (remote.kernel_id, "gpu1, gpu2", "idle")
    with Front(remote.edge.connection) as front:
        assert front.run(VISIBLE).text.strip() in two.gpus.uuids
        front.run("treasure = 42")
    assert remote.link.name == "gpu2" and two.kernels() == [row["id"]] == [remote.kernel_id]
    assert "gpu2 was chosen: nobody uses its GPUs" in two.story(remote.kernel_id)
    assert remote.describe()["placement"].startswith("gpu2 was chosen")
    # Where the cell had to wait for a moment, a reservation on the other host may just be ending.
    wait_for(
        lambda: (
            [(row["id"], row["hop"]) for row in lab.call("ps", specs=specs)] == [(remote.kernel_id, "gpu2")]
        ),
        "its kernel alone",
    )
    lab.call("release", client, kernel=remote.kernel_id)
    one.gpus.report(4)
    two.gpus.show({"gpus": []})
    again = lab.start("/home/me/a.ipynb")
    assert (again.kernel_id, again.link.name) == (remote.kernel_id, "gpu2")
    with Front(again.edge.connection) as front:
        assert "42" in str(front.run("treasure").outputs)
    assert lab.offers(notebook="/home/me/b.ipynb")[0].settings.route == ("gpu1",)


def test_dead_hosts_are_left_out_and_delay_nothing(lab: Lab) -> None:
    one, two = lab.hosts.values()
    one.unplug()
    one.answers.clear()
    assert chosen(lab) == "gpu2: nobody uses its GPUs. Left out: gpu1: no answer yet"
    one.answers.set()
    assert chosen(lab) == "gpu2: nobody uses its GPUs. Left out: gpu1: the connection timed out"
    two.unplug()
    for operation in (lab.start, lambda: lab.call("probe", settings=lab.settings())):
        with pytest.raises(KernelStartError, match=r"none of the hosts can be used: gpu1: .*; gpu2: .*"):
            operation()


def chosen(lab: Lab) -> str:
    offers = lab.offers()
    return f"{offers[0].node.name}: {offers[0].reason}{left_out(offers)}"


BUSY = {"pid": 1, "memory": 900}


def crowd(lab: Lab, *names: str) -> None:
    """Somebody uses every GPU of these hosts."""
    for name in names:
        gpus = lab.hosts[name].gpus
        gpus.show({"gpus": [{"uuid": gpus.uuids[0], "processes": [BUSY]}]})


def await_text(front: Front, text: str) -> None:
    """A cell that waits shows this."""
    while text not in str(front.client.get_iopub_msg(timeout=DEADLINE)["content"].get("data", "")):
        pass


def nothing_left(lab: Lab, **kernels: list[str]) -> None:
    """Each host has only these kernels."""
    for name, host in lab.hosts.items():
        wait_for(lambda h=host, n=name: h.kernels() == kernels.get(n, []), f"{name}: {host.kernels()}")  # type: ignore[misc]


def queued(lab: Lab) -> list[tuple[str, int]]:
    """Notebook and priority of the kernels that wait, on all hosts."""
    rows = lab.call("gpus", specs=[{"name": "lab", "settings": lab.settings()}])
    return [(one["notebook"], one["priority"]) for row in rows for one in row.get("queue", ())]


def until_both_wait(lab: Lab) -> None:
    """Wait until GPUs are reserved on both hosts."""
    wait_for(lambda: len(queued(lab)) == 2, "the reservations")


def test_a_cell_that_waits_runs_where_a_gpu_is_free_first(lab: Lab) -> None:
    """So do the cells behind it, each of which is answered once; nothing is left on the other host."""
    crowd(lab, "gpu1", "gpu2")
    remote = lab.start("/home/me/a.ipynb")
    waiting = remote.kernel_id
    with Front(remote.edge.connection) as front:
        front.run("setup = 5", silent=True, store_history=False)
        cells = [front.client.execute(code) for code in (VISIBLE, "print(setup)", "1 / 0")]
        await_text(front, "Or waiting for 1 GPU on")
        until_both_wait(lab)
        specs = [{"name": "lab", "settings": lab.settings()}]
        assert [(row["id"], row["state"]) for row in lab.call("ps", specs=specs)] == [(waiting, "waiting")]
        queues = [[one["id"] for one in row["queue"]] for row in lab.call("gpus", specs=specs)]
        assert all(queue == [waiting] for queue in queues), queues
        assert lab.call("priority", kernel=waiting, priority=7, specs=specs)["priority"] == 7
        story = lab.call("logs", kernel=waiting, specs=specs)
        assert {row["hop"] for row in story} == {"gpu1", "gpu2", "gpu1, gpu2"}, "of both reservations"
        assert any("Or waiting for 1 GPU on" in row["text"] for row in story)
        assert not any("error" in row for row in story)
        wait_for(
            lambda: all(one == ("/home/me/a.ipynb", 7) for one in queued(lab)), "its priority on both hosts"
        )
        lab.hosts["gpu2"].gpus.report(1)
        found = [front.finish(cell) for cell in cells]
        assert found[0].text.strip() == lab.hosts["gpu2"].gpus.uuids[0]
        assert found[1].text.strip() == "5", "what front ends ran before is repeated"
        assert [one.reply["status"] for one in found] == ["ok", "ok", "error"]
        for one in found[1:]:
            kinds = [m["content"].get("execution_state", m["msg_type"]) for m in one.messages]
            assert kinds[:2] == ["busy", "execute_input"] and kinds.count("idle") == 1
        assert front.run("setup").reply["execution_count"] == 4
        assert remote.link.name == "gpu2" and remote.describe()["priority"] == 7
        assert remote.kernel_id == waiting, "who waits for the kernel finds it"
        wait_for(lambda: "its GPUs were free first" in remote.describe()["placement"], "the reason")
        assert "gpu2 was chosen: its GPUs were free first" in lab.hosts["gpu2"].story(remote.kernel_id)
    nothing_left(lab, gpu2=[remote.kernel_id])
    assert remote.describe()["notebook"] == "/home/me/a.ipynb"
    stories = lab.call("stories", kernel=waiting, specs=[{"name": "lab", "settings": lab.settings()}])
    assert stories == [{"id": waiting, "hop": "gpu2"}], "none of the reservation that was withdrawn"


def test_a_kernel_that_no_cell_has_started_tells_so_in_its_log(lab: Lab) -> None:
    remote = lab.start()
    specs = [{"name": "lab", "settings": lab.settings()}]
    assert {"id": remote.kernel_id, "hop": "gpu1, gpu2"} in lab.call("stories", kernel="", specs=[])
    [row] = lab.call("logs", kernel=remote.kernel_id, specs=specs)
    assert (row["event"], row["hop"]) == ("pending", "gpu1, gpu2") and "its first cell starts it" in row[
        "text"
    ]


def test_a_machine_with_two_names_gets_one_reservation(lab: Lab) -> None:
    """A second one with the kernel's id would have the same keeper, and withdraw the kernel itself."""
    crowd(lab, "gpu1")
    names = {"route": ["gpu1"], "hosts": ["gpu1", "alias"]}
    lab.hosts["alias"] = lab.hosts["gpu1"]
    try:
        remote = lab.start(**names)
        with Front(remote.edge.connection) as front:
            cell = front.client.execute(VISIBLE)
            await_text(front, "another one of the hosts is the same machine")
            lab.hosts["gpu1"].gpus.report(1)
            assert front.finish(cell).text.strip() == lab.hosts["gpu1"].gpus.uuids[0]
            assert front.run("6 * 7").reply["status"] == "ok"
        assert lab.hosts["gpu1"].kernels() == [remote.kernel_id]
    finally:
        del lab.hosts["alias"]


def test_a_wait_that_ends_leaves_nothing_on_the_hosts(lab: Lab) -> None:
    """A cell is interrupted, its kernel is stopped, and one of the hosts is out of reach in between."""
    crowd(lab, "gpu1", "gpu2")
    remote = lab.start()
    specs = [{"name": "lab", "settings": lab.settings()}]
    with Front(remote.edge.connection) as front:
        cell = front.client.execute(VISIBLE)
        until_both_wait(lab)
        front.control("interrupt_request")
        assert front.finish(cell).reply["ename"] == "KeyboardInterrupt"
        nothing_left(lab)
        assert [row["state"] for row in lab.call("ps", specs=specs)] == ["idle"]
        cells = [front.client.execute(VISIBLE) for _ in range(2)]
        until_both_wait(lab)
        lab.hosts["gpu1"].unplug()
        front.control("interrupt_request")
        assert front.finish(cells[0]).reply["ename"] == "KeyboardInterrupt"
        assert front.reply(cells[1])["status"] == "aborted"
        lab.hosts["gpu1"].reachable = True
        nothing_left(lab)
        cell = front.client.execute(VISIBLE)
        until_both_wait(lab)
        lab.call("stop", kernel=remote.kernel_id, specs=specs)
        assert "the kernel was stopped before it was started" in front.finish(cell).reply["evalue"]
    nothing_left(lab)


def test_a_cell_waits_on_for_a_host_that_is_out_of_reach(lab: Lab) -> None:
    crowd(lab, "gpu1", "gpu2")
    remote = lab.start()
    with Front(remote.edge.connection) as front:
        cell = front.client.execute(VISIBLE)
        until_both_wait(lab)
        for host in lab.hosts.values():
            host.crash()
        await_text(front, "the connection is down")
        lab.hosts["gpu2"].reachable = True
        lab.hosts["gpu2"].gpus.report(1)
        assert front.finish(cell).text.strip() == lab.hosts["gpu2"].gpus.uuids[0]
    assert remote.link.name == "gpu2"


def test_a_cell_fails_with_the_reasons_of_all_hosts_if_none_can_give_gpus(lab: Lab) -> None:
    remote = lab.start(gpu_type="H9000")
    with Front(remote.edge.connection) as front:
        reason = front.finish(front.client.execute(VISIBLE)).reply["evalue"]
    assert all(text in reason for text in ("none of the hosts can be used: ", "gpu1: 1 GPU", "gpu2: 1 GPU"))
    nothing_left(lab)


def test_a_notebook_that_is_closed_while_its_cell_waits_finds_the_result(lab: Lab) -> None:
    """The cell goes on waiting on one of the hosts."""
    crowd(lab, "gpu1", "gpu2")
    client = lab.client()
    remote = lab.start("/home/me/a.ipynb", client)
    with Front(remote.edge.connection) as front:
        front.client.execute("treasure = 42")
        until_both_wait(lab)
    lab.call("release", client, kernel=remote.kernel_id)
    wait_for(lambda: len(queued(lab)) == 1, "one host is chosen")
    specs = [{"name": "lab", "settings": lab.settings()}]
    wait_for(lambda: lab.call("ps", specs=specs), "it is a kernel of the user's")
    (row,) = lab.call("ps", specs=specs)
    assert (row["state"], row["cells"]) == ("waiting", 1)
    lab.hosts[row["hop"]].gpus.report(1)
    again = lab.start("/home/me/a.ipynb")
    assert (again.kernel_id, again.link.name) == (row["id"], row["hop"])
    with Front(again.edge.connection) as front:
        assert "42" in str(front.run("treasure").outputs)
    nothing_left(lab, **{row["hop"]: [row["id"]]})


def test_a_kernel_leaves_a_host_that_crashes_or_loses_its_gpu(lab: Lab) -> None:
    """At a restart, after which the next cell starts it on another host; at another restart it stays."""
    crowd(lab, "gpu1")
    client = lab.client()
    remote = lab.start("", client)
    one, two = lab.hosts["gpu1"].gpus, lab.hosts["gpu2"].gpus
    with Front(remote.edge.connection) as front:
        mine = front.run(VISIBLE).text.strip()
        assert (remote.link.name, mine in two.uuids) == ("gpu2", True)
        lab.call("restart", client, kernel=remote.kernel_id)
        assert remote.link.name == "gpu2" and front.run(VISIBLE).text.strip() == mine
        one.report(1)
        two.show({"gpus": [{"uuid": mine, "lost": True}, {"uuid": two.uuids[1], "processes": [BUSY]}]})
        lab.call("restart", client, kernel=remote.kernel_id)
        nothing_left(lab)
        assert front.run(VISIBLE).text.strip() == one.uuids[0] and remote.link.name == "gpu1"
        two.report(4)
        lab.hosts["gpu1"].crash()
        wait_for(lambda: remote.link_state.value == "away", "the loss of the link")
        lab.call("restart", client, kernel=remote.kernel_id)
        assert front.run(VISIBLE).text.strip() in two.uuids and remote.link.name == "gpu2"


def test_vs_code_finds_its_kernel_on_another_host(lab: Lab) -> None:
    """Its launcher does not know the notebook, so the kernel could have been a new one, where GPUs are free."""
    startup = "__vsc_ipynb_file__ = '/home/me/a.ipynb'"
    crowd(lab, "gpu1")
    client = lab.client()
    first = lab.start("", client, parent=1)
    with Front(first.edge.connection) as front:
        front.run(startup, store_history=False)
        front.run("treasure = 42")
        assert first.link.name == "gpu2"
        lab.call("release", client, kernel=first.kernel_id)
    lab.hosts["gpu1"].gpus.report(4)
    lab.hosts["gpu2"].gpus.show({"gpus": []})
    again = lab.start("", parent=2)
    fresh = again.kernel_id
    with Front(again.edge.connection) as front:
        front.run(startup, store_history=False)
        assert "42" in str(front.run("treasure").outputs)
        assert (again.kernel_id, again.link.name) == (first.kernel_id, "gpu2") and fresh != first.kernel_id
    nothing_left(lab, gpu2=[first.kernel_id])


def test_vs_codes_restart_keeps_host_and_gpu(lab: Lab) -> None:
    """Its next launcher starts before the one before ends."""
    startup = "__vsc_ipynb_file__ = '/home/me/a.ipynb'"
    crowd(lab, "gpu1")
    client = lab.client()
    first = lab.start("", client, parent=1)
    with Front(first.edge.connection) as front:
        front.run(startup, store_history=False)
        mine = front.run(VISIBLE).text.strip()
    lab.hosts["gpu1"].gpus.report(4)
    again = lab.start("", parent=1)
    with Front(again.edge.connection) as front:
        front.run(startup, store_history=False)
        lab.loop.call(client.close)
        lab.loop.call(client.disconnected)
        assert front.run(VISIBLE).text.strip() == mine and again.link.name == "gpu2"
    assert again.kernel_id != first.kernel_id
    nothing_left(lab, gpu2=[again.kernel_id])


@pytest.mark.parametrize("is_known_late", [False, True])
def test_vs_codes_restart_of_a_kernel_whose_cell_waits(lab: Lab, is_known_late: bool) -> None:
    """Its cell does not wait on, and the next cell does not get its kernel."""
    parent = 3 + is_known_late
    startup = f"__vsc_ipynb_file__ = '/home/me/{parent}.ipynb'"
    crowd(lab, "gpu1", "gpu2")
    client = lab.client()
    first = lab.start("", client, parent=parent)
    with Front(first.edge.connection) as front:
        front.run(startup, store_history=False)
        front.client.execute("treasure = 42")
        until_both_wait(lab)
    again = lab.start("", parent=parent)
    with Front(again.edge.connection) as front:
        if not is_known_late:
            front.run(startup, store_history=False)
        client.sent_bye = True
        lab.loop.call(client.close)
        lab.loop.call(client.disconnected)
        if is_known_late:
            wait_for(lambda: len(queued(lab)) == 1, "the choice of a host for a notebook that may be closed")
            front.run(startup, store_history=False)
        wait_for(lambda: not queued(lab), "the end of the wait on both hosts")
        lab.hosts["gpu1"].gpus.report(4)
        assert "False" in str(front.run("'treasure' in dir()").outputs)
    nothing_left(lab, gpu1=[again.kernel_id])


def test_the_hub_after_a_killed_one_has_the_kernel_where_it_is(lab: Lab) -> None:
    """A pending kernel is pending again."""
    crowd(lab, "gpu1")
    served = ServedKernel(StartCall("start", {"settings": lab.settings()}), lambda event: None)

    def adopted(remote: RemoteKernel) -> RemoteKernel:
        served.id, connection = remote.kernel_id, remote.edge.connection
        served._handle(remote.event())
        lab.loop.call(lab.operations._kernels.release, remote)
        known = {**served.arguments, "kernel": served.id, "connection": connection, "name": "lab"}

        def try_it() -> bool:
            with contextlib.suppress(HubError):  # the ports may not be free at once
                lab.call("adopt", lab.client(), **known, front=0)
                return True
            return False

        wait_for(try_it, "the ports")
        return lab.remote(served.id)

    remote = adopted(lab.start("/home/me/a.ipynb"))
    assert remote.not_started and not any(host.kernels() for host in lab.hosts.values())
    with Front(remote.edge.connection) as front:
        front.run("treasure = 42")
    assert remote.link.name == "gpu2"
    again = adopted(remote)
    assert not again.not_started and (again.link.name, again.kernel_id) == ("gpu2", remote.kernel_id)
    with Front(again.edge.connection) as front:
        assert "42" in str(front.run("treasure").outputs)
        lab.loop.call(again.lost, ConnectError("gone"))
    assert not again.not_started and again.ended, "no kernel is started unasked"


def test_a_hop_before_all_hosts_that_fails_is_told_once() -> None:
    def fails(hop: str) -> GpuKernelError:
        return KernelStartError("its host name cannot be resolved", hop=hop, remedy="Check the spelling.")

    assert str(none_usable({"gpu1": fails("login"), "gpu2": fails("login")})).startswith(
        "login: its host name"
    )
    error = none_usable({"gpu1": fails("gpu1"), "gpu2": fails("gpu2")})
    assert "gpu1: its host name cannot be resolved; gpu2: its host name" in error.cause
