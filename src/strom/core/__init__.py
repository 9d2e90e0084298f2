"""The vocabulary: pure data that every layer shares. Imports nothing of ours, does no I/O, reads no clock."""
