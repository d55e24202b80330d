"""Clients that misbehave on purpose; each is bounded in bytes and steps, and talks to this machine only."""

from __future__ import annotations

import select
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

from .service_process import PATIENCE

HEAD = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"
REQUEST = HEAD + b"\r\n"
MOST_BYTES = 64 << 20
BLOCK = 1 << 16
STEPS, STEP_SECONDS = 1000, 0.02


def connect(address):
    """Return a connection to the service."""
    host, port = address.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE)


def respond(connection, request=REQUEST):
    """Send a request and return the response, truncated if the connection ended."""
    received = b""
    with suppress(ConnectionError):
        connection.sendall(request)
        while not complete(received):
            part = connection.recv(BLOCK)
            if not part:
                break
            received += part
    return received


def complete(received):
    head, found, body = received.partition(b"\r\n\r\n")
    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
    return bool(found) and len(body) >= int(length or 0)


def status(response):
    """Return the status of a response; 0 if there is none."""
    return int(response.split()[1]) if response.startswith(b"HTTP/1.1 ") else 0


def rest(connection):
    """Return all bytes until the service closes the connection; raises TimeoutError if it does not."""
    received = b""
    with suppress(ConnectionError):
        while part := connection.recv(BLOCK):
            received += part
    return received


def receive(connection, size):
    """Return so many bytes, or fewer at the end."""
    received = b""
    while len(received) < size and (part := connection.recv(size - len(received))):
        received += part
    return received


def send_endlessly(connection, start, block):
    """Send a start, then blocks until the service refuses; return how many bytes were sent, and the response."""
    sent = 0
    with suppress(ConnectionError):
        connection.sendall(start)
        while sent < MOST_BYTES and not select.select([connection], [], [], 0)[0]:
            connection.sendall(block)
            sent += len(block)
    assert sent < MOST_BYTES, "the service accepted everything"
    return sent, rest(connection)


def send_slowly(connection, start, byte=b"a"):
    """Send a start, then single bytes until the service responds or closes; return its response."""
    connection.sendall(start)
    for _ in range(STEPS):
        if select.select([connection], [], [], STEP_SECONDS)[0]:
            return rest(connection)
        with suppress(ConnectionError):
            connection.sendall(byte)
    raise AssertionError("the service still waits")


def flood(connection, requests):
    """Send pipelined requests, the last of which closes the connection, and return all responses."""
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(connection.sendall, requests)
        received = rest(connection)
        sending.result()
    return received


def ask(address, request=REQUEST):
    """Return the response to one request on a connection of its own."""
    with closing(connect(address)) as connection:
        return respond(connection, request)
