"""Sidedraft: the draft model of speculative decoding in a process and on a device of its own."""

__version__ = "0.1.0"
