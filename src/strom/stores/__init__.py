"""What outlives a call: its record. Two kinds of store behind one interface (`records.py`), chosen by URL (`table.py`)."""
