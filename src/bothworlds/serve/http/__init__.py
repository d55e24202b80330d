"""The HTTP API: connections, authentication, endpoints, OpenAPI."""
