"""Tests of strom; the folders mirror src/strom."""
