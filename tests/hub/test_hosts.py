"""One kernelspec, several hosts: which one is chosen, and which are left out."""

from __future__ import annotations

import os
from typing import Any

import pytest
from fronts import Front
from practice_gpus import VISIBLE
from practice_hosts import Lab, hosts, lab, loop
from runtimes import RUNTIME
from streams import LoopThread, log, wait_for
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import ConnectError, KernelStartError
from jupyter_gpu_kernel.hub.kernel.reservation import Reservation
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.link import Link
from jupyter_gpu_kernel.hub.node.node import Node
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.several_hosts.placement import GRACE, PATIENCE, Offer, wait_until
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


@pytest.mark.parametrize("state", ["waiting", "idle"])  # the second one after an outage
def test_a_reservation_is_granted_once_its_keeper_has_gpus(loop: LoopThread, state: str) -> None:
    def granted() -> list[bool]:  # in one step, before the link reports that it cannot connect
        reservation = Reservation(RUNTIME, "k", KernelSettings(), {}, link, lambda: None)
        reservation.attached()
        seen = []
        for gpus in ([], ["GPU-1"]):
            status = keeper_message(event="state", id="k", state=state, gpus=gpus, standby=True)
            reservation.deliver(status.encode())
            seen.append(reservation.granted)
        reservation.detached("an outage")
        return [*seen, reservation.granted]

    link = loop.call(lambda: Link(RUNTIME, "gpu2", refuse, log))
    assert loop.call(granted) == [False, True, False]
    loop.run(link.close())


def test_a_kernel_starts_on_the_best_host_and_its_notebook_finds_it_there(lab: Lab) -> None:
    one, two = lab.hosts.values()
    one.gpus.show(
        {"gpus": [{"uuid": name, "processes": [{"pid": 1, "memory": 9}]} for name in one.gpus.uuids[:1]]}
    )
    client = lab.client()
    remote = lab.start("/home/me/a.ipynb", client)
    assert remote.link.name == "gpu2" and remote.kernel_id in two.kernels() and not one.kernels()
    assert "gpu2 was chosen: nobody uses its GPUs" in two.story(remote.kernel_id)
    assert remote.describe()["placement"].startswith("gpu2 was chosen")
    with Front(remote.edge.connection) as front:
        assert front.run(VISIBLE).text.strip() in two.gpus.uuids
        front.run("treasure = 42")
    specs = [{"name": "lab", "settings": lab.settings()}]
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
    assert lab.choose(notebook="/home/me/b.ipynb").route == ("gpu1",)


def test_dead_hosts_are_left_out_and_delay_nothing(lab: Lab) -> None:
    one, two = lab.hosts.values()
    one.unplug()
    one.answers.clear()
    assert "gpu2 was chosen: nobody uses its GPUs. Left out: gpu1: no answer yet" in chosen(lab)
    one.answers.set()
    assert "gpu2 was chosen: nobody uses its GPUs. Left out: gpu1: the connection timed out" in chosen(lab)
    two.unplug()
    for operation in (lab.start, lambda: lab.call("probe", settings=lab.settings())):
        with pytest.raises(KernelStartError, match=r"none of the hosts can be used: gpu1: .*; gpu2: .*"):
            operation()


def chosen(lab: Lab) -> str:
    return lab.choose().placement


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
    return [(one["notebook"], one["priority"]) for row in rows for one in row["queue"]]


def test_a_cell_that_waits_runs_where_a_gpu_is_free_first(lab: Lab) -> None:
    """It moves with the cells behind it, each of which is answered once; nothing is left on the host before."""
    crowd(lab, "gpu1", "gpu2")
    remote = lab.start("/home/me/a.ipynb")
    home, other = remote.link.name, "gpu2" if remote.link.name == "gpu1" else "gpu1"
    with Front(remote.edge.connection) as front:
        front.run("setup = 5", silent=True)
        cells = [front.client.execute(code) for code in (VISIBLE, "print(setup)", "1 / 0")]
        await_text(front, "Or waiting for 1 GPU on")
        assert len(lab.hosts[other].kernels()) == 1
        specs = [{"name": "lab", "settings": lab.settings()}]
        assert [row["state"] for row in lab.call("ps", specs=specs)] == ["waiting"]
        queues = [[one["id"] for one in row["queue"]] for row in lab.call("gpus", specs=specs)]
        assert all(queue == [remote.kernel_id] for queue in queues), queues
        lab.call("priority", kernel=remote.kernel_id, priority=7, specs=specs)
        wait_for(
            lambda: all(one == ("/home/me/a.ipynb", 7) for one in queued(lab)), "its priority on both hosts"
        )
        lab.hosts[other].gpus.report(1)
        found = [front.finish(cell) for cell in cells]
        assert found[0].text.strip() == lab.hosts[other].gpus.uuids[0]
        assert found[1].text.strip() == "5", "what front ends ran before is repeated"
        assert [one.reply["status"] for one in found] == ["ok", "ok", "error"]
        for one in found[1:]:
            kinds = [m["content"].get("execution_state", m["msg_type"]) for m in one.messages]
            assert kinds[:2] == ["busy", "execute_input"] and kinds.count("idle") == 1
        assert front.run("setup").reply["execution_count"] == 4
        assert remote.link.name == other
        wait_for(lambda: "its GPUs were free first" in remote.describe()["placement"], "the reason")
        assert f"{other} was chosen: its GPUs were free first" in lab.hosts[other].story(remote.kernel_id)
    nothing_left(lab, **{other: [remote.kernel_id]})
    assert remote.describe()["notebook"] == "/home/me/a.ipynb"
    assert home != other


