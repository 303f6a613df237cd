"""Moves messages made of frames between a verifier and a draft server (layer 2; knows bytes only).

`base` is the contract, `zmq` the real thing over ipc and tcp, `fake` its twin in one process and in virtual
time.
"""
