"""The registry's folder: what is stored, what is given out, and what is not."""

from __future__ import annotations

import multiprocessing
import os
import random
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from coding_framework.cli import main
from coding_framework.data.registry import find_task
from coding_framework.errors import UsageError
from coding_framework.registry.database import ConflictError
from coding_framework.registry.digests import former_task_id, task_id
from coding_framework.registry.files import DamagedError
from coding_framework.registry.kernels import KernelRegistry
from coding_framework.registry.receipts import ReceiptError, SigningKey, new_key
from coding_framework.registry.records import RegisteredKernel
from coding_framework.store.databases import StorageError
from support.registered import (
    SOURCE,
    add_kernel,
    made_templates,
    registry_in,
    signed_receipt,
)

pytestmark = pytest.mark.unit

Filled = tuple[KernelRegistry, SigningKey, RegisteredKernel]


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    registry, key = registry_in(tmp_path)
    return registry, key, add_kernel(registry, key)


def test_a_stored_kernel_comes_back_with_all_that_belongs_to_it(filled: Filled) -> None:
    registry, _, kernel = filled
    (found,) = registry.snapshot()
    assert found == kernel
    assert found.status == "verified"
    assert registry.source(found) == SOURCE
    assert registry.task(found) == find_task("relu")
    assert [t.shape_key for t in found.templates] == [found.receipts[0].shapes[0].key]
    assert [r.obstacle for r in found.refusals] == ["read_back"]
    assert registry.code(found.templates[0].code[0]).startswith(b"\x7fELF")
    assert registry.damage() == []


@pytest.mark.parametrize(
    "changed",
    [{"naive_kernel": "// slow\n"}, {"atomic_order": True}, {"scalar_positions": (0,)}],
    ids=["baseline", "order", "scalars"],
)
def test_a_task_that_is_judged_otherwise_is_another_task(
    filled: Filled, changed: dict[str, Any]
) -> None:
    registry, key, kernel = filled
    other = find_task("relu").model_copy(update=changed)
    signed = signed_receipt(key, other)
    with pytest.raises(ReceiptError, match="another task"):
        registry.add(SOURCE, find_task("relu"), signed, made_templates(other))
    registry.add(SOURCE, other, signed, made_templates(other))
    assert registry.task(kernel) == find_task("relu")
    assert len(registry.snapshot()) == 2


def test_what_else_is_said_of_a_stored_task_replaces_nothing(filled: Filled) -> None:
    registry, key, kernel = filled
    other = find_task("relu").model_copy(update={"description": "mine", "licence": "none"})
    registry.add(SOURCE, other, signed_receipt(key, other), made_templates(other))
    assert registry.task(kernel) == find_task("relu")


def test_two_names_of_one_task_keep_theirs(filled: Filled) -> None:
    registry, key, kernel = filled
    other = find_task("relu").model_copy(update={"name": "mine"})
    code = "// another\n"
    signed = signed_receipt(key, other, code)
    second = registry.add(code, other, signed, made_templates(other, code))
    assert [registry.task(k).name for k in (kernel, second)] == ["relu", "mine"]
    assert registry.damage() == []


def test_a_kernel_under_its_tasks_former_id_is_judged_anew_and_keeps_its_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, key = registry_in(tmp_path)
    for module in ("kernels", "receipts"):
        monkeypatch.setattr(f"coding_framework.registry.{module}.task_id", former_task_id)
    monkeypatch.setattr("support.registered.task_id", former_task_id)
    monkeypatch.setattr("coding_framework.registry.kernels.former_task_id", lambda task: "")
    old = registry.move(add_kernel(registry, key), "active", "used")
    monkeypatch.undo()
    assert registry.task(old) == find_task("relu")
    assert registry.damage() == []
    signed = registry.signed(old)[0]
    with pytest.raises(ReceiptError, match="judge the kernel again"):
        registry.add(SOURCE, find_task("relu"), signed, made_templates(find_task("relu")))
    new = registry.succeed(old, add_kernel(registry, key))
    assert (new.status, new.task) == ("active", task_id(find_task("relu")))
    assert [k.task for k in registry.snapshot()] == [new.task]


