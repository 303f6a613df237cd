"""Why something cannot be measured."""

from __future__ import annotations


class BenchError(Exception):
    """One line for the user."""
