"""The proxies of deploy/ before replicas on loopback: their own files, with the ports of a test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2

__all__ = ["PROXIES", "free_ports", "nginx_files", "proxy"]

DEPLOY = Path(__file__).parents[2] / "deploy"
PROXIES = ("nginx", "caddy")
START_SECONDS = 10.0

_MAIN = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
{user}
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/conf.d/*.conf;
}}
"""
"""What a distribution's nginx.conf does for the files in conf.d, in the folder of a test."""


def free_ports(count: int) -> list[int]:
    """So many ports of loopback that nobody uses now."""
    held = [socket.socket() for _ in range(count)]
    try:
        for free in held:
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in held]
    finally:
        for free in held:
            free.close()


@contextmanager
def proxy(kind: str, ports: Sequence[int], folder: Path) -> Iterator[str]:
    """The base URL, ending in `/v1`, of a proxy before two replicas at those ports."""
    (port,) = free_ports(1)
    command = _nginx(ports, port, folder) if kind == "nginx" else _caddy(ports, port, folder)
    environment = {**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment)
    try:
        _wait(process, f"http://127.0.0.1:{port}/metrics", folder)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def nginx_files(replicas: Path, ports: Sequence[int], port: int, folder: Path) -> Path:
    """The file to start nginx with: over those of deploy/, with these ports instead of theirs.

    Names of Compose become the first port; `resolve` is left out, which nginx takes from version 1.27.3 on.
    """
    conf = folder / "conf.d"
    conf.mkdir()
    server = (DEPLOY / "nginx" / "antiphon.conf").read_text(encoding="utf-8")
    assert "listen 8080;" in server
    (conf / "antiphon.conf").write_text(server.replace("listen 8080;", f"listen 127.0.0.1:{port};"), encoding="utf-8")
    named = replicas.read_text(encoding="utf-8").replace("antiphon:8080 resolve", "127.0.0.1:8081")
    (conf / "replicas.conf").write_text(_with_ports(named, ports), encoding="utf-8")
    main = folder / "nginx.conf"
    user = "user root;" if os.geteuid() == 0 else ""
    main.write_text(_MAIN.format(folder=folder, user=user), encoding="utf-8")
    return main


def _nginx(ports: Sequence[int], port: int, folder: Path) -> list[str]:
    main = nginx_files(DEPLOY / "nginx" / "replicas.conf", ports, port, folder)
    return [program("nginx"), "-p", str(folder), "-c", str(main), "-e", str(folder / "error.log")]


def _caddy(ports: Sequence[int], port: int, folder: Path) -> list[str]:
    text = (DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8")
    assert text.count("\n:8080 {\n") == 1
    text = "{\n\tadmin off\n}\n" + text.replace("\n:8080 {\n", f"\nhttp://127.0.0.1:{port} {{\n")
    path = folder / "Caddyfile"
    path.write_text(_with_ports(text, ports), encoding="utf-8")
    return [program("caddy"), "run", "--config", str(path), "--adapter", "caddyfile"]


def _with_ports(text: str, ports: Sequence[int]) -> str:
    for there, here in zip((8081, 8082), ports, strict=True):
        text = text.replace(f"127.0.0.1:{there}", f"127.0.0.1:{here}")
    return text


def program(name: str) -> str:
    """The path of a proxy's program."""
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    found = shutil.which(name, path=path)
    assert found is not None, f"{name} is not installed"
    return found


def _wait(process: subprocess.Popen[bytes], url: str, folder: Path) -> None:
    """Until it answers: /metrics is what it answers by itself."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            if httpx2.get(url, timeout=1.0, trust_env=False).status_code == 404:
                return
        except httpx2.HTTPError:
            pass
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError("The proxy did not start:\n" + (folder / "output").read_text())
        threading.Event().wait(0.02)
