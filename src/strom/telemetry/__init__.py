"""What an operator sees of a gateway: metrics and the access log, from the records of its calls."""
