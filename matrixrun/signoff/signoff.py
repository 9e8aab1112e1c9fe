"""`matrixrun signoff`: read both sides, decide, and keep the decision with the sweep."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec

from matrixrun.evidence.errors import UserError
from matrixrun.record import Remote, Store, find_sweep, is_url
from matrixrun.record.files import write_bytes, write_json
from matrixrun.signoff.baseline import complete_levels, read_baseline
from matrixrun.signoff.decision import Decision, decide
from matrixrun.signoff.levels import SweepLevels, levels_of
from matrixrun.signoff.policy import Policy, read_policy
from matrixrun.signoff.report import REPORT_FILE, write_report
from matrixrun.signoff.wording import decision_markdown

DECISION_FILE = "signoff.json"
MARKDOWN_FILE = "signoff.md"


class SignoffOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says: `against` is a baseline file, or a results folder, a sweep's id
    or its URL; `upgrades` are `OLD=NEW` names of engines."""

    against: str
    policy: Path | None = None
    upgrades: tuple[str, ...] = ()
    results_root: Path = Path("results")


def sign_off(store: Store, options: SignoffOptions, today: datetime.date | None = None) -> Decision:
    """Decide on a sweep, and write signoff.json, signoff.md and the report anew.

    Raises:
        UserError: the baseline, the policy or an upgrade cannot be used, or the sweep is to be
            compared with itself.
        StoreError: the evidence cannot be read, or the decision not be written.
    """
    policy = Policy() if options.policy is None else read_policy(options.policy)
    renamed = dict(_upgrade(text) for text in options.upgrades)
    old = read_reference(options.against, options.results_root)
    if old.name == store.info.id and old.results and not renamed:
        raise UserError(
            f"{old.name} is compared with itself: nothing could stand against it",
            remedy="name an earlier sweep or a baseline file; where one sweep holds both versions"
            " of an engine, add --upgrade OLD=NEW",
        )
    store.withdraw_decision()
    new = levels_of(store)
    _check_engines(renamed, old, new)
    day = today or datetime.datetime.now(datetime.UTC).date()
    decision = decide(new, old, policy, day, renamed)
    write_json(store.root / DECISION_FILE, decision)
    write_bytes(store.root / MARKDOWN_FILE, decision_markdown(decision).encode())
    write_report(store, store.root / REPORT_FILE, decision=decision)
    return decision


def read_reference(reference: str, results_root: Path) -> SweepLevels:
    """Return what is compared with: a baseline file, or the figures of another sweep.

    Raises:
        UserError: it is neither, or a sweep that is not complete.
    """
    path = Path(reference)
    if path.is_file():
        return read_baseline(path)
    if path.suffix in (".yaml", ".yml"):
        raise UserError(
            f"there is no baseline file {path}",
            remedy="write one with `matrixrun baseline accept SWEEP --out FILE`",
        )
    remote = Remote(reference) if is_url(reference) else None
    folder = find_sweep(reference, results_root) if remote is None else remote.fetch()
    return complete_levels(Store.open(folder, remote))


def _upgrade(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not (old and equals and new) or old == new:
        raise UserError(f"--upgrade {text!r} is not OLD=NEW", remedy="write two engine names")
    return old, new


def _check_engines(renamed: dict[str, str], old: SweepLevels, new: SweepLevels) -> None:
    for engine, sweep in [(e, old) for e in renamed] + [(e, new) for e in renamed.values()]:
        if not any(name.startswith(f"{engine}.") for name in sweep.cells):
            engines = sorted({name.partition(".")[0] for name in sweep.cells})
            raise UserError(
                f"--upgrade: sweep {sweep.name} has no cells of an engine {engine!r}",
                remedy=f"its engines are {', '.join(engines)}",
            )
