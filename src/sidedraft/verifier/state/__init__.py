"""The verifier's patience as a pure state machine: numpy, `wire` and `settings` only.

Nothing here knows sockets, threads or tensors. Time is an argument, chance an injected generator, and what
is to be sent is handed out as data; so every path can be walked in a test.
"""
