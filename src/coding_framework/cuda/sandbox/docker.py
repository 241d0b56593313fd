"""Docker: one container for each job, started through the engine of this machine.

Guaranteed: no network, no capability, no new privileges, the engine's system call filter; a
read-only root; nothing writable but the job's own folder; limits on memory and processes of the
whole container beside those on each process; when the job ends, or the judge does, in whatever way,
every descendant dies and the container is removed. Not guaranteed: what a hole in the kernel or in
the engine allows; that the job sees no /proc (its own processes, and how this machine is mounted)
where the engine's filter forbids Landlock, as old ones do.

The image is empty: compilers and libraries are this machine's, mounted read-only, as in bubblewrap.
CUDA_RL_DOCKER_IMAGE names one that brings its own (docker/sandbox.Dockerfile); nothing of this
machine's system is mounted then. A container costs about 0.4 s, from its start to its removal.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import os
import select
import shutil
import socket
import struct
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import psutil

from coding_framework.cuda.sandbox.base import (
    LOCAL_FOLDERS,
    SYSTEM_FILES,
    SYSTEM_FOLDERS,
    Exit,
    Job,
    Limits,
    Mount,
    exit_code,
    limited,
)
from coding_framework.cuda.sandbox.landlock import confined, launcher
from coding_framework.cuda.toolchain.native_parts import build_once
from coding_framework.errors import CodingFrameworkError, SandboxError
from coding_framework.paths import alone, cache_dir, cannot_write

if TYPE_CHECKING:
    from docker import DockerClient

IMAGE_VARIABLE = "CUDA_RL_DOCKER_IMAGE"
DOCKERFILE = "docker/sandbox.Dockerfile"
_REPOSITORY = "coding-framework-sandbox"
_LABEL = "coding-framework.sandbox"
_START_S = 60.0
_STOP_S = 30.0
_CLOCK_STEP_S = 10.0
"""The start of a process is told by a clock that may be set meanwhile."""
_NOBODY = 65534
_SOURCE = Path(__file__).parent / "container_init.c"
_INIT, _CONFINE, _CONTROL = "/opt/init", "/opt/confine", "/run/judge"
_PREFIX = "cuda-rl-docker-"
"""Of our folders beside the system's temporary files; the owner's name follows."""
_numbers = itertools.count()


class DockerSandbox:
    """`Sandbox` by containers. Safe to share between threads."""

    name = "docker"

    def __init__(self, image: str | None = None) -> None:
        """image: one with compilers of its own; None: that of CUDA_RL_DOCKER_IMAGE, else an empty
        one with this machine's folders mounted."""
        self._named = image or os.environ.get(IMAGE_VARIABLE) or None

    def missing(self) -> str | None:
        """See Sandbox.missing. Runs a real job: the engine may be on another machine, or not see
        our files."""
        try:
            from docker.errors import DockerException, ImageNotFound
        except ModuleNotFoundError:
            return "its client is not installed: pip install 'coding-framework[docker]'"
        try:
            self._client.ping()
            _ = self._image
        except ImageNotFound:
            return (
                f"the image {self._named!r} of {IMAGE_VARIABLE} is not there: build it with "
                f"`docker build -t {self._named} -f {DOCKERFILE} docker`"
            )
        except DockerException as e:
            if "Permission" in str(e):
                return "you may not use the Docker engine: add yourself to its group `docker`"
            host = os.environ.get("DOCKER_HOST", "its usual socket")
            return f"no Docker engine answers at {host}: start one, or set DOCKER_HOST"
        try:
            with tempfile.TemporaryDirectory(prefix=f"{_PREFIX}{_owner()}-") as folder:
                return self._try(Path(folder))
        except (OSError, CodingFrameworkError) as e:
            return f"it does not work here: {e}"

    @cached_property
    def system(self) -> str:
        """See Sandbox.system."""
        return self._image if self._named else ""

    def path(self, mount: Mount) -> str:
        """See Sandbox.path: mounts are moved."""
        return mount.inside

    def start(self, job: Job, *, stdin: int | IO[bytes], output: int | IO[bytes]) -> DockerJob:
        """See Sandbox.start."""
        from docker.errors import DockerException

        with ExitStack() as opened:
            streams = [opened.enter_context(_descriptor(s)) for s in (stdin, output)]
            listener, folder = opened.enter_context(_control_socket())
            container = None
            try:
                container = self._client.containers.create(**self._container(job, folder))
                container.start()
                connection = _accept(listener, container)
                _require_visible(connection)
                socket.send_fds(connection, [b"!"], streams)
            except (DockerException, OSError, SandboxError) as e:
                if container is not None:
                    _remove(container)
                raise SandboxError(
                    f"a container could not be started ({_first_line(e)}): look at the Docker "
                    "engine's log, or choose another sandbox"
                ) from e
        return DockerJob(container, connection)

    # --- containers -------------------------------------------------------------------------------

    @cached_property
    def _client(self) -> DockerClient:
        import docker

        client = docker.from_env(timeout=120)
        with contextlib.suppress(docker.errors.DockerException):
            _remove_orphans(client)
        return client

    @cached_property
    def _image(self) -> str:
        """Id of the image to start from. Raises ImageNotFound."""
        if self._named is not None:
            return str(self._client.images.get(self._named).id)
        archive = _empty_image()
        tag = hashlib.sha256(archive).hexdigest()[:12]
        with alone(cache_dir() / "docker.lock"):
            if not self._client.images.list(f"{_REPOSITORY}:{tag}"):
                self._client.api.import_image_from_data(archive, repository=_REPOSITORY, tag=tag)
        return str(self._client.images.get(f"{_REPOSITORY}:{tag}").id)

    @cached_property
    def _init(self) -> Path:
        arguments = ["-O2", "-Wall", _SOURCE.name]
        sources = {_SOURCE.name: _SOURCE.read_text()}
        return build_once("container_init", sources, arguments, compiler="gcc")

    def _container(self, job: Job, control: Path) -> dict[str, Any]:
        """What the engine is asked for."""
        from docker.types import LogConfig

        uid, gid = _user()
        mounts = [*job.mounts, job.folder]
        readable = [mount.inside for mount in mounts if not mount.writable]
        writable = [mount.inside for mount in mounts if mount.writable]
        confine = f"{_CONFINE}/{launcher().name}"
        mounts += [Mount(self._init.parent, _INIT), Mount(launcher().parent, _CONFINE)]
        mounts += [Mount(control, _CONTROL)]
        hidden = {}
        if self._named is None:
            mounts += _system_mounts()
            hidden = dict.fromkeys(LOCAL_FOLDERS, "ro,size=4k,mode=755")
        for mount in mounts:
            if mount.writable:
                _hand_over(mount.host, uid, gid)
        limits = job.limits
        return {
            "image": self._image,
            "entrypoint": [f"{_INIT}/{self._init.name}", f"{_CONTROL}/socket"],
            "command": limited(limits, confined(confine, readable, writable, job.command)),
            "environment": {"PATH": os.defpath, **job.environment},
            "working_dir": job.folder.inside,
            "user": f"{uid}:{gid}",
            "hostname": "sandbox",
            "mounts": [_bind(m) for m in mounts] + _masked_files(),
            "tmpfs": hidden,
            "network_mode": "none",
            "ipc_mode": "none",
            "read_only": True,
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
            "pids_limit": limits.processes,
            "mem_limit": limits.memory_bytes,
            "memswap_limit": limits.memory_bytes,
            "log_config": LogConfig(type="none"),
            "labels": {_LABEL: _owner()},
            "auto_remove": True,
        }

    def _try(self, folder: Path) -> str | None:
        """Run one job as every other: None where it did what it should."""
        job = Job(
            ["/bin/sh", "-c", "prlimit --version && : > made"],
            (),
            Limits(cpu_s=10),
            Mount(folder, "/work", writable=True),
        )
        with tempfile.TemporaryFile() as output:
            end = self.start(job, stdin=subprocess.DEVNULL, output=output).wait(_START_S)
            output.seek(0)
            said = output.read(300).decode("utf-8", "replace").strip()
        if end.code == 0 and (folder / "made").exists():
            return None
        return f"a container could not run a shell (exit {end.code}): {said or 'it said nothing'}"