def test_adding_it_again_changes_nothing(filled: Filled) -> None:
    registry, key, kernel = filled
    registry.move(kernel, "canary", "tried")
    assert add_kernel(registry, key).status == "canary"
    assert len(registry.snapshot()) == 1


def _add_many(folder: Path, key_folder: Path, start: object) -> None:
    from coding_framework.registry.receipts import load_key

    start.wait()  # type: ignore[attr-defined]
    with KernelRegistry(folder) as registry:
        for number in range(4):
            add_kernel(registry, load_key(key_folder, "judge"), f"// kernel {number}\n")


def test_two_processes_add_the_same_kernels(tmp_path: Path) -> None:
    registry, _ = registry_in(tmp_path)
    context = multiprocessing.get_context("fork")
    start = context.Barrier(2)
    arguments = (registry.folder, tmp_path / "judge", start)
    both = [context.Process(target=_add_many, args=arguments) for _ in range(2)]
    for process in both:
        process.start()
    for process in both:
        process.join()
    assert [process.exitcode for process in both] == [0, 0]
    assert len(registry.snapshot()) == 4
    assert registry.damage() == []


# --- what is not given out ------------------------------------------------------------------------


def _files(folder: Path) -> list[Path]:
    kinds = ("objects", "templates", "cubins", "tasks")
    return sorted(p for kind in kinds for p in (folder / kind).rglob("*") if p.is_file())


def test_a_flipped_bit_in_any_file_is_found(filled: Filled) -> None:
    registry, _, kernel = filled
    files = _files(registry.folder)
    assert len(files) == 5
    rng = random.Random(1)
    for path in files:
        whole = path.read_bytes()
        for _ in range(20):
            data = bytearray(whole)
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            assert registry.damage() or _harmless(registry, kernel, path), path
            for given in registry.snapshot():
                assert set(given.templates) <= set(kernel.templates)
        path.write_bytes(whole)
    assert registry.damage() == []


def _harmless(registry: KernelRegistry, kernel: RegisteredKernel, path: Path) -> bool:
    """A task's file also holds a description, which no digest covers."""
    if path.parent.parent.name != "tasks":
        return False
    return registry.task(kernel).reference == find_task("relu").reference


def test_flipped_bits_in_the_database_give_no_other_kernel(filled: Filled) -> None:
    registry, _, kernel = filled
    registry.close()
    path = registry.folder / "registry.sqlite"
    whole, rng = path.read_bytes(), random.Random(2)
    outcomes = set()
    for _ in range(150):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        try:
            with KernelRegistry(registry.folder, read_only=True) as other:
                found = other.snapshot()
        except (StorageError, DamagedError):
            outcomes.add("refused")
            continue
        assert len(found) <= 1
        for given in found:
            assert given.receipts == kernel.receipts
            assert given.templates == kernel.templates
        outcomes.add("whole" if found else "left out")
    assert outcomes >= {"whole", "left out"}


def test_a_missing_file_leaves_its_template_out_and_is_told(filled: Filled) -> None:
    registry, _, kernel = filled
    told: list[str] = []
    (path,) = (registry.folder / "templates").rglob("*.json")
    path.unlink()
    with KernelRegistry(registry.folder, tell=told.append) as other:
        (found,) = other.snapshot()
    assert found.templates == ()
    assert "cannot be read" in told[0]
    next((registry.folder / "cubins").rglob("*.ptx")).unlink()
    with pytest.raises(DamagedError, match="add the kernel again"):
        registry.code(kernel.templates[0].code[1])


def test_a_receipt_of_another_task_glued_to_a_kernel_does_not_count(tmp_path: Path) -> None:
    registry, key = registry_in(tmp_path)
    relu, other = find_task("relu"), find_task("sigmoid")
    signed = signed_receipt(key, other)
    with pytest.raises(ReceiptError, match="another task"):
        registry.add(SOURCE, relu, signed, made_templates(other))
    glued = {**signed, "task": signed_receipt(key, relu)["task"], "op": "relu"}
    with pytest.raises(ReceiptError, match="signature"):
        registry.add(SOURCE, relu, glued, made_templates(relu))
    assert registry.snapshot() == ()


