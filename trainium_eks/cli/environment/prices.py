"""``trn prices``: the list prices of a stack's instance types, read from AWS and written into its config."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from trainium_eks.aws.account import Account, NotChecked, RequestError
from trainium_eks.aws.price_list import on_demand
from trainium_eks.cli.environment import check
from trainium_eks.cli.shared import output, recording
from trainium_eks.cli.shared.console import show_sections
from trainium_eks.cli.shared.stack_file_edit import NotEditable, put, write_whole
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.project import check_stack, find_project
from trainium_eks.model.catalogue.instances import Price
from trainium_eks.operate.preflight.needs import Needs
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.recording.project import load_project
from trainium_eks.plan.rules._view import View

if TYPE_CHECKING:
    from trainium_eks.plan.recording.project import Project


@dataclass(frozen=True)
class PricesOptions:
    """The options of one call."""

    stack: str
    dry_run: bool = False
    as_json: bool = False
    no_color: bool = False
    directory: Path | None = None


@dataclass(frozen=True)
class Row:
    """Old and new price of one instance type."""

    instance_type: str
    old: Price | None
    new: Price | None
    """Price in the list; None where it has no On-Demand price, or could not be asked."""
    problem: str = ""
    """Reason why the list could not be asked."""

    @property
    def changes(self) -> bool:
        """Whether the config gets a new price."""
        return self.new is not None and self.new != self.old

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain data."""

        def told(price: Price | None) -> dict[str, Any] | None:
            if price is None:
                return None
            return {"hourlyUsd": price.hourly_usd, "date": price.date, "region": price.region}

        return {
            "instanceType": self.instance_type,
            "old": told(self.old),
            "new": told(self.new),
            "problem": self.problem,
        }


def run(asked: PricesOptions) -> int:
    """Show old and new prices and write the new ones; return the exit code: 0, 1 when a price could not be asked for,
    or 2."""
    directory = find_project(asked.directory)
    check_stack(directory, asked.stack)
    rows = look(recording.record(directory, asked.stack))
    path = _file(load_project(directory), asked.stack)
    changed = [row for row in rows if row.changes]
    if changed and not asked.dry_run:
        _write(path, load_project(directory).name, changed)
    written = path.name if changed and not asked.dry_run else ""
    if asked.as_json:
        output.write_json({"schemaVersion": 1, "written": written, "prices": [row.to_json() for row in rows]})
    else:
        show_sections([_table(rows), _summary(rows, path.name, written)], no_color=asked.no_color)
    return FAILED if any(row.problem for row in rows) else 0


def look(graph: Graph, account: Account | None = None) -> tuple[Row, ...]:
    """Return the price of each instance type of a recorded program, from its plan and from AWS' list.

    Raises:
        Failure: the program names no region.
    """
    needs = Needs(graph)
    if not needs.region:
        raise Failure(WRONG_USAGE, "the program names no region: neither its provider nor `region` in its config does")
    account = check.signed_in(account or Account(needs.region))
    catalogue = View(graph).catalogue

    def ask(instance_type: str) -> Row:
        old = catalogue.price(instance_type) if instance_type in catalogue else None
        try:
            return Row(instance_type, old, on_demand(account, instance_type))
        except (NotChecked, RequestError) as error:
            return Row(instance_type, old, None, str(error))

    types = dict.fromkeys(group.instance_type for group in needs.groups if group.instance_type)
    with ThreadPoolExecutor(8) as pool:
        return tuple(pool.map(ask, sorted(types)))


def _file(project: "Project", stack: str) -> Path:
    path = project.stack_file(stack)
    if path is None:
        raise Failure(WRONG_USAGE, f"stack {stack} has no file to write prices into")
    return path


def _write(path: Path, namespace: str, rows: Sequence[Row]) -> None:
    """Set ``instanceTypes.<type>``'s price, date and region.

    Raises:
        Failure: the file cannot be read, edited or written; it is whole or untouched.
    """
    try:
        text = path.read_text(encoding="utf-8")
        for row in rows:
            assert row.new is not None
            entry = ("config", f"{namespace}:instanceTypes", row.instance_type)
            for key, value in (
                ("hourlyUsd", row.new.hourly_usd),
                ("priceDate", row.new.date),
                ("priceRegion", row.new.region),
            ):
                text = put(text, (*entry, key), value)
        write_whole(path, text)
    except OSError as error:
        raise Failure(WRONG_USAGE, f"cannot write {path.name}: {error.strerror}") from None
    except NotEditable as error:
        raise Failure(FAILED, f"cannot set prices in {path.name}: {error}; write them by hand (--dry-run)") from None


def _table(rows: Sequence[Row]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("an hour of", "was", "is"):
        table.add_column(name, overflow="fold")
    for row in rows:
        new = _told(row.new) if row.new else row.problem or "no On-Demand price in the list"
        table.add_row(row.instance_type, _told(row.old), Text(new, "bold" if row.changes else "dim"))
    return table


def _told(price: Price | None) -> str:
    return f"${price.hourly_usd:,.4f} {price.region} {price.date}" if price else "unknown"


def _summary(rows: Sequence[Row], name: str, written: str) -> Text:
    changed = sum(row.changes for row in rows)
    if written:
        return Text(
            f"{name}: {changed} {'price' if changed == 1 else 'prices'} written to instanceTypes.", "bold green"
        )
    if changed:
        return Text(f"{changed} would be written to {name}.", "bold")
    return Text("Nothing to change." if not any(row.problem for row in rows) else "Nothing was changed.", "bold")
