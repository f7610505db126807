"""Coroutines as tests, which pytest-jupyter runs; here only, as it brings an event loop to every test."""

from __future__ import annotations

from pytest_jupyter.jupyter_core import pytest_pycollect_makeitem, pytest_pyfunc_call

__all__ = ["pytest_pycollect_makeitem", "pytest_pyfunc_call"]
