"""The engine-agnostic client of a draft server (layer 4).

`drafter.Drafter` is what an engine author uses (docs/verifier.md); `state` is its failure ladder, pure.
This file imports nothing, so that `sidedraft.verifier.state` stays free of torch and zmq.
"""
