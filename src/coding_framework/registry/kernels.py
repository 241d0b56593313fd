"""`KernelRegistry`: a folder of verified kernels, which any process may read.

    objects/aa/SHA256.{cu,py}     sources
    templates/aa/SHA256.json      launch templates
    cubins/aa/SHA256.{cubin,ptx}  device code
    tasks/aa/SHA256.json          the tasks that they are for
    keys/NAME.pub                 public keys of judges
    registry.sqlite               entries, receipts, statuses

A receipt signs the kernel, the task and the digest of every template, a template names the digest
of its device code: so nothing that was changed on the way from the judge to a caller is ever given
out. What the database says of statuses is not signed: who can write the folder decides what is
used, never what is correct.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError

from coding_framework.errors import UsageError
from coding_framework.monitoring.text import one_line
from coding_framework.paths import write_atomic
from coding_framework.registry.database import (
    EntryRow,
    HistoryRow,
    ReceiptRow,
    RegistryDatabase,
    now_us,
)
from coding_framework.registry.digests import former_task_id, kernel_id, task_id
from coding_framework.registry.files import DamagedError, Files, StoredFile
from coding_framework.registry.receipts import KernelReceipt, ReceiptError, check_receipt
from coding_framework.registry.records import MOVES, KernelStatus, RegisteredKernel
from coding_framework.registry.templates import (
    DeviceCode,
    LaunchTemplate,
    MadeTemplates,
    TemplateError,
    TemplateRefusal,
)
from coding_framework.types import Candidate, Task, source_bytes, source_text

DATABASE = "registry.sqlite"
_SHORTEST_ID = 6


class KernelRegistry:
    """See the module. Close it; one thread at a time, and not for a forked child."""

    def __init__(
        self,
        folder: Path | str,
        *,
        keys: Path | None = None,
        read_only: bool = False,
        briefly: bool = False,
        tell: Callable[[str], object] = lambda problem: None,
    ) -> None:
        """keys: folder of the public keys that are trusted; None: the registry's own, for a folder
        that only people whom you trust can write. read_only: only look; it must be there, and
        may lie where nothing can be written; briefly: closed at once, it leaves no file there.
        tell: hears of each damaged file or receipt.

        Raises UsageError where read_only is set and there is none, StorageError for a database that
        cannot be used."""
        self.folder = Path(folder)
        self.keys = keys if keys is not None else self.folder / "keys"
        self._tell = tell
        self._files = Files(self.folder)
        path = self.folder / DATABASE
        if read_only and not path.exists():
            raise UsageError(
                f"there is no kernel registry in {self.folder}: `cuda-rl kernel add` makes one"
            )
        self._database = RegistryDatabase(path, read_only=read_only, briefly=briefly)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --- reading ----------------------------------------------------------------------------------

    def snapshot(self) -> tuple[RegisteredKernel, ...]:
        """All kernels as they are now, with what belongs to them; later changes do not show.

        Left out, and told: entries none of whose receipts holds, and templates whose files are
        damaged. Raises StorageError for a damaged database.
        """
        return self._kernels()

    def _kernels(self, kernel: str | None = None) -> tuple[RegisteredKernel, ...]:
        """As `snapshot`; of one source or of all."""
        receipts: dict[tuple[str, str], list[ReceiptRow]] = defaultdict(list)
        for row in self._database.receipts(kernel):
            receipts[row.kernel, row.task].append(row)
        refusals = defaultdict(list)
        for refused in self._database.refusals():
            refusals[refused.receipt].append(
                TemplateRefusal(
                    shape_key=refused.shape_key, obstacle=refused.obstacle, reason=refused.reason
                )
            )
        found = (
            self._kernel(entry, receipts[entry.kernel, entry.task], refusals)
            for entry in self._database.entries(kernel)
        )
        return tuple(kernel for kernel in found if kernel is not None)

    def get(self, kernel: str, task: str) -> RegisteredKernel | None:
        """The kernel of these ids; None where there is none that holds."""
        return next((k for k in self._kernels(kernel) if k.task == task), None)

    def find(self, name: str) -> RegisteredKernel:
        """The kernel of an id, of the beginning of one, or of an op's name that has only one. Of a
        kernel that is there for several tasks, KERNEL/TASK. Raises UsageError with what there
        is."""
        kernels = self.snapshot()
        plain, _, of_task = name.replace("sha256:", "").partition("/")
        found = [k for k in kernels if k.op == name]
        if not found and len(plain) >= _SHORTEST_ID:
            found = [k for k in kernels if k.kernel.removeprefix("sha256:").startswith(plain)]
            found = [k for k in found if k.task.removeprefix("sha256:").startswith(of_task)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = ", ".join(
                f"{short(k.kernel)}/{short(k.task)} ({k.op}, {k.status})" for k in found[:8]
            )
            raise UsageError(f"{name!r} names {len(found)} kernels: give the id of one: {ids}")
        some = ", ".join(f"{short(k.kernel)} ({k.op})" for k in kernels[:8]) or "none"
        raise UsageError(
            f"there is no kernel {one_line(name, 80)!r} in {self.folder}; there are: {some}"
        )

    def source(self, kernel: RegisteredKernel) -> str:
        """Its source. Raises DamagedError."""
        entry = self._entry(kernel)
        sha256 = kernel.kernel.removeprefix("sha256:")
        data = self._files.get(StoredFile("objects", sha256, entry.suffix))
        return source_text(data)

    def task(self, kernel: RegisteredKernel) -> Task:
        """The task that it was judged for. Its reference is code: only run it where a receipt of a
        key that you trust vouches for it, as those of `snapshot` do. Raises DamagedError."""
        sha256 = kernel.task.removeprefix("sha256:")
        path = self._task_path(sha256)
        try:
            task = Task.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as e:
            raise DamagedError(f"{path} cannot be read as a task: add the kernel again") from e
        if kernel.task not in (task_id(task), former_task_id(task)):
            raise DamagedError(f"{path} is not the task of its name: add the kernel again")
        return task.model_copy(update={"name": kernel.op})

    def signed(self, kernel: RegisteredKernel) -> list[dict[str, Any]]:
        """Its receipts as they were signed, in the order of `RegisteredKernel.receipts`."""
        signatures = [receipt.signature for receipt in kernel.receipts]
        bodies = [json.loads(row.body) for row in self._database.receipts(kernel.kernel)]
        known = {body.get("signature"): body for body in bodies}
        return [known[signature] for signature in signatures]

    def code(self, code: DeviceCode) -> bytes:
        """The bytes of a module. Raises DamagedError."""
        return self._files.get(StoredFile("cubins", code.sha256, code.form))

    def history(self, kernel: RegisteredKernel) -> list[HistoryRow]:
        """Changes of its status, oldest first."""
        return [h for h in self._database.history(kernel.kernel) if h.task == kernel.task]

    def damage(self) -> list[str]:
        """A sentence for each thing that is not as it was stored: files, receipts, database."""
        found: list[str] = []
        self._database.require_whole()
        told, self._tell = self._tell, found.append
        try:
            kernels = self.snapshot()
        finally:
            self._tell = told
        for kernel in kernels:
            for check in (self.source, self.task):
                try:
                    check(kernel)
                except DamagedError as e:
                    found.append(str(e))
        for file in self._files.all():
            if file.kind != "tasks":
                try:
                    self._files.get(file)
                except DamagedError as e:
                    found.append(str(e))
        return list(dict.fromkeys(found))

    # --- writing ----------------------------------------------------------------------------------

    def add(
        self, code: str, task: Task, signed: Mapping[str, Any], made: MadeTemplates
    ) -> RegisteredKernel:
        """Store a kernel, its templates and its receipt, which is JSON as it was signed; one that
        is there keeps its status, but for a quarantined one, which a new receipt makes `verified`.

        Raises ReceiptError where the receipt is about something else or does not hold, UsageError
        where another function has the task's name here, InfrastructureError where the folder
        cannot be written.
        """
        receipt = check_receipt(signed, self.keys)
        self._require_about(receipt, code, task, made)
        self._require_same_function(task)
        suffix = "py" if Candidate.model_construct(code=code).is_python else "cu"
        self._files.put("objects", suffix, source_bytes(code))
        for template in made.templates:
            for part in template.code:
                self._files.put("cubins", part.form, made.code[part.sha256])
            self._files.put("templates", "json", template.canonical_json())
        self._write_task(task)
        body = json.dumps(signed, sort_keys=True)
        sha256 = hashlib.sha256(body.encode()).hexdigest()
        row = ReceiptRow(sha256, receipt.kernel, receipt.task, body, now_us())
        entry = EntryRow(receipt.kernel, receipt.task, receipt.op, suffix, "verified", row.added_us)
        refusals = [(r.shape_key, r.obstacle, r.reason) for r in made.refusals]
        new = self._database.add(entry, row, refusals)
        kernel = self._one(receipt.kernel, receipt.task)
        if not new and kernel.status == "quarantined":
            self._database.move(self._entry(kernel), "verified", "judged again")
        return self._one(receipt.kernel, receipt.task)

    def trust(self, public_key: Path) -> None:
        """Keep a public key beside the kernels, unless another of its name is there."""
        path = self.folder / "keys" / public_key.name
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(shutil.SameFileError):
                shutil.copyfile(public_key, path)

    def move(self, kernel: RegisteredKernel, status: KernelStatus, reason: str) -> RegisteredKernel:
        """Change a status. Raises UsageError for a change that there is not, ConflictError where
        somebody else was first."""
        if status not in MOVES[kernel.status]:
            choices = ", ".join(MOVES[kernel.status])
            what_next = f"it may become {choices}" if choices else "only `kernel reverify` moves it"
            refused = "already" if status == kernel.status else f"and cannot become {status}"
            raise UsageError(f"{short(kernel.kernel)} is {kernel.status} {refused}: {what_next}")
        self._database.move(self._entry(kernel)._replace(status=kernel.status), status, reason)
        return self._one(kernel.kernel, kernel.task)

    def succeed(self, former: RegisteredKernel, new: RegisteredKernel) -> RegisteredKernel:
        """Give a kernel that was judged anew, under the id that its task has now, the status that
        it had under the former one, which is forgotten."""
        if new.status == "verified" and former.status in ("canary", "active", "retired"):
            new = self.move(
                new, former.status, f"as for {short(former.task)}, its task's former id"
            )
        self._database.remove(self._entry(former))
        return new

    def collect_garbage(self, *, retired: bool = False) -> tuple[int, int]:
        """Remove files that no entry names; gives their number and bytes. retired: first forget
        retired and quarantined kernels. Files of the last hour stay: an entry may be on its way.
        Raises DamagedError where it cannot be known what is named."""
        if retired:
            for entry in self._database.entries():
                if entry.status in ("retired", "quarantined"):
                    self._database.remove(entry)
        named = self._named()
        count = freed = 0
        for file in self._files.all():
            if file not in named:
                nbytes = self._files.remove_old(file)
                count, freed = count + bool(nbytes), freed + nbytes
        return count, freed

    # --- parts ------------------------------------------------------------------------------------

    def _kernel(
        self,
        entry: EntryRow,
        rows: Iterable[ReceiptRow],
        refusals: Mapping[str, list[TemplateRefusal]],
    ) -> RegisteredKernel | None:
        """The entry with what holds of it; None where no receipt does."""
        newest: dict[tuple[str, str], tuple[KernelReceipt, ReceiptRow]] = {}
        for row in rows:
            try:
                receipt = self._receipt(entry, row)
            except (ReceiptError, UsageError) as e:
                self._tell(f"a receipt of {short(entry.kernel)} ({entry.op}) does not count: {e}")
                continue
            newest[receipt.device, receipt.sm] = receipt, row
        if not newest:
            return None
        templates: dict[str, LaunchTemplate] = {}
        for receipt, _ in newest.values():
            for shape in receipt.shapes:
                if shape.template is not None and shape.template not in templates:
                    try:
                        found = self._template(entry, shape.template, shape.key)
                        templates[shape.template] = found
                    except (DamagedError, TemplateError) as e:
                        self._tell(str(e))
        return RegisteredKernel(
            kernel=entry.kernel,
            task=entry.task,
            op=entry.op,
            status=entry.status,
            receipts=tuple(receipt for receipt, _ in newest.values()),
            templates=tuple(templates.values()),
            refusals=tuple(r for _, row in newest.values() for r in refusals[row.sha256]),
        )

    def _receipt(self, entry: EntryRow, row: ReceiptRow) -> KernelReceipt:
        """Raises ReceiptError where it does not hold, or is not about this entry."""
        try:
            given = json.loads(row.body)
        except ValueError as e:
            raise ReceiptError("it is no JSON") from e
        if not isinstance(given, dict):
            raise ReceiptError("it is no object")
        receipt = check_receipt(given, self.keys)
        if (receipt.kernel, receipt.task, receipt.op) != (entry.kernel, entry.task, entry.op):
            raise ReceiptError("it is about another kernel or task")
        return receipt

    def _template(self, entry: EntryRow, digest: str, key: str) -> LaunchTemplate:
        """Raises DamagedError or TemplateError."""
        file = StoredFile("templates", digest.removeprefix("sha256:"), "json")
        template = LaunchTemplate.from_json(self._files.get(file))
        said = (template.kernel, template.task, template.shape_key)
        if said != (entry.kernel, entry.task, key):
            raise DamagedError(f"{self.folder / file.path} is the template of something else")
        return template

    def _require_about(
        self, receipt: KernelReceipt, code: str, task: Task, made: MadeTemplates
    ) -> None:
        if receipt.kernel != kernel_id(code):
            raise ReceiptError("the receipt is about another source")
        if receipt.task == former_task_id(task):
            raise ReceiptError(
                f"its receipt is of protocol {receipt.protocol}, when a task's id left out what "
                "else the judge reads: judge the kernel again with `cuda-rl kernel add`"
            )
        if receipt.task != task_id(task) or receipt.op != task.name:
            raise ReceiptError("the receipt is about another task")
        signed = {shape.template for shape in receipt.shapes}
        for template in made.templates:
            if f"sha256:{template.sha256}" not in signed:
                raise ReceiptError("the receipt does not name one of the templates")
            if (template.kernel, template.task) != (receipt.kernel, receipt.task):
                raise ReceiptError("a template is of another kernel or task")
            for part in template.code:
                if hashlib.sha256(made.code.get(part.sha256, b"")).hexdigest() != part.sha256:
                    raise ReceiptError("the device code of a template is not with it")

    def _require_same_function(self, task: Task) -> None:
        """Two functions under one name would be mistaken for each other."""
        for entry in self._database.entries():
            if entry.op != task.name or entry.task == task_id(task):
                continue
            path = self._task_path(entry.task.removeprefix("sha256:"))
            with contextlib.suppress(OSError, ValidationError):
                other = Task.model_validate_json(path.read_bytes())
                if other.reference != task.reference:
                    raise UsageError(
                        f"{task.name!r} is another function in {self.folder}: give this one a name "
                        "of its own with --op"
                    )

    def _task_path(self, sha256: str) -> Path:
        return self.folder / StoredFile("tasks", sha256, "json").path

    def _write_task(self, task: Task) -> None:
        """Unless it is there: what else is said of a task, by an archive, replaces nothing."""
        path = self._task_path(task_id(task).removeprefix("sha256:"))
        with contextlib.suppress(OSError, ValidationError):
            if task_id(Task.model_validate_json(path.read_bytes())) == task_id(task):
                return
        write_atomic(path, task.model_dump_json().encode())

    def _entry(self, kernel: RegisteredKernel) -> EntryRow:
        for entry in self._database.entries(kernel.kernel):
            if entry.task == kernel.task:
                return entry
        raise UsageError(f"{short(kernel.kernel)} is no longer in {self.folder}")

    def _one(self, kernel: str, task: str) -> RegisteredKernel:
        found = self.get(kernel, task)
        if found is None:
            raise DamagedError(
                f"{short(kernel)} was stored in {self.folder} and cannot be read back"
            )
        return found

    def _named(self) -> set[StoredFile]:
        """Files that entries and receipts name."""
        problems = self.damage()
        if problems:
            raise DamagedError(f"nothing was removed, as the registry is not whole: {problems[0]}")
        named: set[StoredFile] = set()
        for entry in self._database.entries():
            named.add(StoredFile("objects", entry.kernel.removeprefix("sha256:"), entry.suffix))
            named.add(StoredFile("tasks", entry.task.removeprefix("sha256:"), "json"))
        for kernel in self.snapshot():
            for template in kernel.templates:
                named.add(StoredFile("templates", template.sha256, "json"))
                named |= {StoredFile("cubins", c.sha256, c.form) for c in template.code}
        return named


def short(kernel: str) -> str:
    """The first digits of an id, as people say it."""
    return kernel.removeprefix("sha256:")[:12]
