"""``trn capacity``: where to buy nodes for a run, the purchase of a Capacity Block, and its extension."""

import math
import sys
from contextlib import nullcontext, suppress
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from typer.core import TyperGroup

from trainium_eks.cli.shared import output
from trainium_eks.cli.shared.command import App
from trainium_eks.cli.shared.console import show_sections, table
from trainium_eks.cli.shared.with_cluster_options import cluster_options_without
from trainium_eks.client import capacity, capacity_purchase
from trainium_eks.client.capacity import Market, SearchOptions, Stack, to_json
from trainium_eks.client.capacity_purchase import BlockOptions, Purchase
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED, CommandError
from trainium_eks.client.notices import say
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.model.sizing.capacity_plan import Offer
from trainium_eks.model.validation.formats import utc_text

_MOST_ROWS = 12
"""Most rows of blocks, and of others."""
_TIME = "%d %b %H:%M"

Agree = Annotated[
    str | None, typer.Option("--agree-usd", help="Price in USD that you agree to, as the dry run shows it.")
]
_with_options = cluster_options_without("namespace", "outputs", "kubeconfig")


class _SearchByDefault(TyperGroup):
    """The group, whose command is ``search`` where options come first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_search = args and args[0].startswith("-") and args[0] != "--help"
        return super().parse_args(ctx, ["search", *args] if is_search else args)


_BEGINS = "asking EC2 for the block and its price"

app = App(
    asks_cloud=False,
    cls=_SearchByDefault,
    no_args_is_help=True,
    help="Where to buy nodes for a run: `trn capacity --type trn1.32xlarge --nodes 8 --hours 72 --by 2027-01-31`.",
)


@app.command(
    short_help="Show what EC2 sells for a run; the default.",
    example="trn capacity search --type trn1.32xlarge --nodes 8 --hours 72 --by 2027-01-31",
    begins="",
)
@_with_options
def search(options: SearchOptions, *, cluster: ClusterOptions) -> None:
    """Show Capacity Blocks of all regions beside On-Demand and Spot, and the cheapest plans for a run. Only reads.

    A run may go on in another block, from its checkpoint. Prices of a useful hour count faults and checkpoints
    (docs/goodput.md). The stack's config says how fast checkpoints are; in a block only its own region can be bought.

    Exit code: 0; 1 when nothing that is known holds the deadline; 2 for wrong usage, and without credentials.
    """
    stack = None
    with suppress(CommandError):  # without a project, the defaults count
        stack = Stack.find(cluster.stack, cluster.directory)
    shown = not cluster.as_json and sys.stderr.isatty()
    with Console(stderr=True).status("Asking EC2 what it sells") if shown else nullcontext():
        found = capacity.search(options, stack)
    if cluster.as_json:
        output.answer(cluster, to_json(found), "")
    else:
        gang = f"{options.nodes} x {options.instance_type}"
        output.write(f"{gang}, {options.hours:g} hours of training by {options.by} (UTC)\n")
        show_sections([_table(found)], no_color=cluster.no_color)
        # Without Rich, which would fold the commands.
        output.write(_text(found, stack.values.get("region", "") if stack else ""))
    raise typer.Exit(0 if found.is_feasible else FAILED)


@app.command(
    short_help="Buy a Capacity Block for a group of the stack.",
    example="trn capacity buy cb-0123456789abcdef0 --group january --type trn1.32xlarge --nodes 8 --days 4",
    begins=_BEGINS,
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


@app.command(
    short_help="Extend the Capacity Block of a group.", example="trn capacity extend january --days 1", begins=_BEGINS
)
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
    offer, reservation = purchase.offer, purchase.reservation
    change = [line.replace(capacity_purchase.UNBOUGHT, "<its reservation>") for line in purchase.edit.difference()]
    what = "Block for" if not reservation else "Bought before, for" if purchase.is_bought else "Extension of"
    price = "" if purchase.is_bought else f", for {offer.usd:,.2f} USD"
    times = f"{offer.starts:{_TIME}} to {offer.ends:{_TIME}} UTC"
    title = f"{what} {group}: {offer.nodes} nodes in {offer.zone}, {times}{price}"
    if not cluster.as_json:
        output.write("\n".join([title, "", purchase.edit.file.name, *(f"  {line}" for line in change), "", ""]))
    agreed = None if purchase.is_bought else _agreed(offer, agree_usd, asks=not cluster.as_json)
    text = f"Nothing was bought: type the price at a terminal, or give --agree-usd {offer.usd}."
    is_done = purchase.is_bought or agreed is not None
    if is_done:
        reservation = capacity_purchase.complete(purchase, agreed, say)
        text = f"{group} has {reservation}: `pulumi up` brings it to the cluster, and a new end to running gangs."
    named = reservation if is_done else ""
    output.answer(cluster, {"group": group, "reservation": named, "offer": to_json(offer), "change": change}, text)


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


def _table(found: Market) -> RenderableType:
    """Return the ways to have the nodes, the best blocks first."""
    of_blocks = [row for row in found.rows if row.kind == "capacity-block"]
    shown = table("capacity", "start", "end", "zone", "hours", "USD", "useful h", "deadline", wide=False)
    for row in (*of_blocks[:_MOST_ROWS], *found.rows[len(of_blocks) :][:_MOST_ROWS]):
        offer, usd = row.offer, (row.offer.usd, row.usd_per_useful_hour)
        prices = ("not known" if math.isnan(each) else f"{each:,.2f}" for each in usd)
        done = {"on-demand": "if free", "spot": "no promise"}.get(row.kind, f"done {row.done or offer.ends:{_TIME}}")
        held = done if row.done else f"{row.training_hours:.0f} of {found.need.hours:g} h"
        times = f"{offer.starts:{_TIME}}", f"{offer.ends:{_TIME}}"
        shown.add_row(offer.id, *times, offer.zone, f"{row.training_hours:.1f}", *prices, held)
    return shown


def _text(found: Market, region: str) -> str:
    """Return the cheapest plan and those of the stack's own region, with the commands that buy them; UltraServers are
    bought one by one. Then what is not known."""
    written, options = list[str](), found.options
    each_block = CATALOGUE[options.instance_type].ultraserver_nodes or options.nodes
    for plan in (plan for plan in found.plans if plan is found.plans[0] or plan.region == region):
        what = "One block" if len(plan.offers) == 1 else f"{len(plan.offers)} blocks"
        written.append(f"{what} in {plan.region}: {plan.usd:,.2f} USD, done {plan.done:{_TIME}}")
        written += [f"  {each.starts:{_TIME}} to {each.ends:{_TIME}}  {each.id}" for each in plan.offers]
        written += [
            f"  trn capacity buy {offer.id} --group block-{offer.starts:%m%d} --type {options.instance_type} "
            f"--nodes {offer.nodes} --days {offer.days} --starts {utc_text(offer.starts)}"
            for offer in plan.offers
            if plan.region == region and offer.nodes == each_block
        ]
        written.append("")
    written += [] if found.is_feasible else ["Nothing that is known holds the deadline.", ""]
    more = sum(row.kind == "capacity-block" for row in found.rows) - _MOST_ROWS
    written += [f"{more} more blocks: --json has them"] if more > 0 else []
    written += [f"not checked: {name}: {why}" for name, why in found.not_checked.items()]
    written += [f"hint: {hint}" for hint in found.hints]
    written.append("On-Demand and Spot at the list price of On-Demand, and only if EC2 has all nodes free.")
    return "".join(f"{line}\n" for line in written)
