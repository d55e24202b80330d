"""The package offers its main classes, and imports them on first use."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bothworlds import serve


def test_the_clients_and_the_engine_are_offered():
    from bothworlds.serve.client.client import AsyncClient, Client
    from bothworlds.serve.engine.engine import Engine

    assert (serve.Client, serve.AsyncClient, serve.Engine) == (Client, AsyncClient, Engine)
    assert {"AsyncClient", "Client", "Engine"} <= set(dir(serve))
    with pytest.raises(AttributeError, match="has no attribute 'Server'"):
        serve.Server  # noqa: B018


@pytest.mark.slow
def test_a_client_does_not_import_the_engine():
    program = "import sys; from bothworlds.serve import Client; print('bothworlds.serve.engine' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"
