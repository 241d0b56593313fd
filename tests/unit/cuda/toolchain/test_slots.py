"""Slots bound what runs at once, over threads and processes."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from coding_framework.cuda.toolchain.slots import available_cores, slot

pytestmark = pytest.mark.unit


def test_no_more_holders_than_slots(tmp_path: Path) -> None:
    inside, most, lock = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal inside, most
        with slot(tmp_path, 2):
            with lock:
                inside += 1
                most = max(most, inside)
            time.sleep(0.02)
            with lock:
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, inside) == (2, 0)


def test_a_slot_is_free_again_after_an_error(tmp_path: Path) -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError), slot(tmp_path, 1):
            raise RuntimeError
    with slot(tmp_path, 1) as number:
        assert number == 0


def test_this_machine_has_a_core() -> None:
    assert available_cores() >= 1
