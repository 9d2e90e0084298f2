"""What an attacker tries, and what comes of it."""
