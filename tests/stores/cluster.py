"""A PostgreSQL server of our own: in a temporary folder, on a socket, without the network."""

from __future__ import annotations

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

from kerchief.stores.postgres import PostgresStore

__all__ = ["Cluster", "missing"]


def _binaries() -> Path | None:
    folders = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    found = sorted(folders, key=lambda path: float(path.parts[-3]))
    named = shutil.which("initdb")
    return found[-1].parent if found else Path(named).resolve().parent if named else None


def missing() -> str | None:
    """Why there can be no server here; None if there can."""
    if _binaries() is None:
        return "PostgreSQL is not installed (on Debian: apt-get install postgresql)"
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is not installed"
    return None


class Cluster:
    """A server; databases are made one for each test."""

    def __init__(self) -> None:
        binaries = _binaries()
        assert binaries is not None
        self._binaries = binaries
        self._folder = Path(tempfile.mkdtemp(prefix="kerchief-pg-"))
        self._numbers = itertools.count()
        # The server refuses to run as root.
        self._user: pwd.struct_passwd | None = None
        if os.getuid() == 0:
            names = {one.pw_name: one for one in pwd.getpwall()}
            self._user = names.get("postgres", names["nobody"])
            os.chown(self._folder, self._user.pw_uid, self._user.pw_gid)
        words = ("--username=kerchief", "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8")
        self._run("initdb", *words)
        self.start()

    def start(self) -> None:
        # Processes are killed here, never the machine: then fsync is not what saves the data.
        settings = f"-k {self._folder} -c listen_addresses= -c fsync=off -c shared_buffers=16MB"
        self._run("pg_ctl", "-w", "-l", str(self._folder / "log"), "-o", settings, "start")

    def stop(self, mode: str) -> None:
        self._run("pg_ctl", "-w", "-m", mode, "stop")

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self._folder)

    def database(self) -> str:
        """The address of a new database."""
        import psycopg

        name = f"test{next(self._numbers)}"
        with psycopg.connect(self._url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self._url(name)

    def store(self) -> PostgresStore:
        return PostgresStore(self.database())

    def _url(self, database: str) -> str:
        return f"postgresql:///{database}?host={self._folder}&user=kerchief"

    def _run(self, program: str, *words: str) -> None:
        user = self._user
        done = subprocess.run(
            [str(self._binaries / program), "-D", str(self._folder / "data"), *words],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            user=user and user.pw_uid,
            group=user and user.pw_gid,
            extra_groups=[] if user else None,
        )
        assert done.returncode == 0, done.stdout
