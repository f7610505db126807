"""Passwords and passphrases that the user has stored in the system keyring, through the optional package `keyring`.

An answer is stored only if the user wants that, and after the host has accepted it. A stored answer is tried once in a
call; if the host rejects it, it is deleted, and the user is asked. What is stored for a kernelspec is listed in the
keyring, too, so that it can be forgotten with it. No keyring, or one that fails, means that nothing is stored.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

from .errors import AuthError, ConnectError, GpuKernelError, HubError
from .hub.ssh import Secret

SERVICE = "jupyter-gpu-kernel"
_log = logging.getLogger(__name__)


class SavedAnswers:
    """The stored answers for the questions of one call. `name`: the kernelspec for which others may be stored; ""
    none. It blocks."""

    def __init__(self, name: str = "") -> None:
        self._name = name
        self._used: dict[str, str] = {}  # what each stored answer belongs to, and the hop that got it
        self._to_store: dict[str, str] = {}

    def can_store(self, secret: Secret) -> bool:
        """Whether the user can be offered to store this answer."""
        return bool(self._name and secret.of) and _keyring() is not None

    def stored(self, hop: str, secret: Secret) -> str | None:
        """Return the stored answer, if there is one that has not been rejected. The second question in one call for the
        same means that the first answer was rejected."""
        self._to_store.pop(secret.of, None)
        keyring = _keyring() if secret.of else None
        if keyring is None:
            return None
        if secret.of in self._used:
            _delete(keyring, secret.of)
            return None
        answer = _get(keyring, secret.of)
        if answer is not None:
            self._used[secret.of] = hop
        return answer

    def store_later(self, secret: Secret, answer: str) -> None:
        """Store this answer once it is known that the host has accepted it."""
        if self.can_store(secret):
            self._to_store[secret.of] = answer

    def settle(self, error: BaseException | None) -> None:
        """The call has ended, with this error or well: store what was accepted, and delete what was rejected."""
        accepted, self._to_store = self._to_store, {}
        if isinstance(error, AuthError) and not error.login:  # refused, and not for want of an answer
            self._delete_used(error.hop)
        if error is not None and not _is_after_sign_in(error):
            return
        for of, answer in accepted.items():
            self._store(of, answer)

    @contextlib.contextmanager
    def settled(self) -> Iterator[None]:
        """Settle at the end of the block."""
        try:
            yield
        except BaseException as error:
            self.settle(error)
            raise
        self.settle(None)

    def _delete_used(self, hop: str) -> None:
        keyring = _keyring()
        for of in [of for of, at in self._used.items() if at == hop]:
            _delete(keyring, of)

    def _store(self, of: str, answer: str) -> None:
        keyring = _keyring()
        if keyring is None:
            return
        with _failures_logged():
            keyring.set_password(SERVICE, of, answer)
            names = sorted({*_listed(keyring, self._name), of})
            keyring.set_password(SERVICE, _list_of(self._name), json.dumps(names))


def forget(name: str) -> list[str]:
    """Delete what is stored for the kernelspec `name`. Return what the answers belonged to."""
    keyring = _keyring()
    if keyring is None:
        return []
    stored = _listed(keyring, name)
    for of in stored:
        _delete(keyring, of)
    if stored:
        _delete(keyring, _list_of(name))
    return stored


def _is_after_sign_in(error: BaseException) -> bool:
    """Whether this error comes from a node that has let the user in."""
    return isinstance(error, GpuKernelError) and not isinstance(error, ConnectError | HubError)


# --- the keyring


def _keyring() -> Any | None:
    """Return the system's keyring; None if there is none that its package recommends."""
    with _failures_logged():
        try:
            from keyring.core import get_keyring, recommended
        except ImportError:
            return None
        keyring = get_keyring()
        first = next(iter(getattr(keyring, "backends", ())), keyring)  # of several
        return keyring if recommended(first) else None
    return None


def _get(keyring: Any, of: str) -> str | None:
    with _failures_logged():
        answer = keyring.get_password(SERVICE, of)
        return answer if isinstance(answer, str) else None
    return None


def _delete(keyring: Any, of: str) -> None:
    with _failures_logged():
        if keyring.get_password(SERVICE, of) is not None:
            keyring.delete_password(SERVICE, of)


def _listed(keyring: Any, name: str) -> list[str]:
    try:
        listed = json.loads(_get(keyring, _list_of(name)) or "[]")
    except ValueError:
        return []
    return [of for of in listed if isinstance(of, str)] if isinstance(listed, list) else []


def _list_of(name: str) -> str:
    return f"stored for the kernelspec {name}"


@contextlib.contextmanager
def _failures_logged() -> Iterator[None]:
    """Go on without a keyring that fails: each one has its own exceptions. Their texts are not logged."""
    try:
        yield
    except Exception as error:
        _log.warning("the system keyring failed: %s", type(error).__name__)
