"""The reference verifier: speculative decoding of a transformers model with drafts from a remote server.

It is the page to copy from when integrating an engine; docs/integrations.md walks through it.
"""
