"""Where the service keeps what it must not lose: one SQLite file, or PostgreSQL."""
