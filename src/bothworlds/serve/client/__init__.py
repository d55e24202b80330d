"""Clients of the service for Python programs; they need the standard library only."""

from .client import AsyncClient, Client, Page
from .http import ClientError

__all__ = ["AsyncClient", "Client", "ClientError", "Page"]
