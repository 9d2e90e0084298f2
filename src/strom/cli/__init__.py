"""The command line. Modules import click and the standard library at their head, everything else where a command needs it,
so that `strom --help` answers at once."""
