"""``trn capacity``: what is shown, and purchases in a simulated market, refused, interrupted and done again."""

import json
import os
import re
import signal
from datetime import timedelta
from types import SimpleNamespace

import pytest
import typer
import yaml
from aws_double import AwsError
from botocore.exceptions import ReadTimeoutError
from ec2_market import NOW, Market
from golden import ROOT

from trainium_eks.aws import sessions
from trainium_eks.aws.account import Account
from trainium_eks.cli.environment import capacity as command
from trainium_eks.client import capacity, capacity_purchase

OFFERING = "cb-0111-72-0"
PRICE = "11520.00"
BUY = (OFFERING, "--group", "january", "--type", "trn1.32xlarge", "--nodes", "8", "--days", "3")
AGREED = (*BUY, "--agree-usd", PRICE)
RESERVATION = "cr-00000000000000001"
DEV = ROOT / "Pulumi.dev.yaml"


@pytest.fixture
def market(monkeypatch):
    """The account of the commands, with a clock."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int(NOW.timestamp())))
    monkeypatch.setattr(capacity_purchase, "LOOK_SECONDS", 0)
    made = Market()
    for module in (capacity, capacity_purchase):
        monkeypatch.setattr(module, "Account", lambda region: Account(region, made.session()))
    connect = sessions.connect

    def connected(service, region, session=None, **config):
        assert config["retries"]["total_max_attempts"] == 1, "a purchase is sent once"
        return connect(service, region, session or made.session(), **config)

    monkeypatch.setattr(sessions, "connect", connected)
    return made


@pytest.fixture
def stack(tmp_path):
    """A project with the stack dev of this repository."""
    for name in ("Pulumi.yaml", "Pulumi.dev.yaml", "__main__.py"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    return tmp_path / "Pulumi.dev.yaml"


@pytest.fixture
def run(trn, stack):
    return lambda *words: trn("capacity", *words, "--stack", "dev", "--directory", stack.parent)


@pytest.fixture
def terminal(monkeypatch):
    """A terminal at which a person does this."""

    def does(action):
        yes = SimpleNamespace(isatty=lambda: True)
        monkeypatch.setattr(command, "sys", SimpleNamespace(stdin=yes, stdout=yes, stderr=yes))
        monkeypatch.setattr(command.typer, "prompt", lambda *_, **__: action())

    return does


def groups(file):
    return yaml.safe_load(file.read_text())["config"]["trainium-eks:nodeGroups"]


def page(kind):
    """The block of a kind in the page."""
    [found] = re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs" / "capacity.md").read_text(), re.DOTALL)
    return found


def bought(file):
    """The group of the page is added, and nothing else changed."""
    [group] = yaml.safe_load(page("yaml"))["trainium-eks:nodeGroups"]
    capacity = {**group["capacity"], "id": RESERVATION}
    assert groups(file) == [*groups(DEV), {**group, "name": "january", "capacity": capacity}]
    assert {line for line in DEV.read_text().splitlines() if "#" in line} <= set(file.read_text().splitlines())
    return True


def test_page_shows_the_printed_table(market, run):
    [line] = re.findall(r"^trn capacity (--type .*)$", (ROOT / "docs" / "capacity.md").read_text(), re.MULTILINE)
    market.only = ("0111-72", "0112-48")
    market.refused["us-east-2", "DescribeCapacityBlockOfferings"] = AwsError("UnauthorizedOperation")
    shown = run(*line.split())
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(page("text"))


def test_program_of_the_page_buys_the_cheapest_block(market, stack, monkeypatch):
    monkeypatch.chdir(stack.parent)
    market.only = ("0111-72",)
    exec(page("python"), {})
    assert groups(stack)[-1]["capacity"]["id"] == market.reservations[0]["CapacityReservationId"] == RESERVATION


def test_search_is_json_without_a_stack_and_fails_without_a_plan(market, trn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--type", "trn2.48xlarge", "--nodes", "8", "--hours", "70", "--by", "2027-01-31", "--json")
    shown = trn("capacity", *words, "--regions", "us-east-2")
    document = json.loads(shown.stdout)
    assert (shown.exit_code, document["plans"], document["rows"][0]["offer"]["usd"]) == (1, [], None)
    assert document["hints"][0].startswith("no single block holds the deadline")
    market.regions = ("us-east-2",)
    market.refused["us-east-2", "DescribeCapacityBlockOfferings"] = AwsError("UnauthorizedOperation")
    document = json.loads(trn("capacity", *words, "--regions", "us-east-2").stdout)
    assert document["notChecked"] == {"us-east-2": "the right ec2:DescribeCapacityBlockOfferings is missing"}


def test_price_typed_at_a_terminal_buys_and_writes_the_group(market, run, stack, terminal):
    terminal(lambda: "11,520")
    shown = run("buy", *BUY)
    assert shown.exit_code == 0, shown.output
    assert "Block for january: 8 nodes in usw2-az4, 11 Jan 11:30 to 14 Jan 11:30 UTC, for 11,520.00 USD" in shown.stdout
    assert "+    - name: january" in shown.stdout
    assert "id: <its reservation>, zoneId: usw2-az4" in shown.stdout
    assert f"Bought: {RESERVATION}" in shown.stderr
    assert bought(stack)
    assert {"Key": "trainium-eks/offering", "Value": OFFERING} in market.reservations[0]["Tags"]


def test_agreed_price_buys_once_and_a_second_run_only_writes_the_file(market, run, stack):
    before = stack.read_text()
    market.shift = 1  # EC2 names the block anew
    assert "EC2 does not sell cb-0111-72-0" in run("buy", *AGREED).output
    assert run("buy", *AGREED, "--starts", "2027-01-11T11:30:00Z").exit_code == 0
    assert bought(stack)
    stack.write_text(before)
    assert json.loads(run("buy", *BUY, "--json").stdout)["reservation"] == RESERVATION
    assert bought(stack)
    assert market.count("PurchaseCapacityBlock", dry_run=False) == 1


def abort():
    raise typer.Abort


OTHER = {
    "no terminal": ((), None, 0, "Nothing was bought: type the price at a terminal, or give --agree-usd 11520.00"),
    "json": (("--json",), None, 0, '"reservation": ""'),
    "wrong price": (("--agree-usd", "11519.99"), None, 1, "the price is 11520.00 USD, not 11519.99"),
    "no price": (("--agree-usd", "yes"), None, 1, "yes is no price: nothing was bought"),
    "name": (("--agree-usd", PRICE, "--group", "Jan_1"), None, 1, "Jan_1 cannot have this block: nothing was bought"),
    "options": (("--days", "15", "--type", "trn1n.32xlarge", "--starts", "soon"), None, 2, "1 to 14, or a multiple"),
    "enter": ((), lambda _: "", 0, "Nothing was bought"),
    "other price": ((), lambda _: "1", 1, "the price is 11520.00 USD, not 1"),
    "ctrl-c": ((), lambda _: abort(), 130, "Nothing was bought."),
    "dearer meanwhile": ((), lambda market: setattr(market, "factor", 1.1) or PRICE, 1, "for 11520.00 USD any more"),
    "gone meanwhile": ((), lambda made: setattr(made, "regions", ()) or PRICE, 1, "does not sell cb-0111-72-0 in us"),
}


@pytest.mark.parametrize(("words", "answer", "code", "text"), OTHER.values(), ids=OTHER)
def test_nothing_is_bought_without_the_price_in_time(market, run, stack, terminal, words, answer, code, text):
    if answer:
        terminal(lambda: answer(market))
    shown = run("buy", *BUY, *words)
    assert (shown.exit_code, text in shown.output) == (code, True), shown.output
    assert (market.reservations, stack.read_text()) == ([], DEV.read_text())


REFUSALS = {
    "PurchaseCapacityBlock": ("UnauthorizedOperation", 1, json.dumps(capacity_purchase.STATEMENT)),
    "DescribeCapacityReservations": ("ExpiredToken", 2, "nothing was bought: AWS does not take these credentials"),
    "DescribeCapacityBlockOfferings": ("RequestLimitExceeded", 1, "nothing was bought; AWS throttled the question"),
}


@pytest.mark.parametrize("operation", REFUSALS)
def test_refusal_of_aws_comes_before_the_question(market, run, terminal, operation):
    terminal(lambda: pytest.fail("asked"))
    error, code, text = REFUSALS[operation]
    market.refused[operation] = AwsError(error, "You are not authorized")
    shown = run("buy", *BUY)
    assert (shown.exit_code, text in shown.output) == (code, True), shown.output


@pytest.mark.parametrize("is_served", [True, False])
def test_purchase_without_an_answer_is_looked_for_and_not_repeated(market, run, stack, is_served):
    def no_answer(asked):
        if is_served and not asked["DryRun"]:
            market.purchase_capacity_block(asked)
        return None if asked["DryRun"] else ReadTimeoutError(endpoint_url="https://ec2")

    market.refused["PurchaseCapacityBlock"] = no_answer
    shown = run("buy", *AGREED)
    assert market.count("PurchaseCapacityBlock", dry_run=False) == 1
    assert shown.exit_code == ("is not known: run the same command again" in shown.output) == (not is_served)
    assert not is_served or bought(stack)


def test_ctrl_c_during_a_purchase_waits_for_the_file(market, run, stack):
    def interrupted(asked):
        if not asked["DryRun"]:
            os.kill(os.getpid(), signal.SIGINT)

    market.refused["PurchaseCapacityBlock"] = interrupted
    shown = run("buy", *AGREED)
    assert shown.exit_code == 130
    assert "The purchase is finished first." in shown.stderr
    assert bought(stack)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("instanceType: trn1.32xlarge", "january has on-demand capacity"),
        ("capacity: {type: capacity-block, id: cr-1}, instanceType: trn2.48xlarge", "capacity of trn2.48xlarge"),
        ("instanceType: trn1.32xlarge, capacity: {type: capacity-block, id: c, ends: '2027-01-05T11:30:00Z'}",
         "january has c until 2027-01-05T11:30:00Z, and a group has one block at a time"),
    ],
)  # fmt: skip
def test_group_in_use_is_refused(market, run, stack, group, reason):
    list_ = "trainium-eks:nodeGroups:\n"
    stack.write_text(stack.read_text().replace(list_, f"{list_}    - {{name: january, {group}}}\n"))
    shown = run("buy", *AGREED)
    assert (shown.exit_code, reason in shown.output, market.reservations) == (1, True, []), shown.output


def test_block_that_is_over_gives_its_group_to_the_next(market, run, stack, monkeypatch):
    assert run("buy", *AGREED).exit_code == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int((NOW + timedelta(days=12)).timestamp())))
    later = ["cb-0118-72-0", *BUY[1:]]
    assert run("buy", *later, "--agree-usd", PRICE).exit_code == 0
    assert groups(stack)[-1]["capacity"]["starts"] == "2027-01-18T11:30:00Z"
    assert len(groups(stack)) == len(groups(DEV)) + 1


def test_extension_is_bought_once_at_its_price_and_writes_the_new_end(market, run, stack):
    assert run("buy", *AGREED).exit_code == 0
    assert "Nothing was bought" in run("extend", "january", "--days", "1").stdout
    assert "the price is 3840.00 USD" in run("extend", "january", "--days", "1", "--agree-usd", "1").output
    assert market.extensions == []
    written = stack.read_text()
    for text in ("Extension of january: 8 nodes", "Bought before, for january"):
        stack.write_text(written)
        assert text in run("extend", "january", "--days", "1", "--agree-usd", "3840").stdout
        assert groups(stack)[-1]["capacity"]["ends"] == "2027-01-15T11:30:00Z"
    assert len(market.extensions) == 1
    market.sold = lambda _: False
    assert "EC2 sells no extension" in run("extend", "january", "--days", "2").output
    assert "1 to 14, or a multiple of 7" in run("extend", "january", "--days", "15").output
    assert "is no group of dev with a Capacity Block" in run("extend", "trn1", "--days", "1").output
