"""Checks every component on this machine for real; the same as `cuda-rl doctor`.

    uv run python test_complete_system.py [--json]

Exit status 0 where the main job can run here, 3 where something it needs is missing or broken.
"""

import coding_framework.commands.interrupts  # noqa: F401  (Ctrl-C while the rest is imported)

# isort: split
import argparse
import sys

from coding_framework.commands.doctor import doctor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    return doctor(as_json=parser.parse_args().json)


if __name__ == "__main__":
    sys.exit(main())
