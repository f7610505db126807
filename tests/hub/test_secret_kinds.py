"""Which answers may be stored: those to questions that cannot mean anything but a password or a passphrase."""

from __future__ import annotations

import pytest

from jupyter_gpu_kernel.hub.ssh import Secret
from jupyter_gpu_kernel.hub.ssh.config.route import Hop

LOGIN = Hop("login", "ssh", "login.example.org", 2222, "alice")
ACCOUNT = "alice@login.example.org:2222"


@pytest.mark.parametrize(
    "words",
    [
        "Password:",
        "Password: ",
        "(alice@login) Password: ",
        "alice@login's password: ",
        "Password for alice: ",
    ],
)
def test_a_server_asks_for_its_password(words: str) -> None:
    assert Secret.of_server(LOGIN.account, words, False) == Secret("password", ACCOUNT)


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("Verification code: ", "code"),
        ("Duo two-factor login. Passcode or option (1-1): ", "code"),
        ("One-time password (OATH) for `alice': ", "code"),
        ("Password + OTP: ", "code"),
        ("Enter PIN: ", "pin"),
        ("New password: ", "text"),
        ("Current password: ", "text"),
        ("Retype new password: ", "text"),
        ("Password of your bank account: ", "text"),
        ("Enter passphrase for key '/home/alice/.ssh/id_ed25519': ", "text"),
        ("What is your mother's maiden name? ", "text"),
        ("", "text"),
    ],
)
def test_what_else_a_server_asks_for_is_never_stored(words: str, kind: str) -> None:
    secret = Secret.of_server(LOGIN.account, words, True)
    assert (secret.kind, secret.of, secret.again) == (kind, "", True)


def test_a_password_that_may_be_shown_is_none() -> None:
    assert Secret.of_server(LOGIN.account, "Password: ", False, echo=True).of == ""


def test_a_password_belongs_to_the_name_of_the_verified_host_key() -> None:
    aliased = Hop("login", "ssh", "10.0.0.5", 22, "alice", host_key_alias="cluster-a")
    assert aliased.account == "alice@cluster-a:22"
