"""Starts the viewer: the process that indexes, the port, the server; and ends all of it."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from coding_framework.errors import UsageError
from coding_framework.paths import cache_dir, require_writable
from coding_framework.viewer.library import Library

MORE_PORTS = 50


def serve(
    paths: Sequence[Path],
    *,
    host: str,
    port: int,
    token: str | None,
    folder: Path | None,
    code: bool,
    opens: bool,
) -> None:
    """Serves until Ctrl-C. Raises UsageError for an address that others reach, without a token."""
    import uvicorn

    from coding_framework.deployment.http import BOUNDS, LOCAL_HOSTS
    from coding_framework.viewer.app import make_app

    if token is None and host not in LOCAL_HOSTS:
        raise UsageError(
            f"--host {host} can be reached from other machines: give --token, or leave --host out "
            "and use an SSH tunnel"
        )
    indexes = _index_folder(folder)
    listening = _listen(host, port)
    number = listening.getsockname()[1]
    name = f"[{host}]" if ":" in host else host
    hosts = {host, socket.gethostname(), socket.getfqdn()}
    address = f"http://{name}:{number}/" + (f"?token={token}" if token else "")
    app = make_app(Library(paths, indexes), token=token, hosts=hosts)
    if port and number != port:
        print(f"port {port} is in use: port {number} is taken instead", file=sys.stderr)
    print(f"{address}  (Ctrl-C ends it)", flush=True)
    if opens:
        import webbrowser

        webbrowser.open(address)
    config = uvicorn.Config(
        app, log_level="warning", access_log=False,
        timeout_graceful_shutdown=1, lifespan="off", **BOUNDS,
    )  # fmt: skip
    with indexing(paths, indexes, code=code):
        uvicorn.Server(config).run(sockets=[listening])


def export(
    paths: Sequence[Path], target: Path, query: str, folder: Path | None, *, code: bool
) -> None:
    """Static pages of the runs. Raises UsageError where the folder has something in it."""
    from coding_framework.viewer.export import write_pages
    from coding_framework.viewer.indexer import Indexer
    from coding_framework.viewer.runs import find_runs

    runs = find_runs(paths)
    if not runs:
        raise UsageError(f"there is no run below {', '.join(map(str, paths))}: nothing to export")
    indexes = _index_folder(folder)
    indexer = Indexer(paths, indexes, code=code)
    try:
        indexer.look(runs)
    finally:
        indexer.close()
    written = write_pages(Library(paths, indexes), target, query)
    print(f"{written} pages: open {target / 'index.html'}")


@contextlib.contextmanager
def indexing(paths: Sequence[Path], folder: Path, *, code: bool = False) -> Iterator[None]:
    """The process that keeps the indexes, for as long as the block runs; it outlives no viewer."""
    command = [sys.executable, "-m", "coding_framework.viewer.indexer", "--index", str(folder)]
    command += ["--code"] if code else []
    child = subprocess.Popen(
        [*command, "--", *(str(path.resolve()) for path in paths)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is for the server, which ends it by closing its input
    )
    try:
        yield
    finally:
        assert child.stdin is not None
        child.stdin.close()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _index_folder(folder: Path | None) -> Path:
    made = (folder or cache_dir() / "viewer").absolute()
    require_writable(made)
    return made


def _listen(host: str, port: int) -> socket.socket:
    """A socket on the port, or on the next one that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    fault: OSError | None = None
    for number in [port] if port == 0 else range(port, min(port + MORE_PORTS, 65536)):
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(128)
        except OSError as e:
            made.close()
            fault = e
            continue
        return made
    raise UsageError(
        f"no port of {host} from {port} on can be had ({fault}): choose another --port"
    )
