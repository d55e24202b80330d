"""The service: rank, feedback, learn, over HTTP."""
