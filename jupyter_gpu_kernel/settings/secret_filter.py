"""Detect what looks like a secret in variables and shell lines, by its name or its form.

The filter catches oversights; it is not a security boundary, because a secret without a telling name or form passes. It
returns the kind of secret, and never the secret. It does not know which settings are checked.
"""

from __future__ import annotations

import re

_STRONG_NAME = re.compile(
    r"(PASSWORD|PASSWD|PASSPHRASE|API_?KEY|SECRETS?|CREDENTIALS?)(\d|_|$)"
    r"|(^|_)(SECRET|PRIVATE|ACCESS|AUTH|SIGNING|ENCRYPTION|LICENSE)_?KEYS?(\d|_|$)",
    re.IGNORECASE,
)
"""Names whose value is a secret, whatever it is."""
_NAME = re.compile(
    r"TOKEN\d*$|(^|_)PASS\d*$|\w_PWD$|(GH|GL|GITHUB|GITLAB|AZURE|DEVOPS)_PAT$|(^|_)KEYS?\d*$", re.IGNORECASE
)
"""Names that are also used for other values: FIRST_PASS=true, PAD_TOKEN=<pad>, SORT_KEY=name."""
_METADATA = re.compile(
    r"_(FILE|PATH|DIR|URL|HOST|NAME|ID|TYPE|POLICY|LENGTH|COUNT|MIN|MAX|TTL|STORE|MANAGER)S?$", re.IGNORECASE
)
"""Names of values about a secret, such as its path."""

_SETTING = re.compile(r"[-+]?[\d.]+|true|false|yes|no|on|off|none|null|auto|default", re.IGNORECASE)
_SPECIAL_TOKEN = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
"""A special token of a tokenizer."""
_REFERENCE = re.compile(r"[$`/~]|\.\.?/|file:|[^\s:]+\.(?:json|pem|key|crt|txt|ya?ml|toml|ini|cfg|env)$")
"""A reference to a secret: a variable, a path, a file."""
_HARMLESS_KEY = re.compile(r"[A-Za-z][A-Za-z_.-]*|.{0,15}")
"""A value of a name with KEY that is not a secret: a word, or a short value."""

_FORMS = {
    "a private key": r"-----BEGIN [A-Z ]*PRIVATE KEY",
    "a URL with a password": r"://[^\s/:@'\"]*:(?!\$)[^\s/@'\"]+@",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{16}|github_pat_\w{20})",
    "a GitLab token": r"\bglpat-[\w-]{16}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{16}",
    "an API key": r"(?<![\w-])(?:sk-(?=[\w-]*\d)[\w-]{16}|nvapi-[\w-]{20}|AIza[\w-]{30})",
    "an AWS access key": r"\b(?:AKIA|ASIA)[A-Z0-9]{12}",
    "a Slack token": r"\bxox[abeprs]-[\w-]{8}",
    "a PyPI or npm token": r"\b(?:pypi-AgE[\w-]{16}|npm_[A-Za-z0-9]{30})",
    "a signed token (JWT)": r"\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*",
}
_LITERAL = r"['\"]?(?![-$`/~'\"<]|\.\.?/|https?:)"
"""The start of a literal argument, not of a reference."""
_COMMANDS = {
    "a password for curl": rf"\bcurl\b[^|;&]*\s(?:-[a-zA-Z]*u|--(?:proxy-)?user)[\s=]*{_LITERAL}[^\s:]+:(?!\$)[^\s'\"]",
    "a key for wandb": rf"\bwandb\s+login\s+(?:-\S+\s+)*{_LITERAL}\S{{8}}",
    "a password for sshpass": rf"\bsshpass\s+-p\s*{_LITERAL}\S",
    "a password for docker": rf"\bdocker\s+login\b[^|;&]*\s-p\s*{_LITERAL}\S",
    "an HTTP authorization": r"\bauthorization:\s*(?:bearer|basic|token)\s+(?!\$)\S{6}",
    "a secret as an option": r"(?:^|\s)--(?:[a-z-]*-)?"
    r"(?:password|passwd|passphrase|token|api-?key|secret-key|client-secret)"
    rf"(?:=|\s+){_LITERAL}\S",
}
_VALUE_FORMS = {kind: re.compile(form) for kind, form in _FORMS.items()}
_LINE_FORMS = {kind: re.compile(form, re.IGNORECASE) for kind, form in _COMMANDS.items()}
_ASSIGNMENT = re.compile(
    r"(?:^|[\s;&|(])(?:setenv\s+([A-Za-z_]\w*)\s+|([A-Za-z_]\w*)=)(\"[^\"]*\"|'[^']*'|[^\s;&|)]*)"
)


def in_variable(name: str, value: str) -> str:
    """The kind of secret that NAME=VALUE seems to contain; "" if none."""
    if _has_secret_name(name, value):
        return "a secret"
    return _first_match(_VALUE_FORMS, value)


def in_line(line: str) -> str:
    """The kind of secret that a shell line seems to contain in an assignment (with the variable's name), a command or
    another word; "" if none."""
    for for_csh, for_sh, value in _ASSIGNMENT.findall(line):
        if kind := in_variable(for_csh or for_sh, value.strip("\"'")):
            return f"{kind} in {for_csh or for_sh}"
    return _first_match(_VALUE_FORMS, line) or _first_match(_LINE_FORMS, line)


def _has_secret_name(name: str, value: str) -> bool:
    if not value or _METADATA.search(name) or _REFERENCE.match(value) or _SPECIAL_TOKEN.fullmatch(value):
        return False
    if _STRONG_NAME.search(name):
        return not re.fullmatch(r"[01]|true|false|yes|no|none", value, re.IGNORECASE)
    if not _NAME.search(name) or _SETTING.fullmatch(value):
        return False
    return not re.search(r"KEYS?\d*$", name, re.IGNORECASE) or not _HARMLESS_KEY.fullmatch(value)


def _first_match(forms: dict[str, re.Pattern[str]], text: str) -> str:
    return next((kind for kind, form in forms.items() if form.search(text)), "")
