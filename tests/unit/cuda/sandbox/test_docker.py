"""The Docker sandbox against a real engine: what a container can reach, its limits, its end."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path

import docker
import pytest
from docker.errors import NotFound

from coding_framework.cuda.sandbox import Exit, Job, Limits, Mount, Sandbox, choose_sandbox
from coding_framework.cuda.sandbox.docker import DockerSandbox
from coding_framework.errors import MissingToolError

pytestmark = pytest.mark.unit

LIMITS = Limits(cpu_s=10)
LABEL = "coding-framework.sandbox"


def run(sandbox: Sandbox, folder: Path, script: str, limits: Limits = LIMITS) -> tuple[Exit, str]:
    job = Job(["/bin/bash", "-c", script], (), limits, Mount(folder, "/work", writable=True))
    with tempfile.TemporaryFile() as output:
        end = sandbox.start(job, stdin=subprocess.DEVNULL, output=output).wait(60)
        output.seek(0)
        return end, output.read().decode()


def containers(host: str) -> list[str]:
    listed = docker.DockerClient(host).containers.list(
        all=True, filters={"label": LABEL}, ignore_removed=True
    )
    return [str(container.id) for container in listed]


def test_a_container_has_no_privilege_and_nothing_to_write_on(
    docker_sandbox: DockerSandbox, docker_host: str, tmp_path: Path
) -> None:
    script = """
id -u
for path in / /usr /usr/local /opt /opt/init /run /run/judge /dev /etc; do
  (: > $path/made) 2>/dev/null && echo "wrote in $path"
done
for path in /proc/1/environ /proc/self/mounts /sys/kernel /dev/zero /etc/hosts; do
  (read -r -n 1 line < $path) 2>/dev/null && echo "read $path"
done
(echo x > /proc/sysrq-trigger) 2>/dev/null && echo sysrq
kill -9 1 2>/dev/null; kill -TERM 1 2>/dev/null
chown 0 /work 2>/dev/null && echo chown
mknod /work/device c 1 5 2>/dev/null && echo mknod
unshare --user true 2>/dev/null && echo unshare
: > /work/allowed && echo end
"""
    end, said = run(docker_sandbox, tmp_path, script)
    assert end.code == 0
    who, *rest = said.split("\n")
    assert int(who) != 0
    assert rest == ["end", ""]
    assert (tmp_path / "allowed").exists()
    assert containers(docker_host) == []


def test_processes_of_a_container_are_limited(
    docker_sandbox: DockerSandbox, tmp_path: Path
) -> None:
    script = """
sleep 2 & clock=$!
(for i in {1..12}; do sleep 100 & echo $i; done) &
wait $clock
"""
    _, said = run(docker_sandbox, tmp_path, script, Limits(processes=8))
    assert "Resource temporarily unavailable" in said
    assert "8" not in said.split()


def test_memory_is_limited_for_all_processes_together(
    docker_sandbox: DockerSandbox, tmp_path: Path
) -> None:
    # all hold theirs at once, however slowly a loaded machine fills them; a killed one ends it.
    # None meets the limit of its own: bash may hold what it read twice, while it moves it
    fill = "for i in {1..6}; do (x=$(head -c 12500000 < <(yes)); sleep 60) & done"
    script = f"{fill}; wait -n; kill $(jobs -p); exit 3"
    filler = "x=$(yes | head -c 60000000); echo ${#x}"
    end, said = run(docker_sandbox, tmp_path, filler, Limits(memory_bytes=40 << 20))
    assert end.code != 0
    assert "60000000" not in said
    end, said = run(docker_sandbox, tmp_path, script, Limits(memory_bytes=48 << 20))
    assert end.out_of_memory, (end, said)


def owner_that_is_gone() -> str:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    return f"{gone.pid}-1"


def left_by(owner: str, sandbox: DockerSandbox, client: docker.DockerClient) -> str:
    """Id of a container that was made for this judge and never started."""
    labels = {LABEL: owner}
    made = client.api.create_container(sandbox._image, ["/none"], labels=labels)
    return str(made["Id"])


def test_a_container_that_its_judge_could_not_start_is_removed_by_the_next_judge(
    docker_sandbox: DockerSandbox, docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = owner_that_is_gone()
    left = left_by(owner, docker_sandbox, docker.DockerClient(docker_host))
    folder = Path(tempfile.gettempdir()) / f"cuda-rl-docker-{owner}-0"
    folder.mkdir()
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    assert DockerSandbox().missing() is None
    assert left not in containers(docker_host)
    assert not folder.exists()


def test_what_goes_while_orphans_are_looked_for_does_not_end_the_search(
    docker_sandbox: DockerSandbox, docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = docker.DockerClient(docker_host)
    owner = owner_that_is_gone()
    left, another = (left_by(owner, docker_sandbox, client) for _ in range(2))
    inspect = docker.APIClient.inspect_container

    def inspect_late(api: docker.APIClient, container: str) -> object:
        if container == another:
            with suppress(NotFound):
                client.api.remove_container(another)
        return inspect(api, container)

    monkeypatch.setattr(docker.APIClient, "inspect_container", inspect_late)
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    assert DockerSandbox().missing() is None
    assert not {left, another} & set(containers(docker_host))


def test_an_image_may_bring_its_own_system(
    docker_sandbox: DockerSandbox,
    docker_host: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = docker.DockerClient(docker_host)
    client.api.import_image_from_data(_small_system(), repository="small-system", tag="1")
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    monkeypatch.setenv("CUDA_RL_DOCKER_IMAGE", "small-system:1")
    sandbox = DockerSandbox()
    assert sandbox.missing() is None
    assert sandbox.system != docker_sandbox.system == ""
    end, said = run(sandbox, tmp_path, "echo /usr/bin/*; echo /usr/*")
    assert end.code == 0
    assert set(said.splitlines()[0].split()) == {"/usr/bin/bash", "/usr/bin/prlimit", "/usr/bin/sh"}
    client.images.remove("small-system:1")


def test_an_image_that_is_not_there_says_how_to_build_it(
    docker_host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", docker_host)
    monkeypatch.setenv("CUDA_RL_DOCKER_IMAGE", "no-such-image")
    reason = DockerSandbox().missing()
    assert reason is not None
    assert "docker build -t no-such-image" in reason


def test_docker_asked_for_without_an_engine_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    choose_sandbox.cache_clear()
    with pytest.raises(MissingToolError, match=r"no Docker engine answers at .*set DOCKER_HOST"):
        choose_sandbox("docker")


def _small_system() -> bytes:
    """A root file system with a shell, prlimit, and the libraries that they load."""
    tools = [Path("/usr/bin/bash"), Path("/usr/bin/sh"), Path("/usr/bin/prlimit")]
    files = {str(tool): tool for tool in tools}
    for tool in tools:
        listing = subprocess.run(["ldd", tool], capture_output=True, text=True, check=True).stdout
        for word in listing.split():
            if word.startswith("/"):
                files[word] = Path(word)
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        parents = {str(p).lstrip("/") for file in files for p in Path(file).parents} - {""}
        for name in sorted({"dev", "etc", "opt", "proc", "run", "sys", "work", *parents}):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(folder)
        link = tarfile.TarInfo("bin")
        link.type, link.linkname = tarfile.SYMTYPE, "usr/bin"
        tar.addfile(link)
        for inside, path in files.items():
            tar.add(path.resolve(), arcname=inside.lstrip("/"))
    return archive.getvalue()
