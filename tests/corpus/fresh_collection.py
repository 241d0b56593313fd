"""The fresh corpus as a whole: attacks and honest kernels of an author who read no judge."""

from __future__ import annotations

from dataclasses import replace

from corpus.collection import CORRECT, Case
from corpus.fresh_attacks_escapes import ESCAPES
from corpus.fresh_attacks_host import HOST
from corpus.fresh_attacks_races import RACES
from corpus.fresh_attacks_rows import ROWS
from corpus.fresh_attacks_state import STATE
from corpus.fresh_attacks_sums import SUMS
from corpus.fresh_attacks_unnamed import UNNAMED
from corpus.fresh_attacks_values import VALUES
from corpus.fresh_attacks_wild import WILD
from corpus.fresh_base import IN_TIME, REFUSED, FreshAttack, FreshHonest
from corpus.fresh_honest_algorithms import ALGORITHMS
from corpus.fresh_honest_answers import ANSWERS
from corpus.fresh_honest_families import FAMILIES
from corpus.fresh_honest_matrix import MATRIX_KERNELS
from corpus.fresh_honest_order import ORDER
from corpus.fresh_honest_reductions import REDUCTIONS

FRESH_ATTACKS: tuple[FreshAttack, ...] = (
    *VALUES, *ROWS, *SUMS, *RACES, *STATE, *HOST, *ESCAPES, *UNNAMED, *WILD,
)  # fmt: skip
FRESH_HONEST: tuple[FreshHonest, ...] = (
    *REDUCTIONS, *ORDER, *MATRIX_KERNELS, *ALGORITHMS, *ANSWERS, *FAMILIES,
)  # fmt: skip

ITEMS: dict[str, int] = {attack.mechanism: attack.item for attack in FRESH_ATTACKS}
"""The item of issue 27 that describes each mechanism; 0: none does."""
_TRY = " try "
RIGHT_AFTER_ALL: dict[str, str] = {
    "fresh/large values/mish": "a textbook form, right within what such forms may lose",
    "fresh/ends of integers/less_by_difference": "nvcc makes it a comparison (setp.lt.s32)",
    "fresh/inputs as scratch/input_as_a_flag": "nvcc drops both stores to the input",
    "fresh/process bits/library_address": "Linux 6.7 and later map libc at multiples of 2 MiB",
}
"""Attacks whose verdict may be `correct`, as what they are compiled to, or where they run, is."""


def fresh_attacks() -> list[Case]:
    """All attacks; one that chance decides once a try, each a text of its own, so that no cached
    verdict answers for it."""
    cases = []
    for attack in FRESH_ATTACKS:
        may = IN_TIME if attack.dear or attack.name in RIGHT_AFTER_ALL else REFUSED
        first = Case(attack.name, attack.task, attack.code, may, "unseen", attack.mechanism)
        cases.append(first)
        for i in range(1, attack.tries):
            code = f"{attack.code}//{_TRY}{i}\n"
            cases.append(replace(first, name=f"{attack.name}{_TRY}{i}", code=code))
    return cases


def fresh_honest() -> list[Case]:
    """All honest kernels, grouped by what they use."""
    return [
        Case(h.name, h.task, h.code, CORRECT, "unseen", " ".join(h.patterns)) for h in FRESH_HONEST
    ]


def attack_of(case: Case) -> str:
    """The name of the attack of which `case` is a try; a case of one try is its own."""
    return case.name.partition(_TRY)[0]
