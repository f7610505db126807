"""HELLO, with which both ends of an attachment begin: see `connection.py` for what follows from it."""

from __future__ import annotations

from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional

from . import PROTOCOL
from .fields import FieldError, items, number, numbers, text
from .messages import Lane


class VersionError(FieldError):
    """The other end speaks another version of the protocol: trying again does not help."""


_NAME = 64
_FEATURES = 64


class Hello(NamedTuple):
    """What one end says of itself and of the other. `serials` and `delivered` have one number per lane."""

    protocol: int
    session: str
    peer: str
    received: int
    serials: Optional[List[int]]
    delivered: Optional[List[int]]
    features: FrozenSet[str]

    @classmethod
    def read(cls, said: Dict[str, Any]) -> Hello:
        """Out of a frame's JSON; FieldError if a value is not as it should be, VersionError if the protocol is not."""
        protocol = number(said, "protocol")
        if protocol != PROTOCOL:
            raise VersionError(f"the other end speaks protocol {protocol}, we speak {PROTOCOL}")
        return cls(
            protocol=protocol,
            session=text(said, "session", most=_NAME, least=1),
            peer=text(said, "peer", "", most=_NAME),
            received=number(said, "received", 0),
            serials=numbers(said, "serials", len(Lane)),
            delivered=numbers(said, "delivered", len(Lane)),
            features=frozenset(
                text({"feature": one}, "feature", most=_NAME)
                for one in items(said, "features", _FEATURES, default=[])
            ),
        )

    def to_json(self) -> Dict[str, Any]:
        """As `read` takes it; what there is none of is left out."""
        said = {key: value for key, value in self._asdict().items() if value is not None}
        return dict(said, features=sorted(self.features))
