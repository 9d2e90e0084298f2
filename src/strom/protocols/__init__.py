"""Wire protocols, one folder each. `codec.py`: what each has to offer; `table.py`: which there are."""
