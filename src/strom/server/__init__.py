"""Endpoints on the transport: which path is which call, and the small answers that are no model calls."""
