"""The command line: a module a command, each with `NAME`, `HELP`, `add_arguments(parser)`, `run(args)`."""
