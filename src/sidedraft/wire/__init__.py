"""The protocol: message types, their bytes, limits, errors, identity and versions (docs/protocol.md).

Everything is imported from its own module; neither torch nor zmq is needed.
"""
