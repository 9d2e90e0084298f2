"""What processes and replicas have in common while calls run: limits, streams. In memory, on one machine, in Redis."""
