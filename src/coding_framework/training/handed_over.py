"""Objects that a caller hands to the trainer, for its workers, which are other processes.

They are pickled by value, with the modules of the user's own that they come from: a lambda and a
class of the script that runs can travel. What cannot is refused where it is handed over.
"""

from __future__ import annotations

import os
import pickle
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from coding_framework.errors import UsageError
from coding_framework.orchestration.turn import Agent, RewardFn
from coding_framework.paths import write_atomic
from coding_framework.types import JudgeFn, Role

_OURS = "coding_framework"


@dataclass(frozen=True)
class HandedOver:
    """What a run uses in place of what its configuration names; None: nothing.

    Maker: `MultiAgentVERLTrainer`. Consumers: the rollout workers."""

    reward: RewardFn | None = None
    judge: JudgeFn | None = None
    agents: Mapping[Role, type[Agent]] | None = None
    """Classes, which are made anew with the policy that is trained."""


def packed(handed: HandedOver) -> bytes:
    """For `read_handed_over`. Raises UsageError naming what cannot travel."""
    parts = {name: part for name, part in vars(handed).items() if part is not None}
    return pickle.dumps({name: _by_value(name, part) for name, part in parts.items()})


def read_handed_over(file: Path) -> HandedOver:
    """What `packed` wrote. Raises UsageError where the process lacks a module that it needs."""
    parts: dict[str, Any] = {}
    try:
        for name, data in pickle.loads(file.read_bytes()).items():
            parts[name] = pickle.loads(data)
    except Exception as e:  # user's classes are made here
        where = f"the {name} that was handed over" if "name" in locals() else str(file)
        raise UsageError(f"{where} cannot be made in a worker ({type(e).__name__}: {e})") from e
    return HandedOver(**parts)


def write_handed_over(data: bytes, file: Path) -> None:
    """For this user alone: a judge may hold its secret."""
    write_atomic(file, data)
    os.chmod(file, 0o600)


def judge_in(file: str) -> JudgeFn:
    """The judge that was handed over, for the process in which it judges."""
    judge = read_handed_over(Path(file)).judge
    assert judge is not None, "the file holds a judge"
    return judge


def _by_value(name: str, part: object) -> bytes:
    import cloudpickle

    try:
        with _modules_by_value():
            data: bytes = cloudpickle.dumps(part)
    except Exception as e:  # whatever the user's objects raise
        raise UsageError(
            f"the {name} cannot be handed to the workers, which are other processes "
            f"({type(e).__name__}: {e}): make it hold values alone, or name it by its import path "
            "in the configuration"
        ) from e
    return data


@contextmanager
def _modules_by_value() -> Iterator[None]:
    """What comes from the user's modules is pickled with its code meanwhile: another process may
    not find them."""
    import cloudpickle

    mine = [module for module in list(sys.modules.values()) if _is_users(module)]
    for module in mine:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in mine:
            cloudpickle.unregister_pickle_by_value(module)


def _is_users(module: ModuleType) -> bool:
    """Whether it is neither of this package nor installed."""
    name, file = getattr(module, "__name__", None), getattr(module, "__file__", None)
    if not name or file is None or sys.modules.get(name) is not module or name == "__main__":
        return False
    return name.split(".")[0] != _OURS and not file.startswith(_installed())


@cache
def _installed() -> tuple[str, ...]:
    """Folders of installed packages, each with a separator behind it."""
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({os.path.join(sysconfig.get_path(kind), "") for kind in kinds})
