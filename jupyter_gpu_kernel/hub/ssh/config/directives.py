"""What a connection by paramiko does with each directive of ssh_config(5).

A directive that restricts is either honoured, or only the system's ssh can follow it: then it is an error that names
it. docs/ssh-config.md has the same table, with the reasons. This module only compares texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

Values = Mapping[str, Sequence[str]]
"""The values of each directive for one machine, under its lower-case keyword."""


def first(values: Values, key: str, default: str = "") -> str:
    """Return the first value of a directive, or `default` if there is none."""
    return next(iter(values.get(key, ())), default)


def switched(values: Values, key: str, default: bool) -> bool:
    """Return a directive's yes or no; words that are neither mean more than yes, such as "host-bound"."""
    found = first(values, key).lower()
    return default if not found else found not in _NO


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ssh itself chooses the values that apply, and the other modules of this package follow them. A list of algorithms is
# followed if it permits all that paramiko offers; any other list needs ssh (algorithms.py).
HONOURED = _words("""
    BatchMode CanonicalDomains CanonicalizeFallbackLocal CanonicalizeHostname
    CanonicalizeMaxDots CanonicalizePermittedCNAMEs Ciphers ConnectTimeout
    GlobalKnownHostsFile Host HostKeyAlgorithms HostKeyAlias Hostname IdentitiesOnly IdentityFile
    IgnoreUnknown Include KexAlgorithms MACs Match Port ProxyJump PubkeyAcceptedAlgorithms RequiredRSASize
    StrictHostKeyChecking Tag User UserKnownHostsFile
    """)

# They restrict, or they change the way to the host: without ssh they would be ignored.
NEEDS_SSH = _words("""
    AddressFamily BindAddress BindInterface CheckHostIP IdentityAgent KbdInteractiveAuthentication KbdInteractiveDevices
    KnownHostsCommand NumberOfPasswordPrompts PasswordAuthentication PreferredAuthentications ProxyCommand
    ProxyUseFdpass PubkeyAuthentication RefuseConnection RekeyLimit RevokedHostKeys
    """)

# They permit more than paramiko does, and ssh can use it: a way to sign in, or a connection that is open already.
ONLY_SSH_USES = _words("""
    CASignatureAlgorithms CertificateFile ControlMaster ControlPath ControlPersist EnableSSHKeysign GSSAPIAuthentication
    GSSAPIClientIdentity GSSAPIDelegateCredentials GSSAPIKexAlgorithms GSSAPIKeyExchange GSSAPIRenewalForcesRekey
    GSSAPIServerIdentity GSSAPITrustDns HostbasedAcceptedAlgorithms HostbasedAuthentication
    PKCS11Provider SecurityKeyProvider
    """)

# About what we never do (forwarding, terminals, writing the user's files), or what changes no decision.
NO_EFFECT = _words("""
    AddKeysToAgent ChannelTimeout ClearAllForwardings Compression ConnectionAttempts DynamicForward
    EnableEscapeCommandline EscapeChar ExitOnForwardFailure FingerprintHash ForkAfterAuthentication ForwardAgent
    ForwardX11 ForwardX11Timeout ForwardX11Trusted GatewayPorts HashKnownHosts IPQoS LocalCommand LocalForward LogLevel
    LogVerbose NoHostAuthenticationForLocalhost ObscureKeystrokeTiming PermitLocalCommand PermitRemoteOpen
    RemoteCommand RemoteForward RequestTTY SendEnv
    ServerAliveCountMax ServerAliveInterval SessionType SetEnv StdinNull StreamLocalBindMask StreamLocalBindUnlink
    SyslogFacility TCPKeepAlive Tunnel TunnelDevice UpdateHostKeys UseKeychain VerifyHostKeyDNS
    VersionAddendum VisualHostKey WarnWeakCrypto XAuthLocation
    """)

# Earlier names, and those of distributions, as far as some version of `ssh -G` prints them.
EARLIER_NAMES = {
    "challengeresponseauthentication": "kbdinteractiveauthentication",
    "hostbasedkeytypes": "hostbasedacceptedalgorithms",
    "pubkeyacceptedkeytypes": "pubkeyacceptedalgorithms",
    "rsaminsize": "requiredrsasize",
}

_NAMES = {name.lower(): name for name in HONOURED | NEEDS_SSH | ONLY_SSH_USES | NO_EFFECT}
_ROUTE = frozenset(
    {"proxycommand", "proxyusefdpass"}
)  # a route may have jump hosts instead (`Hop.proxy_command`)
_OFF = ("", "none", "default none")
_NO = ("no", "false")


def is_known(key: str) -> bool:
    """Whether this lower-case keyword is in the table."""
    return key in _NAMES or key in EARLIER_NAMES


def _is_off(key: str, value: str) -> bool:
    """Whether a directive with this value restricts nothing. The value of RefuseConnection is any text, and a way to
    sign in is restricted by "no" and by "none"."""
    if key == "refuseconnection" or "authentication" in key:
        return False
    is_default = (key, value) == ("identityagent", "SSH_AUTH_SOCK")
    return is_default or value.lower() in _OFF or (key in _NAMES and value.lower() in _NO)


def unsupported(values: Values, defaults: Values) -> Iterator[str]:
    """Yield the directives in `values` that only the system's ssh can follow, as "Name value".

    A directive that is not in the table may restrict, so it is one of them, unless it has its default.
    """
    for key, found in values.items():
        if key in _ROUTE or (key in _NAMES and _NAMES[key] not in NEEDS_SSH):
            continue
        if list(found) != list(defaults.get(key, ())) and not _is_off(key, found[0]):
            yield f"{_NAMES.get(key, key)} {', '.join(found)}"
