"""One judge per protocol: frames and whole replies to readings. No codec is used, and the judges share no rules."""
