"""Simulated time: events in one order, clocks and random numbers that a seed decides, and processes that can be killed.

Everything happens in `World.run`, one event after another. A process has an event loop of its own (the hub and `attach`
one that asyncio accepts, a keeper one of the agent), whose events are dropped once the process has been killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import heapq
import inspect
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import chain, count
from random import Random
from typing import Any

from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.kernel_messages.compose import PIECE
from jupyter_gpu_kernel.wire.runtime import Runtime

EPOCH = 3_000_000_000.0
"""What the wall clock shows at the beginning, in seconds since 1970: later than the boot of any machine."""
_FIRST_SOCKET = 1 << 30
_TURN = 0.0003
"""Seconds at most until a keeper's loop has done what is ready."""


class Failure(Exception):
    """The episode has shown a bug. `kind`: a word for what is wrong; shrinking keeps it."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Killed(BaseException):
    """The process that runs this event was killed within it."""


class Event:
    """A callback at a time. As asyncio's handles, it can be cancelled."""

    __slots__ = ("args", "callback", "dead", "process", "when")

    def __init__(
        self, process: Process, callback: Callable[..., Any], args: tuple[Any, ...], when: float
    ) -> None:
        self.process, self.callback, self.args, self.when = process, callback, args, when
        self.dead = False

    def cancel(self) -> None:
        """Do not call the callback."""
        self.dead = True

    def cancelled(self) -> bool:
        """Whether it will not be called."""
        return self.dead


class Process:
    """Something that can be killed, with all its events. `loop`: what asyncio uses while its events run.
    `after_event`: called after each of its events."""

    after_event: Callable[[], None] | None = None

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.alive = True
        self.loop: AsyncLoop | None = None

    def failed(self, error: BaseException) -> None:
        """An event has raised an exception."""
        raise Failure("exception", f"{self.name}: {type(error).__name__}: {error}") from error


