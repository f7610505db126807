"""Routes that only the system's ssh can take: the real ssh connects along each of them, and so does this package.

`auto` must choose the transport `ssh` where one is needed, and paramiko where it is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Authority, revocation_list
from connecting import connect_route
from dialling import Owner
from kerberos import Realm
from pkcs11 import PIN, Token
from proxies import Proxy
from real_ssh import run_ssh
from sshd import TwoHops, make_key

from jupyter_gpu_kernel.errors import AuthError, ConnectError, HostKeyError, RouteError
from jupyter_gpu_kernel.hub.ssh import Asker
from jupyter_gpu_kernel.hub.ssh.config.reasons import has_ticket
from jupyter_gpu_kernel.hub.transport.connection import Connection

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoHops]:
    """Two running servers; each test restarts the login node as it needs it."""
    both = TwoHops(tmp_path_factory.mktemp("routes") / "two_hops")
    try:
        both.start()
        yield both
    finally:
        both.stop()


@pytest.fixture
def login(two: TwoHops) -> Iterator[TwoHops]:
    """The servers, of which the test may restart the login node."""
    authorized, known = two.login.authorized.read_text(), two.known_hosts.read_text()
    yield two
    two.login.authorized.write_text(authorized)
    two.known_hosts.write_text(known)
    two.login.process_environment = {}
    two.login.restart()


def config(two: TwoHops, file: Path, lines: str, without: str = "!") -> Path:
    """A configuration with these lines first, and without those that contain `without`."""
    rest = "".join(line for line in two.ssh_config.read_text().splitlines(True) if without not in line)
    file.write_text(f"Host login\n  {lines}\n{rest}")
    return file


def dial(
    two: TwoHops, file: Path, host: str = "login", ask: Asker | None = None, transport: str = "auto"
) -> Connection:
    """A connection as a kernelspec's."""
    return connect_route(
        [host],
        config=file,
        transport=transport,
        ask=ask,
        trust_file=two.trust_file,
    )


def arrives(two: TwoHops, file: Path, why: str, host: str = "login", ask: Asker | None = None) -> Connection:
    """The transport `ssh`, which `auto` has chosen for this reason, runs a command; closed."""
    connection = dial(two, file, host, ask)
    assert connection.transport.startswith("the system's ssh (") and why in connection.transport
    assert connection.run("cat", stdin=b"here").stdout == b"here"
    connection.close()
    return connection


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    """A running realm."""
    realm = Realm(tmp_path / "realm")
    try:
        realm.start()
        yield realm
    finally:
        realm.stop()


