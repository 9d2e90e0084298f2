"""How each protocol is asked, and what its refusals look like. `table` lists them."""