def test_a_receipt_put_into_another_entry_by_hand_does_not_count(filled: Filled) -> None:
    registry, key, _ = filled
    other = add_kernel(registry, key, "// another kernel\n")
    with sqlite3.connect(registry.folder / "registry.sqlite") as db:
        db.execute("DELETE FROM receipt WHERE kernel=?", (other.kernel,))
        db.execute("UPDATE receipt SET kernel=?", (other.kernel,))
    told: list[str] = []
    with KernelRegistry(registry.folder, tell=told.append) as looking:
        assert looking.snapshot() == ()
    assert "about another kernel" in told[0]


def test_templates_and_code_that_the_receipt_does_not_name_are_refused(tmp_path: Path) -> None:
    registry, key = registry_in(tmp_path)
    task = find_task("relu")
    signed, made = signed_receipt(key, task), made_templates(task)
    template = made.templates[0].model_copy(update={"deterministic": False})
    with pytest.raises(ReceiptError, match="does not name"):
        registry.add(SOURCE, task, signed, made.model_copy(update={"templates": (template,)}))
    with pytest.raises(ReceiptError, match="device code"):
        registry.add(SOURCE, task, signed, made.model_copy(update={"code": {}}))
    with pytest.raises(ReceiptError, match="another source"):
        registry.add("// else\n", task, signed, made)
    assert registry.snapshot() == ()


def test_only_trusted_keys_count(filled: Filled, tmp_path: Path) -> None:
    registry, _, _ = filled
    stranger = new_key(tmp_path / "stranger", "judge")
    told: list[str] = []
    with KernelRegistry(registry.folder, keys=tmp_path / "stranger", tell=told.append) as other:
        assert other.snapshot() == ()
        assert "signature does not hold" in told[0]
        with pytest.raises(ReceiptError, match="signature"):
            KernelRegistry(registry.folder).add(
                SOURCE,
                find_task("relu"),
                signed_receipt(stranger, find_task("relu")),
                made_templates(find_task("relu")),
            )


def test_two_functions_of_one_name_are_refused(filled: Filled) -> None:
    registry, key, _ = filled
    other = find_task("sigmoid").model_copy(update={"name": "relu"})
    with pytest.raises(UsageError, match="another function"):
        registry.add(SOURCE, other, signed_receipt(key, other), made_templates(other))


# --- statuses -------------------------------------------------------------------------------------


def test_a_kernel_goes_from_verified_to_active_and_back_only_by_a_new_verdict(
    filled: Filled,
) -> None:
    registry, key, kernel = filled
    kernel = registry.move(kernel, "canary", "a try")
    kernel = registry.move(kernel, "active", "it is faster")
    kernel = registry.move(kernel, "quarantined", "a mismatch")
    with pytest.raises(UsageError, match="only `kernel reverify` moves it"):
        registry.move(kernel, "active", "no")
    assert add_kernel(registry, key, driver="581").status == "verified"
    changes = [(h.before, h.after) for h in registry.history(kernel)]
    assert changes == [
        ("verified", "canary"),
        ("canary", "active"),
        ("active", "quarantined"),
        ("quarantined", "verified"),
    ]


def test_of_two_who_move_a_kernel_one_wins(filled: Filled) -> None:
    registry, _, kernel = filled
    registry.move(kernel, "canary", "first")
    with pytest.raises(ConflictError, match="no longer verified"):
        registry.move(kernel, "active", "second")


def test_a_receipt_of_another_protocol_or_driver_is_stale(filled: Filled) -> None:
    registry, key, kernel = filled
    assert kernel.stale("10") is None
    assert "protocol 10, which is 11 now" in (kernel.stale("11") or "")
    device = kernel.receipts[0].device
    assert kernel.stale("10", {device: ""}) is None
    assert "driver" in (kernel.stale("10", {device: "581"}) or "")
    assert kernel.stale("10", {"another GPU": "581"}) is None
    renewed = add_kernel(registry, key, protocol="11")
    assert renewed.stale("11") is None
    assert len(renewed.receipts) == 1