class World:
    """The time, what is due, and the trace. `note` adds a line to the trace."""

    def __init__(self, seed: int, *, traced: bool = False) -> None:
        self.seed = seed
        self.now = 0.0
        self.steps = 0
        self.noted = 0
        self.trace: list[str] | None = [] if traced else None
        self.states: set[tuple[Any, ...]] = set()
        self.nature = Process(self, "world")
        self.executed: dict[str, list[Any]] = {}
        """What kernels have executed, by the names of requests."""
        self.aborted: dict[str, str] = {}
        """The names of the cells that kernels have aborted, each with that of the cell before it that has failed."""
        self.all_requests: dict[str, Any] = {}
        self.sends = 0
        """How many messages hubs have sent to clients."""
        self.kills = 0
        """How many hubs were killed."""
        self.torn_sends = 0
        """How many of them within a send: that message may come twice."""
        self.keeper_kills = 0
        """How many keepers were killed."""
        self.takes = 0
        """How often a kernel was taken by another computer."""
        self.reboots = 0
        """How often the node was rebooted."""
        self.shutdowns = 0
        """How many kernels were shut down by their users before the end."""
        self.largest = PIECE + 40_000
        """Bytes of the largest message, and of what may be under way beside a limit."""
        self.asked = 0
        """Bytes of all requests: a hub may answer those that wait at once."""
        self.caps = False
        """Whether output may be left out."""
        self.starts_later = False
        """Whether hubs answer requests before their kernel has been started, which gets these requests, too."""
        self.ids_collide = False
        """Whether requests of a KernelManager and of its client may have the same msg_id."""
        self.times: dict[str, list[float]] = {"hub killed": [], "log lost": [], "kernel gone": []}
        """When hubs were killed, logs were lost with their keepers, and kernels were lost, taken or shut down."""
        self.disk_was_full = False
        """Whether nothing could be written for a while: then a hub's successor finds no requests."""
        self.log_was_lost = False
        """Whether a keeper was killed that could not write its log: its successor does not know what was sent."""
        self.failure: Failure | None = None
        self.coroutines: list[Coroutine[Any, Any, Any]] = []
        """Those of all tasks."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._ready: deque[Event] = deque()
        self._heap: list[tuple[float, int, Event]] = []
        self._count = 0
        self._sockets: list[Any] = []
        self._pids = count((1 << 23) + 1)
        self._thread_random = self.random("threads")

    def random(self, name: str) -> Random:
        """Return a source of random numbers that nothing else uses: what is left out elsewhere does not change it."""
        return Random(f"{self.seed}/{name}")

    def fail(self, kind: str, text: str) -> None:
        """Something is wrong, which must not be caught by what is simulated."""
        self.failure = self.failure or Failure(kind, text)
        raise self.failure

    def note(self, *words: Any) -> None:
        """Add a line to the trace: it is a part of what two runs of a seed have in common."""
        line = f"{self.now:.6f} " + " ".join(map(str, words))
        self._hash.update(line.encode())
        self.noted += 1
        if self.trace is not None:
            self.trace.append(line)

    def absorb(self, data: bytes) -> None:
        """Let the hash depend on this, too."""
        self._hash.update(data)

    @property
    def digest(self) -> str:
        """The hash of the trace and of the number of events."""
        copy = self._hash.copy()
        copy.update(b"%d" % self.steps)
        return copy.hexdigest()

    def new_pid(self) -> int:
        """Return a process id that no process on any machine has had."""
        return next(self._pids)

    def register(self, socket: Any) -> int:
        """Return the number by which event loops name this socket."""
        self._sockets.append(socket)
        return _FIRST_SOCKET + len(self._sockets) - 1

    def socket(self, number: int) -> Any:
        """Return the socket with this number."""
        return self._sockets[number - _FIRST_SOCKET]

    def watched(self, number: int) -> None:
        """An event loop waits for this socket, or for another one that never is ready."""
        if number >= _FIRST_SOCKET:
            self.socket(number).check()

    def thread_delay(self) -> float:
        """Return the seconds that work in a thread takes."""
        return self._thread_random.uniform(0.001, 0.01)

    # ------------------------------------------------------------------------------------------ events

    def soon(self, process: Process, callback: Callable[..., Any], *args: Any) -> Event:
        """Call it in this moment, after what is ready now."""
        event = Event(process, callback, args, self.now)
        self._ready.append(event)
        return event

    def later(
        self, seconds: float, callback: Callable[..., Any], *args: Any, process: Process | None = None
    ) -> Event:
        """Call it after so many seconds."""
        event = Event(process or self.nature, callback, args, self.now + seconds if seconds > 0 else self.now)
        self._count += 1
        heapq.heappush(self._heap, (event.when, self._count, event))
        return event

    def run(self, until: float, most: int = 200_000) -> None:
        """Let everything happen until that time."""
        limit, loop = self.steps + most, None
        ready, heap, pop = self._ready, self._heap, heapq.heappop
        try:
            while True:
                if ready:
                    event = ready.popleft()
                elif heap and heap[0][0] <= until:
                    self.now, _, event = pop(heap)
                else:
                    break
                process = event.process
                if event.dead or not process.alive:
                    continue
                if process.loop is not loop:
                    loop = process.loop
                    asyncio._set_running_loop(loop)
                self.steps += 1
                try:
                    event.callback(*event.args)
                except (Killed, Exception) as error:
                    self._raised(error, process)
                if self.failure is not None:
                    raise self.failure
                if process.after_event is not None:
                    process.after_event()
                if self.steps > limit:
                    raise Failure("endless", f"more than {most} events")
        finally:
            asyncio._set_running_loop(None)
        self.now = max(self.now, until)

    def _raised(self, error: BaseException, process: Process) -> None:
        if isinstance(error, Failure):
            raise error
        if not isinstance(error, Killed):
            process.failed(error)

    def close(self) -> None:
        """Close the coroutines that have not begun when their process was killed: nobody will await them."""
        for one in self.coroutines:
            if inspect.getcoroutinestate(one) == inspect.CORO_CREATED:
                one.close()

    def pending(self) -> list[Event]:
        """Return what is still to happen."""
        events = chain(self._ready, (event for _, _, event in self._heap))
        return [event for event in events if not event.dead and event.process.alive]


class SimulatedRuntime(Runtime):
    """The clocks and random numbers of one machine. `jump`: seconds by which its wall clock is wrong."""

    def __init__(self, world: World, machine: str) -> None:
        super().__init__(world.random(machine))
        self.world = world
        self.jump = 0.0

    def monotonic(self) -> float:
        return self.world.now

    def time(self) -> float:
        return EPOCH + self.world.now + self.jump

    def sleep(self, seconds: float) -> None:
        raise Failure("blocking", f"something blocks for {seconds} s")


class AsyncLoop:
    """As much of an event loop of asyncio as the hub uses. Work for threads is done in the loop, a moment later."""

    def __init__(self, process: Process) -> None:
        self._process, self._world = process, process.world
        self._tasks: list[asyncio.Task[Any]] = []
        process.loop = self

    def time(self) -> float:
        return self._world.now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> Event:
        return self._world.soon(self._process, callback, *args)

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> Event:
        return self._world.later(delay, callback, *args, process=self._process)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> Event:
        return self.call_later(when - self._world.now, callback, *args)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def create_task(self, coroutine: Coroutine[Any, Any, Any], **_: Any) -> asyncio.Task[Any]:
        self._world.coroutines.append(coroutine)
        task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=self)  # type: ignore[arg-type]
        self._tasks.append(task)
        return task

    def run_in_executor(self, _: Any, work: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self.create_future()
        self.call_later(self._world.thread_delay(), self._work, future, work, args)
        return future

    def _work(self, future: asyncio.Future[Any], work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        try:
            result = work(*args)
        except Exception as error:
            if not future.done():
                future.set_exception(error)
        else:
            if not future.done():
                future.set_result(result)

    def end_tasks(self) -> None:
        """End the tasks of a process that does not exist any more, before the garbage collector does so: in what they
        do at their end they find this loop."""
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            for task in (one for one in self._tasks if not one.done()):
                with contextlib.suppress(RuntimeError):  # it waits for something at its end
                    task.get_coro().close()  # type: ignore[union-attr]
        finally:
            asyncio._set_running_loop(None)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._process.alive and "destroyed" not in context["message"]:
            error = context.get("exception")
            raise Failure("exception", f"{self._process.name}: {context['message']}: {error!r}") from error

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False


class KeeperLoop(Loop):
    """A keeper's event loop. Only simulated sockets become ready."""

    def __init__(self, process: Process, runtime: Any) -> None:
        self.runtime = runtime
        self.stopped = False
        self.thread_seconds: Callable[[], float] = lambda: 0.05
        self._process, self._world = process, process.world
        self._random = process.world.random(f"turns of {process.name} {process.world.steps}")
        self._sources: dict[int, tuple[Callable[[int], None], int]] = {}

    def watch(self, source: Any, callback: Callable[[int], None], events: int = 1) -> None:
        self._sources[source] = (callback, events)
        self._world.watched(source)

    def forget(self, source: Any) -> None:
        self._sources.pop(source, None)

    def ready(self, source: int, events: int) -> None:
        """A source is ready for these events."""
        callback, wanted = self._sources.get(source, (None, 0))
        if callback is not None and events & wanted:
            callback(events & wanted)

    def wants(self, source: int) -> int:
        """Return for which events of this source something waits."""
        return self._sources.get(source, (None, 0))[1]

    def later(self, seconds: float, callback: Callable[[], None]) -> Any:
        """Call it after so many seconds, or after what else is ready in this turn of the loop."""
        return self._world.later(seconds or self._random.uniform(0, _TURN), callback, process=self._process)

    def run_in_thread(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do the work now, as a thread would: its result comes later."""
        result = work()
        self._world.later(self.thread_seconds(), lambda: done(result), process=self._process)

    def run(self) -> None:
        raise Failure("blocking", "a keeper's loop runs by the world's events")

    def stop(self) -> None:
        self.stopped = True
