"""Which answers of the keyring stay there after a call: no host, no network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend

from jupyter_gpu_kernel.errors import AuthError, ConnectError, GpuKernelError, HubError, NotAnswered
from jupyter_gpu_kernel.hub.ssh import Secret
from jupyter_gpu_kernel.saved_answers import SERVICE, SavedAnswers, forget

PASSWORD = Secret("password", "alice@login")
PROGRAMS = Path(__file__).parent.parent / "programs"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeyringBackend]:
    monkeypatch.syspath_prepend(str(PROGRAMS))
    monkeypatch.setenv("KEYRING_FILE", str(tmp_path / "keyring.json"))
    from file_keyring import FileKeyring

    before = keyring.get_keyring()
    keyring.set_keyring(FileKeyring())
    yield keyring.get_keyring()
    keyring.set_keyring(before)
    del sys.modules["file_keyring"]


@pytest.mark.parametrize(
    ("error", "stays"),
    [
        (None, True),
        (AuthError("wrong password", hop="login"), False),
        (AuthError("wrong password", hop="gpu2"), True),
        (AuthError("it wants a code, too", hop="login", login=True), True),
        (NotAnswered("nobody answered", hop="login"), True),
        (ConnectError("no route to it", hop="login"), True),
        (HubError("the hub has ended"), True),
        (KeyboardInterrupt(), True),
    ],
)
def test_a_stored_answer_is_deleted_only_if_its_host_rejected_it(
    store: KeyringBackend, error: BaseException | None, stays: bool
) -> None:
    store.set_password(SERVICE, PASSWORD.of, "sesame")
    answers = SavedAnswers("gpu2")
    assert answers.stored("login", PASSWORD) == "sesame"
    answers.settle(error)
    assert (store.get_password(SERVICE, PASSWORD.of) == "sesame") is stays


def test_a_stored_answer_that_is_asked_for_again_was_rejected(store: KeyringBackend) -> None:
    store.set_password(SERVICE, PASSWORD.of, "stale")
    answers = SavedAnswers("gpu2")
    assert [answers.stored("login", PASSWORD) for _ in range(2)] == ["stale", None]
    assert store.get_password(SERVICE, PASSWORD.of) is None


@pytest.mark.parametrize(
    ("error", "is_stored"),
    [
        (None, True),
        (GpuKernelError("the node has no GPU", hop="gpu2"), True),
        (AuthError("wrong password", hop="login"), False),
        (ConnectError("no route to it", hop="gpu2"), False),
        (HubError("the hub has ended"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_a_new_answer_is_stored_only_after_its_host_accepted_it(
    store: KeyringBackend, error: BaseException | None, is_stored: bool
) -> None:
    answers = SavedAnswers("gpu2")
    answers.store_later(PASSWORD, "sesame")
    answers.settle(error)
    assert (store.get_password(SERVICE, PASSWORD.of) == "sesame") is is_stored
    assert forget("gpu2") == ([PASSWORD.of] if is_stored else [])
    assert store.get_password(SERVICE, PASSWORD.of) is None


def test_an_answer_that_was_wrong_or_has_no_account_is_not_stored(store: KeyringBackend) -> None:
    answers = SavedAnswers("gpu2")
    answers.store_later(PASSWORD, "a wrong word")
    answers.stored("login", PASSWORD)  # asked again
    answers.store_later(Secret("code"), "123456")
    answers.settle(None)
    assert forget("gpu2") == []
