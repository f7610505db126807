"""Recognises what looks like a secret in variables and shell lines, by its name or by its form.

It is a net for oversights, and no wall: a value that says nothing about itself passes. What it finds is named by kind
and never repeated. Which settings are looked at, and what is said to the user, is not known here.
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
"""Names that also have other uses: FIRST_PASS=true, PAD_TOKEN=<pad>, SORT_KEY=name."""
_ABOUT_IT = re.compile(
    r"_(FILE|PATH|DIR|URL|HOST|NAME|ID|TYPE|POLICY|LENGTH|COUNT|MIN|MAX|TTL|STORE|MANAGER)S?$", re.IGNORECASE
)
"""Names that say something about a secret, such as where it is."""

_SETTING = re.compile(r"[-+]?[\d.]+|true|false|yes|no|on|off|none|null|auto|default", re.IGNORECASE)
_MARKER = re.compile(r"<[^<>]*>|\[[^\[\]]*\]")
"""What tokenizers call tokens."""
_ELSEWHERE = re.compile(r"[$`/~]|\.\.?/|file:|[^\s:]+\.(?:json|pem|key|crt|txt|ya?ml|toml|ini|cfg|env)$")
"""A value that refers to where the secret is."""
_SORT = re.compile(r"[A-Za-z][A-Za-z_.-]*|.{0,15}")
"""What a name with KEY may say without being a secret: a word, or something short."""

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
_GIVEN = r"['\"]?(?![-$`/~'\"<]|\.\.?/|https?:)"
"""What a command is given, unless it is read from elsewhere."""
_COMMANDS = {
    "a password for curl": rf"\bcurl\b[^|;&]*\s(?:-[a-zA-Z]*u|--(?:proxy-)?user)[\s=]*{_GIVEN}[^\s:]+:(?!\$)[^\s'\"]",
    "a key for wandb": rf"\bwandb\s+login\s+(?:-\S+\s+)*{_GIVEN}\S{{8}}",
    "a password for sshpass": rf"\bsshpass\s+-p\s*{_GIVEN}\S",
    "a password for docker": rf"\bdocker\s+login\b[^|;&]*\s-p\s*{_GIVEN}\S",
    "an HTTP authorization": r"\bauthorization:\s*(?:bearer|basic|token)\s+(?!\$)\S{6}",
    "a secret as an option": r"(?:^|\s)--(?:[a-z-]*-)?"
    r"(?:password|passwd|passphrase|token|api-?key|secret-key|client-secret)"
    rf"(?:=|\s+){_GIVEN}\S",
}
_IN_VALUES = {kind: re.compile(form) for kind, form in _FORMS.items()}
_IN_LINES = {kind: re.compile(form, re.IGNORECASE) for kind, form in _COMMANDS.items()}
_ASSIGNMENT = re.compile(
    r"(?:^|[\s;&|(])(?:setenv\s+([A-Za-z_]\w*)\s+|([A-Za-z_]\w*)=)(\"[^\"]*\"|'[^']*'|[^\s;&|)]*)"
)


def in_variable(name: str, value: str) -> str:
    """What is secret in NAME=VALUE: a kind that it looks like; "" if nothing is."""
    if _is_named_so(name, value):
        return "a secret"
    return _first(_IN_VALUES, value)


def in_line(line: str) -> str:
    """The same for a line of shell: in assignments (their names are told), commands and words."""
    for for_csh, for_sh, value in _ASSIGNMENT.findall(line):
        if kind := in_variable(for_csh or for_sh, value.strip("\"'")):
            return f"{kind} in {for_csh or for_sh}"
    return _first(_IN_VALUES, line) or _first(_IN_LINES, line)


def _is_named_so(name: str, value: str) -> bool:
    if not value or _ABOUT_IT.search(name) or _ELSEWHERE.match(value) or _MARKER.fullmatch(value):
        return False
    if _STRONG_NAME.search(name):
        return not re.fullmatch(r"[01]|true|false|yes|no|none", value, re.IGNORECASE)
    if not _NAME.search(name) or _SETTING.fullmatch(value):
        return False
    return not re.search(r"KEYS?\d*$", name, re.IGNORECASE) or not _SORT.fullmatch(value)


def _first(forms: dict[str, re.Pattern[str]], text: str) -> str:
    return next((kind for kind, form in forms.items() if form.search(text)), "")
