"""What a killed hub's successor finds: counts and clients, also of front ends that were given another kernel."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_kernel.hub.delivered import Delivered


def test_a_successor_finds_counts_and_clients(tmp_path: Path) -> None:
    before = Delivered(tmp_path / "one")
    before.save([1, 2, 3])
    before.clients(0).add(b"first")
    before.clients(1).add(b"of another front end")
    before.close()
    after = Delivered(tmp_path / "one")
    assert after.counts == [1, 2, 3]
    assert (after.clients(0).known, after.clients(1).known) == ([b"first"], [b"of another front end"])
    after.forget()
    assert list(tmp_path.iterdir()) == []


def test_another_kernel_has_the_same_clients_and_nothing_was_passed_on(tmp_path: Path) -> None:
    """As when a notebook is given the kernel that it left."""
    before = Delivered(tmp_path / "one")
    before.save([1, 2, 3])
    clients = before.clients(0)
    clients.add(b"first")
    for kernel_id in ("two", "two"):  # or the same one anew
        before.follow(kernel_id)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["two", "two.0.clients"]
    clients.add(b"second")
    before.save([0, 0, 7])
    before.close()
    after = Delivered(tmp_path / "two")
    assert (after.counts, after.clients(0).known) == ([0, 0, 7], [b"first", b"second"])
    after.close()
