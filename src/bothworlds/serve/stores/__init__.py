"""Stores: durable storage of the service in one SQLite file or in PostgreSQL."""
