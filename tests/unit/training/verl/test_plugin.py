"""What each verl process loads first."""

from __future__ import annotations

import ast
import logging
from importlib.metadata import version
from pathlib import Path

import pytest

from coding_framework.training import verl as adapter

pytest.importorskip("verl")


def test_the_trainer_of_rollout_gpus_may_ask_its_logger_to_flush(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """verl 0.9.1's does at its start: an argument that no logger takes."""
    from verl.trainer.ppo.v1 import trainer_separate_async

    from coding_framework.training.verl import trainer

    trainer.put_in_place()

    with caplog.at_level(logging.INFO, logger=trainer_separate_async.__name__):
        trainer_separate_async.logger.info("%d replicas", 1, flush=True)

    (record,) = [r for r in caplog.records if r.name == trainer_separate_async.__name__]
    assert record.getMessage() == "1 replicas"
    assert record.funcName.startswith("test_the_trainer")


def foreign_names(tree: ast.Module) -> set[str]:
    """Names that a module has from verl and Ray."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in OTHERS:
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found = [alias for alias in node.names if alias.name.split(".")[0] in OTHERS]
            names |= {alias.asname or alias.name.split(".")[0] for alias in found}
    return names


OTHERS = ("verl", "ray", "transfer_queue")


def test_whatever_is_put_into_verl_stands_in_one_file() -> None:
    patched: dict[str, list[str]] = {}
    for file in Path(adapter.__path__[0]).glob("*.py"):
        tree = ast.parse(file.read_text())
        foreign = foreign_names(tree)
        targets = [t for n in ast.walk(tree) if isinstance(n, ast.Assign) for t in n.targets]
        targets += [n.target for n in ast.walk(tree) if isinstance(n, ast.AugAssign)]
        found = [
            ast.unparse(target)
            for target in targets
            if isinstance(target, ast.Attribute | ast.Subscript)
            and ast.unparse(target).split(".")[0].split("[")[0] in foreign
        ]
        if found:
            patched[file.name] = found
    assert patched.keys() == {"patches.py"}
    assert len(patched["patches.py"]) >= 10


def test_the_patches_are_made_for_the_version_that_is_installed() -> None:
    from coding_framework.training.verl import patches

    assert version("verl") == patches.VERL
    reasons = [
        line for line in Path(patches.__file__).read_text().splitlines() if "Goes when" in line
    ]
    assert len(reasons) >= 10
