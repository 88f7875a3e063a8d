"""``trn capacity``: where to buy nodes for a run, the purchase of a Capacity Block, and its extension."""

import sys
from collections.abc import Iterable
from contextlib import nullcontext, suppress
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer
from rich.console import Console, Group, RenderableType
from rich.text import Text
from typer.core import TyperGroup

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import lines, show_sections, table
from trainium_eks.cli.shared.with_cluster_options import cluster_options_without
from trainium_eks.client import capacity, capacity_purchase
from trainium_eks.client.capacity import Market, Row, SearchOptions, Stack, to_json
from trainium_eks.client.capacity_purchase import BlockOptions, Purchase
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, CommandError
from trainium_eks.client.notices import say
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing.capacity_plan import Offer, Plan
from trainium_eks.model.validation.formats import utc_text

_MOST_ROWS = 8
"""Most rows of blocks that hold the deadline, of others, and of Spot."""
_TIME = "%d %b %H:%M"
_PLANS = {"block": "One block", "blocks": "Blocks", "on-demand": "On-Demand", "mixed": "Blocks and On-Demand"}

Agree = Annotated[
    str | None, typer.Option("--agree-usd", help="Price in USD that you agree to, as the dry run shows it.")
]
_with_options = cluster_options_without("namespace", "outputs", "kubeconfig")