class DockerJob:
    """`Running` for one container. Its init says how the job ended; the kernel ends the rest."""

    def __init__(self, container: Any, connection: socket.socket) -> None:
        self._container = container
        self._connection = connection
        self._stopped = False

    def wait(self, wall_s: float) -> Exit:
        """See Running.wait. Memory and CPU time are as the container's init reads them."""
        poll = select.poll()
        poll.register(self._connection, select.POLLIN)
        timed_out = not poll.poll(wall_s * 1000)
        report = b"" if timed_out else self._connection.recv(96)
        self.stop()
        if not report:  # the init was killed with the container, from outside
            return Exit(code=-9, cpu_s=0.0, timed_out=timed_out)
        status, microseconds, killed_for_memory = map(int, report.split())
        code = exit_code(status)
        return Exit(code, microseconds / 1e6, out_of_memory=code != 0 and killed_for_memory > 0)

    def stop(self) -> None:
        """See Running.stop."""
        if not self._stopped:
            self._stopped = True
            self._connection.close()
            _remove(self._container)

    def processes(self) -> list[psutil.Process]:
        """See Running.processes: the init's descendants, as this machine numbers them."""
        return psutil.Process(_peer(self._connection)).children(recursive=True)


def _remove(container: Any) -> None:
    """Kill everything in the container and remove it; it may be gone, or going, already."""
    from docker.errors import DockerException

    deadline = time.monotonic() + _STOP_S
    while time.monotonic() < deadline:
        try:
            container.remove(force=True)
            return
        except DockerException as e:
            response = getattr(e, "response", None)
            if response is None or response.status_code == 404:
                return
            time.sleep(0.01)  # 409: the engine is removing it


