"""Measures a running draft server over its own protocol (layer 5): what `sidedraft bench` shows.

It is a verifier without a target: rows and tokens are random, requests are private, so that nothing is shared
with other verifiers and nothing stays when it has ended.
"""