class _SearchByDefault(TyperGroup):
    """The group, whose command is ``search`` where options come first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_search = args and args[0].startswith("-") and args[0] != "--help"
        return super().parse_args(ctx, ["search", *args] if is_search else args)


app = App(
    asks_cloud=False,
    cls=_SearchByDefault,
    no_args_is_help=True,
    help="Where to buy nodes for a run: `trn capacity --type trn1.32xlarge --nodes 8 --hours 72 --by 2027-01-31`.",
)


@app.command(
    short_help="Show what EC2 sells for a run; the default.",
    example="trn capacity search --type trn1.32xlarge --nodes 8 --hours 72 --by 2027-01-31",
)
@_with_options
def search(options: SearchOptions, *, cluster: ClusterOptions) -> None:
    """Show Capacity Blocks of all regions beside On-Demand and Spot, and the cheapest plans for a run. Only reads.

    A run may go on in another block, from its checkpoint. Prices of a useful hour count faults and checkpoints
    (docs/goodput.md). The stack's config says how fast checkpoints are; in a block only its own region can be bought.

    Exit code: 0; 1 when nothing that is known holds the deadline; 2 for wrong usage, and without credentials.
    """
    stack = Stack()
    with suppress(CommandError):  # without a project, the defaults count
        stack = Stack.find(cluster.stack, cluster.directory)
    shown = not cluster.as_json and sys.stderr.isatty()
    with Console(stderr=True).status("Asking EC2 what it sells") if shown else nullcontext():
        found = capacity.search(options, stack)
    if cluster.as_json:
        output.answer(cluster, {**to_json(found), "notChecked": dict(found.not_checked)}, "")
    else:
        for section, commands in _sections(found, stack.region):
            show_sections([section], no_color=cluster.no_color)
            # Without Rich, which would fold them.
            output.write("".join([f"  {line}\n" for line in commands] + ["\n"] if commands else []))
    raise typer.Exit(0 if found.plans else FAILED)


@app.command(
    short_help="Buy a Capacity Block for a group of the stack.",
    example="trn capacity buy cb-0123456789abcdef0 --group january --type trn1.32xlarge --nodes 8 --days 4",
)
@_with_options
def buy(options: BlockOptions, agree_usd: Agree = None, *, cluster: ClusterOptions) -> None:
    """Show what is bought, its price and the change of Pulumi.<stack>.yaml; buy it when you type the price.

    A block cannot be given back. Without a terminal nothing is bought, except with --agree-usd and the exact price. The
    same command again buys nothing twice: it finds what was bought, and writes the file.

    Exit code: 0, also when nothing was bought; 1 when it is not sold, or may not be bought; 2 for wrong usage.
    """
    purchase = capacity_purchase.prepare_block(options, Stack.find(cluster.stack, cluster.directory))
    _finish(purchase, options.group, agree_usd, cluster)


@app.command(short_help="Extend the Capacity Block of a group.", example="trn capacity extend january --days 1")
@_with_options
def extend(
    group: Annotated[str, typer.Argument(help="Node group with the block.", show_default=False)],
    days: Annotated[int, typer.Option("--days", help="Days to add: 1 to 14, or a multiple of 7 up to 182.")],
    agree_usd: Agree = None,
    *,
    cluster: ClusterOptions,
) -> None:
    """Show the price of a longer Capacity Block; buy it when you type the price, and write the new end.

    `pulumi up` then brings the new end to running gangs.

    Exit code: 0, also when nothing was bought; 1 when it is not sold, or may not be bought; 2 for wrong usage.
    """
    purchase = capacity_purchase.prepare_extension(group, days, Stack.find(cluster.stack, cluster.directory))
    _finish(purchase, group, agree_usd, cluster)


def _finish(purchase: Purchase, group: str, agree_usd: str | None, cluster: ClusterOptions) -> None:
    """Show a purchase, ask for its price, and complete it."""
    offer = purchase.offer
    change = [line.replace(capacity_purchase.UNBOUGHT, "<its reservation>") for line in purchase.edit.difference()]
    title = f"{offer.nodes} nodes in {offer.zone}, {offer.starts:{_TIME}} to {offer.ends:{_TIME}} UTC"
    if purchase.is_bought:
        title = f"Bought before: {purchase.reservation}, {title}"
    else:
        title = f"{'Extension of' if purchase.reservation else 'Block for'} {group}: {title}, for {offer.usd:,.2f} USD"
    if not cluster.as_json:
        diff = [(f"  {line}", {"+": "green", "-": "red"}.get(line[:1], "dim")) for line in change]
        shown = Group(Text(title, "bold"), lines([(purchase.edit.file.name, "bold"), *diff]))
        show_sections([shown], no_color=cluster.no_color)
    agreed = None if purchase.is_bought else _agreed(offer, agree_usd, asks=not cluster.as_json)
    reservation = ""
    text = f"Nothing was bought: type the price at a terminal, or give --agree-usd {offer.usd}."
    if purchase.is_bought or agreed is not None:
        reservation = capacity_purchase.complete(purchase, agreed, say)
        text = f"{group} has {reservation}: `pulumi up` brings it to the cluster, and a new end to running gangs."
    document = {"group": group, "reservation": reservation, "offer": to_json(offer), "change": change}
    output.answer(cluster, document, text)


def _agreed(offer: Offer, given: str | None, *, asks: bool) -> Decimal | None:
    """Return the price that a person agrees to; None for no agreement."""
    typed = given or ""
    if given is None and asks and sys.stdin.isatty() and sys.stdout.isatty():
        question = f"It cannot be given back. Type the price to buy it ({offer.usd}), or press Enter to leave it"
        try:
            typed = typer.prompt(question, default="", show_default=False)
        except typer.Abort:
            say("\nNothing was bought.")
            raise KeyboardInterrupt from None
    if not typed.strip():
        return None
    try:
        return Decimal(typed.replace(",", "").strip())
    except InvalidOperation:
        raise CommandError(f"{typed} is no price: nothing was bought") from None


def _sections(found: Market, region: str) -> Iterable[tuple[RenderableType, list[str]]]:
    """Yield the table, the plans with the commands that buy them, and what is not known."""
    options, rows = found.options, found.rows
    title = f"{options.nodes} x {options.instance_type}, {options.hours:g} hours of training by {options.by} (UTC)"
    shown = table("capacity", "start", "end", "zone", "hours", "USD", "useful h", "deadline", wide=False)
    kinds = ([row for row in rows if row.offer and row.done], [row for row in rows if row.offer and not row.done])
    for row in [row for each in (*kinds, [row for row in rows if not row.offer]) for row in each[:_MOST_ROWS]]:
        shown.add_row(*_cells(row, options.hours))
    more = sum(max(len(each) - _MOST_ROWS, 0) for each in kinds)
    yield Group(Text(title, "bold"), shown, lines([(f"{more} more: --json has them", "dim")] if more else [])), []
    for plan in found.plans:
        word = _PLANS[plan.kind]
        head = f"{word} in {plan.region}: {plan.usd:,.2f} USD, done {plan.done:{_TIME}}"
        parts = [
            (f"  {each.starts:{_TIME}} to {each.ends:{_TIME}}  {each.offer.id if each.offer else 'On-Demand'}", "")
            for each in plan.stretches
        ]
        yield lines([(head, "bold"), *parts]), [] if plan.region != region else _commands(plan, options)
    if not found.plans:
        yield Text("Nothing that is known holds the deadline.", "bold red"), []
    notes = [(f"not checked: {name}: {why}", "yellow") for name, why in found.not_checked.items()]
    notes += [(f"hint: {hint}", "") for hint in found.hints]
    notes.append(("On-Demand and Spot at the list price of On-Demand, and only if EC2 has all nodes free.", "dim"))
    yield lines(notes), []


def _cells(row: Row, hours: float) -> list[str]:
    prices = ["not known" if price is None else f"{price:,.2f}" for price in (row.usd, row.usd_per_useful_hour)]
    amounts = [f"{row.training_hours:.1f}", *prices]
    held = f"done {row.done:{_TIME}}" if row.done else f"{row.training_hours:.0f} of {hours:g} h"
    if offer := row.offer:
        return [offer.id, f"{offer.starts:{_TIME}}", f"{offer.ends:{_TIME}}", offer.zone, *amounts, held]
    zones = row.zones[0] if len(row.zones) == 1 else f"{len(row.zones)} zones"
    name = "On-Demand" if row.score is None else f"Spot, score {row.score}"
    return [name, "", "", zones, *amounts, "too late" if not row.done else "if free" if not row.score else "no promise"]


def _commands(plan: Plan, options: SearchOptions) -> list[str]:
    """Return the commands that buy the blocks of a plan; UltraServers are bought one by one."""
    each_block = CATALOGUE[options.instance_type].ultraserver_nodes or options.nodes
    return [
        f"trn capacity buy {offer.id} --group block-{offer.starts:%m%d} --type {options.instance_type} "
        f"--nodes {offer.nodes} --days {offer.days} --starts {utc_text(offer.starts)}"
        for offer in (each.offer for each in plan.stretches)
        if offer and offer.nodes == each_block
    ]