def _remove_orphans(client: DockerClient) -> None:
    """Containers of judges that were killed before they could start them, and their folders."""
    labelled = {"label": _LABEL}
    for container in client.containers.list(all=True, filters=labelled, ignore_removed=True):
        if not _owner_lives(container.labels[_LABEL]):
            _remove(container)
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        if not _owner_lives(folder.name.removeprefix(_PREFIX)):
            shutil.rmtree(folder, ignore_errors=True)


def _owner() -> str:
    """Names this process among all that this machine ran: number and second of its start."""
    process = psutil.Process()
    return f"{process.pid}-{int(process.create_time())}"


def _owner_lives(name: str) -> bool:
    """Whether the process runs whose `_owner` a label or folder starts with."""
    pid, started, *_ = [*name.split("-"), ""]
    try:
        return abs(psutil.Process(int(pid)).create_time() - int(started)) < _CLOCK_STEP_S
    except (psutil.Error, ValueError):
        return False


# --- the control socket ---------------------------------------------------------------------------


@contextmanager
def _control_socket() -> Iterator[tuple[socket.socket, Path]]:
    """A listening socket in a folder of its own, which the container's init connects to. Both are
    gone when the block ends: nobody connects a second time."""
    folder = Path(tempfile.gettempdir()) / f"{_PREFIX}{_owner()}-{next(_numbers)}"
    try:
        folder.mkdir(mode=0o755)
    except OSError as e:
        raise SandboxError(cannot_write(folder, e)) from e
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(folder / "socket"))
            (folder / "socket").chmod(0o666)
            listener.listen(1)
            yield listener, folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _accept(listener: socket.socket, container: Any) -> socket.socket:
    """The init's connection. Raises SandboxError, or NotFound where the container has ended."""
    listener.settimeout(1.0)
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            return listener.accept()[0]
        except TimeoutError:
            container.reload()
            if container.status not in ("created", "running"):
                break
    raise SandboxError("its first process did not report: does the image run this machine's code?")


def _require_visible(connection: socket.socket) -> None:
    """Raises SandboxError where the container's processes have no number here: whether a job works
    or sleeps could not be told."""
    if _peer(connection) <= 0:
        raise SandboxError("its processes cannot be seen: run the judge where the engine runs")


def _peer(connection: socket.socket) -> int:
    """Process at the other end, as this machine numbers it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int(struct.unpack("3i", credentials)[0])


@contextmanager
def _descriptor(stream: int | IO[bytes]) -> Iterator[int]:
    """What subprocess.Popen takes, as a number."""
    if not isinstance(stream, int):
        yield stream.fileno()
    elif stream != subprocess.DEVNULL:
        yield stream
    else:
        handle = os.open(os.devnull, os.O_RDWR)
        try:
            yield handle
        finally:
            os.close(handle)


# --- the file system ------------------------------------------------------------------------------


def _user() -> tuple[int, int]:
    """Who the job runs as: nobody where we are root, else ourselves, so that files stay ours."""
    return (os.getuid(), os.getgid()) if os.getuid() else (_NOBODY, _NOBODY)


def _hand_over(folder: Path, uid: int, gid: int) -> None:
    """Let the job's user write below its folder."""
    if os.getuid() == 0:
        for path in (folder, *folder.rglob("*")):
            os.chown(path, uid, gid, follow_symlinks=False)


def _system_mounts() -> list[Mount]:
    """This machine's compilers and libraries."""
    paths = [Path("/usr"), *(p for p in map(Path, SYSTEM_FOLDERS) if not p.is_symlink())]
    paths += map(Path, SYSTEM_FILES)
    return [Mount(p, str(p)) for p in paths if p.exists()]


def _bind(mount: Mount) -> Any:
    from docker.types import Mount as Bind

    return Bind(mount.inside, str(mount.host), type="bind", read_only=not mount.writable)


def _masked_files() -> list[Any]:
    """What the engine copies from this machine into every container."""
    from docker.types import Mount as Bind

    files = ("/etc/resolv.conf", "/etc/hosts")
    return [Bind(file, os.devnull, type="bind", read_only=True) for file in files]


def _empty_image() -> bytes:
    """A root file system with mount points alone, and the links that this machine has."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name in ("usr", "dev", "proc", "sys", "etc", "opt", "run", "work"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        for path in map(Path, SYSTEM_FOLDERS):
            if path.is_symlink():
                link = tarfile.TarInfo(path.name)
                link.type, link.linkname = tarfile.SYMTYPE, os.readlink(path)
                tar.addfile(link)
    return archive.getvalue()


def _first_line(error: Exception) -> str:
    text = getattr(error, "explanation", None) or str(error)
    return (str(text).strip().splitlines() or [type(error).__name__])[0][:300]
