"""All operations of the hub; and those of the commands, which ask nodes.

An operation is a method `op_<name>(call)`, which returns the JSON result.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from typing import Any

from ... import __version__
from ...errors import AgentError, GpuKernelError, HubError
from ...wire import PROTOCOL
from ...wire.runtime import Runtime
from ..kernel.core.life import LinkState
from ..kernel.kernel_state import times_of
from ..kernel.remote_kernel import RemoteKernel
from ..kernels import Kernels
from ..node.check.check import check, probe
from ..node.node import Node
from ..node.nodes import KernelRows, NodeReply, NodeRequest, Nodes, conflict, distinct, is_gone, not_found
from ..node.shared_connection import Connect
from ..rpc import Call
from ..slurm.operations import check_slurm, cluster_rows, probe_slurm, with_clusters
from ..slurm.scheduler import Schedulers
from .environments import EnvironmentOperations
from .front_ends import FrontEndOperations
from .rows import code_rows, end_rows, gpu_rows, left_out_row, pending_story, process_rows, rows_of

LOGIN_KEEPS = 12 * 3600.0
"""Seconds for which a connection is kept open after `login`, also without a kernel."""


class Operations:
    """All operations: `await operation(call)`."""

    def __init__(self, runtime: Runtime, connect: Connect, log: logging.Logger) -> None:
        self._nodes = Nodes(runtime, connect, log)
        self._schedulers = Schedulers(runtime, self._nodes, log)
        self._kernels = Kernels(runtime, self._nodes, self._schedulers, log)
        self._jobs = self._kernels.jobs
        self._others = (
            FrontEndOperations(runtime, self._nodes, self._kernels),
            EnvironmentOperations(runtime, self._nodes),
        )

    @property
    def in_use(self) -> bool:
        """Whether a front end has a kernel here, one is being ended, or the user signed in for kernels to come."""
        return self._kernels.in_use or self._nodes.in_use

    async def operation(self, call: Call) -> Any:
        """Run the operation that the call names."""
        name = "op_" + call.op
        method = next((getattr(one, name) for one in (self, *self._others) if hasattr(one, name)), None)
        if method is None:
            raise HubError(
                f"this hub has no operation {call.op!r}", remedy="Restart the hub: stop all front ends."
            )
        try:
            return await method(call)
        except GpuKernelError as error:
            error.fill_in("NAME", str(call.arguments.get("name") or ""))
            raise

    async def close(self) -> None:
        """Close everything; keepers live on."""
        await self._kernels.close()
        self._schedulers.close()
        await self._nodes.hang_up(unused_only=False)

    # -------------------------------------------------------------------------- the hub and its nodes

    async def op_hello(self, call: Call) -> dict[str, Any]:
        """Return {"protocol", "version", "pid"}."""
        return {"protocol": PROTOCOL, "version": __version__, "pid": os.getpid()}

    async def op_login(self, call: Call) -> dict[str, Any]:
        """Open the connection, or those to all hosts, asking the user for secrets. They stay open for kernels to come.

        Of several hosts some may fail: their errors are returned.
        """
        nodes, errors = [], list[GpuKernelError]()
        for settings in call.settings.each_host():  # one after another, as each may ask
            node = self._nodes.of(settings)
            node.add_name(str(call.arguments.get("name") or ""))
            try:
                await node.connected(call)
            except GpuKernelError as error:
                errors.append(error)
                continue
            node.keep_open(LOGIN_KEEPS)
            nodes.append(node.name)
        if not nodes:
            raise errors[0]
        return {"node": ", ".join(nodes), "errors": [error.to_json() for error in errors]}

    async def op_nodes(self, call: Call) -> list[dict[str, Any]]:
        """Return the known nodes without asking them: [{node, names, state, connected, problem}].

        With `specs`: those to which these lead, each machine once, and their names.
        """
        if call.arguments.get("specs") is None:
            return self._nodes.describe()
        return self._nodes.describe_specs(call.specs)

    async def op_hang_up(self, call: Call) -> dict[str, Any]:
        """Close every connection that no kernel uses."""
        await self._nodes.hang_up(unused_only=True)
        return {"ok": True}

    async def op_probe(self, call: Call) -> dict[str, Any]:
        """Connect to the node, find a Python with ipykernel, and read the state of the GPUs; or of Slurm."""
        settings = call.settings
        if settings.slurm:
            return await probe_slurm(self._schedulers.of(settings), self._nodes.of(settings), settings, call)
        return await probe(self._nodes, settings, call)

    async def op_check(self, call: Call) -> list[dict[str, Any]]:
        """Connect step by step, and return the time of each step, with a remedy where one fails."""
        hosts = call.settings.each_host()
        if hosts[0].slurm:
            gpu = call.arguments.get("gpu") is True
            steps = partial(check_slurm, self._schedulers, call, gpu, self._jobs.routes(hosts[0]))
            return await check(self._nodes, hosts[0], call, more=steps)
        rows = await asyncio.gather(*(check(self._nodes, one, call) for one in hosts))
        return [row for each in rows for row in each]

    async def op_gpus(self, call: Call) -> list[dict[str, Any]]:
        """Return every GPU of every node, those of the user's jobs included, once; and a row for each login node."""
        in_jobs = [spec for spec in call.specs if spec.settings.slurm]
        direct = [spec for spec in call.specs if not spec.settings.slurm]
        request = NodeRequest("gpus", timeout=60)
        replies, job_replies, logins = await asyncio.gather(
            self._nodes.ask_each(call, request, direct),
            self._jobs.ask_each(call, request, in_jobs),
            cluster_rows(self._nodes, self._schedulers, in_jobs, call),
        )
        job_rows, rows = gpu_rows(job_replies, replies)
        return rows + with_clusters(job_rows, logins)

    async def op_history(self, call: Call) -> list[dict[str, Any]]:
        """Return which GPUs the user's kernels had in the last `seconds`: a row for each GPU and each time."""
        seconds = int(call.arguments["seconds"])
        request = NodeRequest("history", 60, lambda node: {"seconds": seconds})
        answers = await self._jobs.ask_each(call, request)
        found = rows_of(answers, "history", lambda row: (row["kernel"], row["uuid"], row["from"]))
        return found + [left_out_row(one) for one in distinct(answers) if one.answer.get("left_out")]

    async def op_ps(self, call: Call) -> list[dict[str, Any]]:
        """Return the user's kernels on all nodes.

        If a node cannot be reached, return those of its kernels that front ends of this hub have, in the state "away".
        """
        rows, seen = list[dict[str, Any]](), KernelRows(self._nodes.started_on)
        replies = await self._jobs.ask_each(call, NodeRequest("list"))
        replies.sort(key=lambda reply: reply.error is not None)  # a list is newer than an away row
        for reply in replies:
            rows += self._kernel_rows(reply, seen)
        pending = self._kernels.pending_rows()
        rows = [row for row in rows if row.get("id") not in pending] + list(pending.values())
        return await self._jobs.with_jobs(rows, call) + seen.errors

    async def op_stories(self, call: Call) -> list[dict[str, Any]]:
        """Return a row {"id", "hop"} for each kernel of which `logs` tells, also those that have ended, if its id
        begins with `kernel`."""
        start = str(call.arguments["kernel"])
        answers = await self._jobs.ask_each(call, NodeRequest("stories", more=lambda node: {"kernel": start}))
        pending = [
            {"id": one, "hop": row["hop"]}
            for one, row in self._kernels.pending_rows().items()
            if one.startswith(start)
        ]
        return rows_of(answers, "kernels", lambda row: row["id"]) + await self._jobs.stories(start) + pending

    async def op_logs(self, call: Call) -> list[dict[str, Any]]:
        """Return a kernel's story from the node that has it, or from all that report it, if this hub does not know."""
        kernel_id = str(call.arguments["kernel"])
        specs = self._nodes.specs_for(kernel_id, call)
        request = NodeRequest("story", more=lambda node: {"kernel": kernel_id})
        answers = await self._jobs.ask_each(call, request, specs)
        stories = distinct(reply for reply in answers if reply.error is None)
        of_job = await self._jobs.story(kernel_id)
        printed = await self._jobs.output(kernel_id, call)
        pending = self._kernels.pending(kernel_id)
        printed += pending_story(pending) if pending is not None else []
        if not stories and (of_job or pending is not None):
            return of_job + printed
        if not stories:
            raise not_found(
                kernel_id, answers, "A node loses the records of its kernels when it is rebooted."
            )
        rows = [dict(entry, hop=one.node.name) for one in stories for entry in one.answer["story"]]
        rows = sorted([*of_job, *rows], key=lambda row: row["time"] or 0) if of_job else rows
        rows += printed
        if len(stories) > 1 and pending is None:
            nodes = [one.node for one in stories]
            rows.append({"node": nodes[0].name, "error": conflict(nodes, [kernel_id]).to_json()})
        return rows

    async def op_stop(self, call: Call) -> dict[str, Any]:
        """Stop a kernel for good, on every node that reports it. Return once nothing of it is left.

        A kernel whose job waits, or with `kill` whose job runs: cancel that job, or kill all of its processes. A job
        that other kernels need goes on, except with `kill`.
        """
        kernel_id = str(call.arguments["kernel"])
        call.progress("", f"stopping {kernel_id}")
        kill = call.arguments.get("kill") is True
        cancelled = await self._jobs.cancel(kernel_id, call, running=kill, kill=kill)
        if self._kernels.stop_pending(kernel_id) or cancelled:
            return {"ok": True}
        specs = self._nodes.specs_for(kernel_id, call)
        answers = await self._jobs.ask_each(call, NodeRequest("list"), specs)
        having = [one for one in answers if one.lists(kernel_id)]
        if not having and await self._jobs.cancel(kernel_id, call, running=True):
            return {"ok": True}
        if not having:
            raise not_found(kernel_id, answers)
        done = await asyncio.gather(*(self._stop(one.node, kernel_id, call) for one in distinct(having)))
        failed = [error for error in done if error is not None]
        if failed and not (None in done and all(is_gone(error) for error in failed)):
            raise failed[0]
        return {"ok": True}

    async def op_priority(self, call: Call) -> dict[str, Any]:
        """Change the priority of a kernel among the user's kernels that wait. Return {"node", "priority", "place"}."""
        priority = call.arguments["priority"]
        pending = self._kernels.pending(str(call.arguments["kernel"]))
        if pending is not None and pending.starter is not None:
            await pending.starter.set_priority(pending, int(priority))
            return {"node": pending.link.name, "priority": priority, "place": pending.status.get("place")}
        reply = await self._ask_keeper("priority", call, priority=priority)
        return {**reply.answer, "node": reply.node.name}

    async def op_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """Return what kernels that no longer exist left, on all nodes: the rows of processes ("pid"), and of pinned
        code ("folder")."""
        answers = await self._jobs.ask_each(call, NodeRequest("leftovers"))
        return [*process_rows(answers, "leftovers"), *code_rows(answers)]

    async def op_end_leftovers(self, call: Call) -> list[dict[str, Any]]:
        """End the processes, and remove the unchanged code, in the rows `leftovers`.

        Then ask the nodes again: return the rows of ended processes, an error for each that still exists, and the rows
        of code.
        """
        requested = call.arguments["leftovers"]

        def of(node: Node) -> dict[str, Any]:
            rows = [row for row in requested if row["node"] == node.name]
            code = [row for row in rows if "folder" in row]
            return {"leftovers": [row for row in rows if "pid" in row], "code": code}

        answers = await self._jobs.ask_each(call, NodeRequest("end_leftovers", more=of))
        return [*end_rows(requested, answers, await self.op_leftovers(call)), *code_rows(answers)]

    async def op_interrupt(self, call: Call) -> dict[str, Any]:
        """Interrupt what the kernel runs, or its wait. Return {"node", "link"}; "away": as soon as the link is up."""
        remote = self._attached(call)
        if remote is None:
            return {"node": (await self._ask_keeper("interrupt", call)).node.name, "link": LinkState.UP.value}
        remote.command("interrupt")
        return {"node": remote.link.name, "link": remote.link_state.value}

    async def op_restart_kernel(self, call: Call) -> dict[str, Any]:
        """Start a new process in place of the kernel's, with the same GPUs. The result is that of
        `interrupt`."""
        remote = self._attached(call)
        if remote is None:
            return {"node": (await self._ask_keeper("restart", call)).node.name, "link": LinkState.UP.value}
        await self._kernels.restart(remote)
        return {"node": remote.link.name, "link": remote.link_state.value}

    # -------------------------------------------------------------------------------------- helpers

    def _attached(self, call: Call) -> RemoteKernel | None:
        """Return the kernel if front ends here have it; None if it is detached, or another computer has it."""
        remote = self._kernels.by_id(str(call.arguments["kernel"]))
        return None if remote is None or remote.link_state is LinkState.TAKEN else remote

    async def _ask_keeper(self, do: str, call: Call, **more: Any) -> NodeReply:
        """Send a request to the kernel's keeper; return its reply, from the node that has the kernel."""
        kernel_id = str(call.arguments["kernel"])
        request = NodeRequest(do, more=lambda node: {"kernel": kernel_id, **more})
        specs = self._nodes.specs_for(kernel_id, call)
        answers = await self._jobs.ask_each(call, request, specs)
        for reply in answers:
            if reply.error is None:
                return reply
        raise not_found(kernel_id, answers)

    async def _stop(self, node: Node, kernel_id: str, call: Call) -> GpuKernelError | None:
        """Stop the kernel on one node. Return the error, or None."""
        try:
            why = "jupyter gpu-kernel stop"
            stopped = await node.request(node.python, call, "stop", kernel=kernel_id, why=why)
        except GpuKernelError as error:
            return error
        if stopped["ok"]:
            return None
        cause = f"kernel {kernel_id} was stopped, but some of its processes still run"
        remedy = f"They may hang in the driver or a file system: see “jupyter gpu-kernel logs {kernel_id}”."
        return AgentError(cause, hop=node.name, remedy=remedy)

    def _kernel_rows(self, reply: NodeReply, seen: KernelRows) -> list[dict[str, Any]]:
        """Return the rows of `ps` for the kernels of one node that are not `seen` yet, and for the node's error."""
        node = reply.node
        if reply.error is not None:
            away = [row for one, row in self._kernels.away(node) if seen.add_away(one, row["id"])]
            return [*away, reply.error_row]
        return [self._with_local_state(node, one) for one in reply.kernels if seen.add(node, one["id"])]

    def _with_local_state(self, node: Node, state: dict[str, Any]) -> dict[str, Any]:
        known = {key: value for key, value in state.items() if key not in ("owner", "by", "usage")}
        attached = self._kernels.attached(node, state["id"])
        elsewhere = self._kernels.attached_from(state)
        shown = "detached" if state["state"] == "idle" and not attached and not elsewhere else state["state"]
        where = {"attached": attached, "attached_from": elsewhere, "hop": node.name}
        return {**known, **times_of(state, node.round_trip), **where, "state": shown}
