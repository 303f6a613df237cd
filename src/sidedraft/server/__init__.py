"""The draft server: one process, an I/O thread, an engine thread and an HTTP end."""
