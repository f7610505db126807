"""The window on a simulated path: a rate, a delay, and as much buffer as is filled. The clock is simulated, too."""

from __future__ import annotations

from collections import deque

import pytest

from jupyter_gpu_kernel.wire.messages import Lane
from jupyter_gpu_kernel.wire.stream.frames import CHUNK
from jupyter_gpu_kernel.wire.stream.queues import OVERTAKING, Outbox
from jupyter_gpu_kernel.wire.stream.window import LEAST, MOST, START, Window

MB = 1_000_000


class Path:
    """Chunks leave one after the other, at a rate (bytes per second); each is acknowledged after the delay (s)."""

    def __init__(self, rate: float, delay: float) -> None:
        self.rate, self.delay = rate, delay
        self.now = 0.0
        self.window = Window(lambda: self.now)
        self.outbox = Outbox(self.window)
        self._free_at = 0.0
        self._acknowledgements: deque[tuple[float, int]] = deque()

    def transfer(self, size: int) -> float:
        """Send one message, and return how long that took."""
        since = self.now
        self.outbox.put(Lane.ORDERED, bytes(size))
        while self.outbox.size:
            self.step()
        return self.now - since

    def step(self) -> None:
        """Send what may be sent, and wait for the next acknowledgement."""
        self._send()
        self.now, number = self._acknowledgements.popleft()
        self.outbox.acknowledge(number)

    def wait(self, seconds: float) -> None:
        self.now += seconds

    @property
    def time_in_buffers(self) -> float:
        """How long a full window's last chunk waits for those before it."""
        return self.window.size / self.rate - self.delay

    def _send(self) -> None:
        for chunk in self.outbox.take():
            self._free_at = max(self._free_at, self.now) + len(chunk.payload) / self.rate
            self._acknowledgements.append((self._free_at + self.delay, chunk.number))


@pytest.mark.parametrize(
    ("rate", "delay"), [(200 * MB, 0.05), (100 * MB, 0.02), (20 * MB, 0.1), (300 * MB, 0.001)]
)
def test_a_path_is_filled_and_little_waits_in_its_buffers(rate: float, delay: float) -> None:
    path = Path(rate, delay)
    path.transfer(100 * MB)
    assert path.transfer(100 * MB) < 1.15 * (100 * MB / rate + delay)
    assert -0.1 * delay < path.time_in_buffers < 0.03


def test_a_transfer_reaches_the_rate_of_a_long_path_in_few_round_trips() -> None:
    path = Path(200 * MB, 0.05)
    assert path.transfer(50 * MB) < 50 * MB / path.rate + 9 * path.delay


def test_on_a_slow_path_a_control_message_waits_for_no_more_than_the_smallest_window() -> None:
    path = Path(MB, 0.03)
    path.transfer(5 * MB)
    assert path.window.size == LEAST < START


@pytest.mark.parametrize(("rate", "delay"), [(1e12, 1.0), (1.0, 1e-9)])
def test_it_has_bounds_on_any_path(rate: float, delay: float) -> None:
    path = Path(rate, delay)
    path.transfer(20 * CHUNK)
    path.transfer(100 * MB if rate > MB else 10 * CHUNK)
    assert LEAST <= path.window.size <= MOST


def test_a_delay_that_has_become_longer_is_measured_anew() -> None:
    """As when the laptop changes to another network and the connection survives, in a tunnel."""
    path = Path(10 * MB, 0.001)
    path.transfer(10 * MB)
    path.delay = 0.08
    path.transfer(220 * MB)
    assert path.transfer(20 * MB) < 1.2 * (20 * MB / path.rate + path.delay)


def test_a_long_transfer_does_not_take_its_own_queue_for_the_delay() -> None:
    path = Path(10 * MB, 0.06)
    path.transfer(350 * MB)
    assert path.time_in_buffers < 0.03


def test_a_new_stream_may_have_a_longer_path() -> None:
    """As when the laptop changes to another network and connects again."""
    path = Path(10 * MB, 0.001)
    path.transfer(10 * MB)
    path.delay = 0.08
    path.outbox.resume(path.outbox._number)
    assert path.transfer(20 * MB) < 1.2 * (20 * MB / path.rate + path.delay)


def test_now_and_then_one_round_with_the_smallest_window_measures_the_delay() -> None:
    """It shows the delay without a queue, and changes nothing else: the rate that it reached says nothing."""
    path = Path(40 * MB, 0.1)
    path.transfer(100 * MB)
    began, sizes = path.now, [path.window.size]
    path.outbox.put(Lane.ORDERED, bytes(1000 * MB))
    while path.outbox.size:
        path.step()
        if path.window.size != sizes[-1]:
            sizes.append(path.window.size)
    measured = [at for at, size in enumerate(sizes) if size == LEAST]
    assert len(measured) == 2
    for at in measured:
        assert 0.98 * sizes[at - 1] < sizes[at + 1] < 1.02 * sizes[at - 1]
    assert path.window._delay < path.delay + 1.1 * LEAST / path.rate
    assert path.now - began < 1000 * MB / path.rate + len(measured) * 4 * path.delay


def test_the_start_of_a_transfer_fills_buffers_for_no_more_than_one_round_trip() -> None:
    path = Path(50 * MB, 0.05)
    path.outbox.put(Lane.ORDERED, bytes(50 * MB))
    queues = []
    while path.outbox.size:
        path.step()
        queues.append(path.outbox._in_flight / path.rate - path.delay)
    assert max(queues) < path.delay + 0.03


def test_messages_with_pauses_between_them_shrink_it_little() -> None:
    """What is sent at once after a pause waits in buffers, but the path has not become slower."""
    path = Path(50 * MB, 0.05)
    path.transfer(50 * MB)
    grown = path.window.size
    for _ in range(50):
        path.transfer(int(grown) + CHUNK)
        path.wait(0.1)
    assert path.window.size > 0.3 * grown


@pytest.mark.parametrize("lane", [Lane.URGENT, Lane.PROMPT])
def test_what_overtakes_bulk_does_not_wait_for_the_window(lane: Lane) -> None:
    path = Path(50 * MB, 0.05)
    path.transfer(10 * MB)
    path.outbox.put(Lane.ORDERED, bytes(10 * MB))
    list(path.outbox.take())
    assert path.outbox._in_flight >= path.window.size
    path.outbox.put(lane, b"now")
    assert [chunk.payload for chunk in path.outbox.take()] == [b"now"]
    path.outbox.put(lane, bytes(10 * MB))
    assert OVERTAKING - CHUNK <= sum(len(chunk.payload) for chunk in path.outbox.take()) <= OVERTAKING


def test_small_messages_do_not_change_it_and_a_pause_does() -> None:
    path = Path(200 * MB, 0.05)
    path.transfer(100 * MB)
    grown = path.window.size
    assert grown > 5 * MB
    for _ in range(100):
        path.transfer(300)
    assert path.window.size == grown
    path.wait(60)
    path.transfer(300)
    assert path.window.size == START


def test_what_is_repeated_after_a_cut_is_not_measured() -> None:
    path = Path(200 * MB, 0.05)
    path.transfer(100 * MB)
    path.outbox.put(Lane.ORDERED, bytes(MB))
    list(path.outbox.take())
    path.wait(300)
    path.outbox.resume(0 if not path.outbox.size else path.outbox._sent[0][0].number - 1)
    assert path.window.size == START