# --- the folder -----------------------------------------------------------------------------------


def test_garbage_is_what_nobody_names_and_is_old(filled: Filled) -> None:
    registry, _, kernel = filled
    assert registry.collect_garbage() == (0, 0)
    registry.move(kernel, "retired", "old")
    assert registry.collect_garbage(retired=True) == (0, 0)
    for path in _files(registry.folder):
        os.utime(path, (0, 0))
    count, freed = registry.collect_garbage()
    assert count == 5
    assert freed > 0
    assert _files(registry.folder) == []
    assert registry.snapshot() == ()


def test_nothing_is_collected_where_the_registry_is_not_whole(
    filled: Filled, tmp_path: Path
) -> None:
    registry, _, _ = filled
    for path in _files(registry.folder):
        os.utime(path, (0, 0))
    blind = KernelRegistry(registry.folder, keys=tmp_path / "no keys")
    with pytest.raises(DamagedError, match="nothing was removed"):
        blind.collect_garbage()
    assert len(_files(registry.folder)) == 5


@pytest.mark.skipif(not Path("/usr/bin/bwrap").exists(), reason="needs bubblewrap")
def test_a_registry_on_a_read_only_file_system_can_be_read(filled: Filled) -> None:
    registry, _, kernel = filled
    registry.close()
    program = textwrap.dedent(
        """
        import sys
        from coding_framework.registry.kernels import KernelRegistry
        with KernelRegistry(sys.argv[1], read_only=True) as registry:
            print(*(kernel.kernel for kernel in registry.snapshot()))
            assert registry.damage() == []
        try:
            KernelRegistry(sys.argv[1])
        except Exception as e:
            print(type(e).__name__, e)
        """
    )
    command = ["bwrap", "--ro-bind", "/", "/", "--proc", "/proc", sys.executable, "-c", program]
    found = subprocess.run(
        [*command, str(registry.folder)], capture_output=True, text=True, check=False
    )
    assert found.stdout.splitlines()[0] == kernel.kernel, found.stderr
    assert "StorageError" in found.stdout
    assert "give this user the right to write" in found.stdout


def test_a_registry_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no kernel registry in"):
        KernelRegistry(tmp_path / "none", read_only=True)


def test_a_database_of_a_newer_version_is_left_alone(filled: Filled) -> None:
    registry, _, _ = filled
    registry.close()
    with sqlite3.connect(registry.folder / "registry.sqlite") as db:
        db.execute("PRAGMA user_version=99")
    with pytest.raises(StorageError, match="newer version"):
        KernelRegistry(registry.folder)


def test_a_kernel_is_found_by_op_and_by_the_start_of_its_id(filled: Filled) -> None:
    registry, key, kernel = filled
    assert registry.find("relu") == kernel
    assert registry.find(kernel.kernel[7:17]) == kernel
    add_kernel(registry, key, "// another kernel\n")
    with pytest.raises(UsageError, match="names 2 kernels"):
        registry.find("relu")
    with pytest.raises(UsageError, match="there is no kernel 'tanh'"):
        registry.find("tanh")


def test_the_command_checks_the_registry_of_its_sisters_by_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["kernel", "verify"]) == 2
    assert "there is no kernel registry in registry" in capsys.readouterr().err
    registry, key = registry_in(tmp_path)
    with registry:
        kernel = add_kernel(registry, key)
    assert main(["kernel", "verify"]) == 0
    assert "verified: all 1 kernels of registry" in capsys.readouterr().out
    assert main(["kernel", "verify", "relu"]) == 0
    assert f"{kernel.kernel[7:19]} is correct for relu" in capsys.readouterr().out
    (tmp_path / "receipt.json").write_text(kernel.receipts[0].model_dump_json())
    assert main(["kernel", "verify", "receipt.json", "--keys", "judge"]) == 0
    assert "signed by judge" in capsys.readouterr().out
    assert main(["kernel", "verify", "none.json"]) == 2
    assert "the receipt 'none.json' cannot be read" in capsys.readouterr().err
