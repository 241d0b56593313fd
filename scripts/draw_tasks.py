#!/usr/bin/env python
"""Draw the tasks of the catalogues, of functions and of modules, and write them into the package.

    uv run scripts/draw_tasks.py

Run it after a change of what is drawn: an operation, a core, a grid, a key that is left out. Then
`scripts/freeze_tasks.py` tells what changed. A minute on one core.
"""

from __future__ import annotations

import json
import lzma
import sys
from pathlib import Path
from typing import Any

from coding_framework.data.modules.catalog import CATALOGUE_PATH, SPARE_PATH, WIDER_PATH
from coding_framework.data.synthesis.catalog import NAMES_PATH
from coding_framework.paths import write_atomic
from drawing import functions, modules
from drawing.modules import row_of


def main() -> int:
    names = [*functions.programs(), *functions.workloads()]
    write_atomic(NAMES_PATH, "".join(f"{name}\n" for name in names))
    _store(CATALOGUE_PATH, [row_of(draft) for draft in modules.catalogue()])
    for path, groups in ((SPARE_PATH, modules.spare()), (WIDER_PATH, modules.wider())):
        _store(path, [[row_of(draft) for draft in group] for group in groups])
    print(f"{len(names)} functions, {len(modules.catalogue())} modules", file=sys.stderr)
    return 0


def _store(path: Path, rows: list[Any]) -> None:
    text = json.dumps(rows, separators=(",", ":"))
    write_atomic(path, lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


if __name__ == "__main__":
    sys.exit(main())
