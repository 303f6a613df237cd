"""A Triton backend for the interpreter: there, active, and never asked to compile."""
