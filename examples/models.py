"""The model that the examples ask: STROM_MODEL, at STROM_BASE_URL if that is set."""

import os

import strom

NAME = os.environ.get("STROM_MODEL", "ollama/qwen3:8b")
URL = os.environ.get("STROM_BASE_URL")


def model() -> strom.Model:
    return strom.Model(NAME, base_url=URL) if URL else strom.Model(NAME)


def async_model() -> strom.AsyncModel:
    return strom.AsyncModel(NAME, base_url=URL) if URL else strom.AsyncModel(NAME)
