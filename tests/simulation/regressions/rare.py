"""Plans in which conditions meet that seeds rarely draw together: each shows a planted bug that few seeds find."""

from __future__ import annotations

from ..plan import Plan

PLANS: dict[str, Plan] = {}
