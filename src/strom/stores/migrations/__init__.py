"""The schema of a store, as the changes that led to it; the same scripts for SQLite and PostgreSQL. Run by `upgrade.py`."""
