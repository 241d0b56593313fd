"""Checks every component on this machine for real: those of `cuda-rl doctor`, then the parts of a
run: data pipeline, curriculum, conversation with rewards, deployment, monitoring. Loads no model.

    uv run python test_complete_system.py [--json]

Exit status 0 where the main job can run here, 3 where something it needs is missing or broken.
"""

import coding_framework.commands.interrupts  # noqa: F401  (Ctrl-C while the rest is imported)

# isort: split
import argparse
import sys

from coding_framework.commands.doctor import doctor
from coding_framework.commands.doctor_checks import checks_here
from coding_framework.commands.system_checks import SYSTEM


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print one JSON object, no table")
    as_json = parser.parse_args().json
    return doctor(as_json=as_json, checks=(*checks_here(), *SYSTEM))


if __name__ == "__main__":
    sys.exit(main())
