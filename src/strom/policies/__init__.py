"""What may happen to a call: who may make it, and where it may go. Each policy decides and says why; it never acts."""
