"""Running a service: start, supervise, verify, migrate, demo."""