def test_kerberos(login: TwoHops, realm: Realm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    realm.admit(login.login)
    key = " ".join(login.login.known_hosts_line().split()[1:])
    login.known_hosts.write_text(f"[localhost]:{login.login.port} {key}\n")
    file = config(login, tmp_path / "config", "HostName localhost\n  GSSAPIAuthentication yes")
    ticket = realm.sign_in(tmp_path / "cache")
    assert run_ssh(file, "login", environment=ticket).connected
    login.login.wait_for_log("Accepted gssapi-with-mic")
    assert not run_ssh(file, "login", environment={**ticket, "KRB5CCNAME": "FILE:/nowhere"}).connected
    refused = run_ssh(file, "login", "-o", "GSSAPIAuthentication=no", environment=ticket)
    assert not refused.connected and "gssapi-with-mic" in refused.stderr
    for name, value in ticket.items():
        monkeypatch.setenv(name, value)
    arrives(login, file, "a Kerberos ticket")
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nowhere")  # then paramiko tries, and the server's words are shown
    assert not has_ticket()
    with pytest.raises(AuthError, match=r"accepted methods: .*gssapi-with-mic") as caught:
        dial(login, file)
    assert "kinit" in caught.value.remedy


def test_certificates_of_users(login: TwoHops, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    authority.admit_users(login.login)
    key = make_key(tmp_path / "key")
    certificate = authority.sign_user(key)
    assert run_ssh(config(login, tmp_path / "beside", f"IdentityFile {key}"), "login").connected
    login.login.wait_for_log("Accepted publickey")
    elsewhere = certificate.rename(tmp_path / "elsewhere")
    named = f"IdentityFile {key}\n  CertificateFile {elsewhere}"
    assert run_ssh(config(login, tmp_path / "named", named), "login").connected
    without = config(login, tmp_path / "without", f"IdentityFile {key}")
    assert not run_ssh(without, "login").connected
    for transport in ("auto", "ssh"):
        connection = dial(login, tmp_path / "named", transport=transport)
        assert connection.transport.startswith("the system's ssh (")
        assert connection.run("echo on").stdout == b"on\n"
        connection.close()
    with pytest.raises(AuthError):
        dial(login, without)


def test_certificates_of_hosts(login: TwoHops, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    authority.certify(login.login)
    file = config(login, tmp_path / "config", "StrictHostKeyChecking yes")
    login.known_hosts.write_text(authority.known_hosts_line("[127.0.0.1]:*"))
    assert run_ssh(file, "login").connected
    machine = arrives(login, file, "the certificate authority for hosts").host_keys
    login.known_hosts.write_text(login.login.known_hosts_line())
    by_paramiko = dial(login, file)
    assert by_paramiko.transport == "paramiko" and by_paramiko.host_keys == machine
    by_paramiko.close()
    login.known_hosts.write_text(Authority(tmp_path / "other").known_hosts_line())
    assert not run_ssh(file, "login").connected
    with pytest.raises(HostKeyError, match=r"its host key is not known.*has not signed this key"):
        dial(login, login.ssh_config)


def test_lists_of_revoked_keys(login: TwoHops, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    for revoked, connects in ((other, True), (login.login.host_key, False)):
        revocations = revocation_list(tmp_path / "krl", revoked)
        file = config(login, tmp_path / "config", f"RevokedHostKeys {revocations}")
        assert run_ssh(file, "login").connected is connects
        if connects:
            arrives(login, file, "RevokedHostKeys")
        else:
            with pytest.raises(HostKeyError, match="revoked"):
                dial(login, file)


def test_a_key_in_a_token(login: TwoHops, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token = Token(tmp_path / "token")
    login.login.authorized.write_text(token.public)
    file = config(login, tmp_path / "config", f"PKCS11Provider {token.library}", without="IdentityFile")
    run = run_ssh(file, "login", environment=token.environment, answers=[PIN], folder=tmp_path)
    assert run.connected, run.stderr
    assert len(run.asked) == 1 and "PIN" in run.asked[0]
    wrong = run_ssh(file, "login", environment=token.environment, answers=["9999"], folder=tmp_path)
    assert not wrong.connected
    monkeypatch.setenv("SOFTHSM2_CONF", token.environment["SOFTHSM2_CONF"])
    owner = Owner(PIN)
    assert arrives(login, file, "PKCS11Provider", ask=owner).interactive
    assert owner.questions == ["Enter PIN for 'practice': "]
    with pytest.raises(AuthError, match="need their PIN") as caught:
        dial(login, file)
    assert caught.value.login and "login NAME" in caught.value.remedy


@pytest.mark.parametrize(("kind", "program"), [("connect", "python"), ("5", "nc")])
def test_proxies(two: TwoHops, tmp_path: Path, kind: str, program: str) -> None:
    proxy = Proxy(kind)
    try:
        file = config(two, tmp_path / "config", f"ProxyCommand {proxy.command(program)}")
        run = run_ssh(file, "login")
        assert run.connected, run.stderr
        assert proxy.led == [f"127.0.0.1:{two.login.port}"]
        assert run_ssh(file, "work").connected  # behind a jump host that is behind the proxy
        steps = arrives(two, file, "ProxyCommand", "work").steps
        assert [hop for hop, step, _ in steps if step == "sign in"] == ["login", "work"]
        assert proxy.led == [f"127.0.0.1:{two.login.port}"] * 3
        with pytest.raises(RouteError, match=r"ProxyCommand .* is not supported by the transport paramiko"):
            dial(two, file, transport="paramiko")
    finally:
        proxy.close()


def test_a_proxy_that_refuses(two: TwoHops, tmp_path: Path) -> None:
    proxy = Proxy("connect")
    proxy.close()
    file = config(two, tmp_path / "config", f"ProxyCommand {proxy.command('python')}")
    assert not run_ssh(file, "login").connected
    with pytest.raises(ConnectError) as caught:
        dial(two, file)
    assert caught.value.hop == "login" and caught.value.cause.startswith("its ProxyCommand ended")
    assert f"through_proxy.py connect {proxy.address} 127.0.0.1 {two.login.port}”" in caught.value.remedy