def test_a_cell_that_is_interrupted_or_runs_at_home_leaves_no_reservation(lab: Lab) -> None:
    """It is interrupted while its host can be reached, and while it cannot."""
    crowd(lab, "gpu1", "gpu2")
    remote = lab.start()
    home, other = remote.link.name, "gpu2" if remote.link.name == "gpu1" else "gpu1"
    with Front(remote.edge.connection) as front:
        cell = front.client.execute(VISIBLE)
        wait_for(lambda: lab.hosts[other].kernels(), "the reservation")
        front.control("interrupt_request")
        assert front.finish(cell).reply["ename"] == "KeyboardInterrupt"
        nothing_left(lab, **{home: [remote.kernel_id]})
        cells = [front.client.execute(VISIBLE) for _ in range(2)]
        wait_for(lambda: lab.hosts[other].kernels(), "the reservation")
        lab.hosts[home].unplug()
        wait_for(lambda: remote.link_state.value == "away", "the loss of the link")
        front.control("interrupt_request")
        assert front.finish(cells[0]).reply["ename"] == "KeyboardInterrupt"
        assert front.reply(cells[1])["status"] == "aborted"
        nothing_left(lab, **{home: [remote.kernel_id]})
        cell = front.client.execute(VISIBLE)
        lab.hosts[home].reachable = True
        wait_for(lambda: lab.hosts[other].kernels(), "the reservation")
        lab.hosts[home].gpus.report(1)
        assert front.finish(cell).text.strip() == lab.hosts[home].gpus.uuids[0]
    nothing_left(lab, **{home: [remote.kernel_id]})


def test_a_kernel_leaves_a_host_that_crashes_or_loses_its_gpu(lab: Lab) -> None:
    """While a cell waits it leaves at once, and at a restart later; at another restart it stays."""
    crowd(lab, "gpu1", "gpu2")
    client = lab.client()
    remote = lab.start("", client)
    home, other = remote.link.name, "gpu2" if remote.link.name == "gpu1" else "gpu1"
    one, two = lab.hosts[home].gpus, lab.hosts[other].gpus
    with Front(remote.edge.connection) as front:
        cell = front.client.execute(VISIBLE)
        wait_for(lambda: lab.hosts[other].kernels(), "the reservation")
        lab.hosts[home].crash()
        two.report(1)
        mine = front.finish(cell).text.strip()
        assert (remote.link.name, mine) == (other, two.uuids[0])
        lab.hosts[home].reachable = True
        one.report(1)
        lab.call("restart", client, kernel=remote.kernel_id)
        assert remote.link.name == other and front.run(VISIBLE).text.strip() == mine
        two.show({"gpus": [{"uuid": mine, "lost": True}, {"uuid": two.uuids[1], "processes": [BUSY]}]})
        lab.call("restart", client, kernel=remote.kernel_id)
        assert remote.link.name == home and front.run(VISIBLE).text.strip() == one.uuids[0]
        nothing_left(lab, **{home: [remote.kernel_id]})
        two.report(4)
        lab.hosts[home].unplug()
        wait_for(lambda: remote.link_state.value == "away", "the loss of the link")
        lab.call("restart", client, kernel=remote.kernel_id)
        assert remote.link.name == other, "its host is out of reach"


def test_vs_code_finds_its_kernel_on_another_host(lab: Lab) -> None:
    """Its launcher does not know the notebook, so a new kernel was started where GPUs are free."""
    startup = "__vsc_ipynb_file__ = '/home/me/a.ipynb'"
    crowd(lab, "gpu1")
    client = lab.client()
    first = lab.start("", client, parent=1)
    assert first.link.name == "gpu2"
    with Front(first.edge.connection) as front:
        front.run(startup, store_history=False)
        front.run("treasure = 42")
        lab.call("release", client, kernel=first.kernel_id)
    lab.hosts["gpu1"].gpus.report(4)
    lab.hosts["gpu2"].gpus.show({"gpus": []})
    again = lab.start("", parent=2)
    fresh = again.kernel_id
    assert again.link.name == "gpu1"
    with Front(again.edge.connection) as front:
        front.run(startup, store_history=False)
        assert "42" in str(front.run("treasure").outputs)
        assert (again.kernel_id, again.link.name) == (first.kernel_id, "gpu2") and fresh != first.kernel_id
    nothing_left(lab, gpu2=[first.kernel_id])
