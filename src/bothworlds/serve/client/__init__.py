"""Clients of the service for programs in Python. They need the standard library only."""

from .client import AsyncClient, Client, ClientError, Page

__all__ = ["AsyncClient", "Client", "ClientError", "Page"]
