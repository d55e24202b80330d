"""Clients of the service for Python programs; they need the standard library only."""

from .client import AsyncClient, Client, ClientError, Page

__all__ = ["AsyncClient", "Client", "ClientError", "Page"]
