"""The fixtures of HTTP: a service on the engine in memory, and clients of it."""

from tests.serve.http.conftest import call, engine, serving, store

__all__ = ["call", "engine", "serving", "store"]
