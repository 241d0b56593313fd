"""The manifest that makes a run resumable."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from coding_framework.errors import UsageError
from coding_framework.monitoring.memory import PeakMemory
from coding_framework.store.stages import StageManifest

pytestmark = pytest.mark.unit


def fail_slowly():
    time.sleep(0.2)
    raise RuntimeError("stopped")


CONFIG = {"seed": 0, "smoke": True}


def test_a_finished_stage_is_found_again_with_its_result(tmp_path):
    with StageManifest(tmp_path, CONFIG) as manifest:
        assert manifest.finished("model") is None
        with manifest.stage("model", PeakMemory()) as result:
            result["path"] = "/model"
    with StageManifest(tmp_path, CONFIG) as manifest:
        record = manifest.finished("model")
    assert record.result == {"path": "/model"}
    assert record.peak_memory_gib > 0
    assert record.attempts == 1


def test_a_stage_that_fails_is_not_finished_and_its_attempts_and_time_are_counted(tmp_path):
    with StageManifest(tmp_path, CONFIG) as manifest:
        with pytest.raises(RuntimeError), manifest.stage("sft", PeakMemory()):
            fail_slowly()
        assert manifest.finished("sft") is None
        with manifest.stage("sft", PeakMemory()):
            pass
        assert manifest.finished("sft").attempts == 2
        assert manifest.finished("sft").wall_s >= 0.2


def test_other_settings_in_the_same_folder_are_refused_and_named(tmp_path):
    with StageManifest(tmp_path, CONFIG):
        pass
    with (
        pytest.raises(UsageError, match=r"seed was 0 and is 1 now.*another --output-dir"),
        StageManifest(tmp_path, {**CONFIG, "seed": 1}),
    ):
        pass


def test_of_nested_settings_only_those_that_differ_are_named(tmp_path):
    with StageManifest(tmp_path, {"recipe": {"sft": {"epochs": 1, "seed": 0}, "device": "cpu"}}):
        pass
    with (
        pytest.raises(UsageError, match=r"\(recipe\.sft\.epochs was 1 and is 2 now\)"),
        StageManifest(tmp_path, {"recipe": {"sft": {"epochs": 2, "seed": 0}, "device": "cpu"}}),
    ):
        pass


def test_a_folder_is_used_by_one_run_at_a_time(tmp_path):
    code = (
        "import sys, time; from pathlib import Path;"
        "from coding_framework.store.stages import StageManifest;"
        f"m = StageManifest(Path({str(tmp_path)!r}), {CONFIG!r}); m.__enter__();"
        "print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "in\n"
        with (
            pytest.raises(UsageError, match=rf"another run \(process {other.pid}\)"),
            StageManifest(tmp_path, CONFIG),
        ):
            pass
    finally:
        other.kill()
        other.wait()
    with StageManifest(tmp_path, CONFIG):
        pass


def test_a_manifest_that_is_none_is_refused_with_what_to_do(tmp_path):
    (tmp_path / "stages.json").write_text(json.dumps({"something": "else"}))
    with (
        pytest.raises(UsageError, match="not a run's manifest: choose another --output-dir"),
        StageManifest(tmp_path, CONFIG),
    ):
        pass
