"""Real clients and real model servers around a gateway in its own process. Run with `make clients`."""
