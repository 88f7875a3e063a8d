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
from trainium_eks.client import capacity, capacity_purchase, stack_edit

OFFERING = "cb-0111-72-0"
PRICE = "11520.00"
BUY = (OFFERING, "--group", "january", "--type", "trn1.32xlarge", "--nodes", "8", "--days", "3")
RESERVATION = "cr-00000000000000001"


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
    """A terminal at which a person types this."""

    def types(text):
        yes = SimpleNamespace(isatty=lambda: True)
        monkeypatch.setattr(command, "sys", SimpleNamespace(stdin=yes, stdout=yes, stderr=yes))

        def prompt(*_, **__):
            if isinstance(text, BaseException):
                raise text
            return text

        monkeypatch.setattr(command.typer, "prompt", prompt)

    return types


def groups(file):
    return yaml.safe_load(file.read_text())["config"]["trainium-eks:nodeGroups"]


def bought(file):
    """The group as it is after the purchase, and nothing else changed."""
    *before, group = groups(file)
    assert before == groups(ROOT / "Pulumi.dev.yaml")
    comments = [line for line in (ROOT / "Pulumi.dev.yaml").read_text().splitlines() if "#" in line]
    assert set(comments) <= set(file.read_text().splitlines())
    times = {"starts": "2027-01-11T11:30:00Z", "ends": "2027-01-14T11:30:00Z", "nodes": 8}
    assert group == {
        "name": "january",
        "instanceType": "trn1.32xlarge",
        "minSize": 0,
        "maxSize": 8,
        "desiredSize": 0,
        "ignoreDesiredSize": True,
        "capacity": {"type": "capacity-block", "id": RESERVATION, "zoneId": "usw2-az4", **times},
    }
    return True


def test_page_shows_what_the_search_prints(market, run):
    page = (ROOT / "docs" / "capacity.md").read_text()
    [line] = re.findall(r"^trn capacity (--type .*)$", page, re.MULTILINE)
    [table] = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    market.only = ("0111-72", "0112-48")
    market.refused["us-east-2", "DescribeCapacityBlockOfferings"] = AwsError("UnauthorizedOperation")
    shown = run(*line.split())
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith(table.rpartition("\n\n")[0])
    assert table.rpartition("\n\n")[2] in shown.stdout


def test_program_of_the_page_buys_the_cheapest_block(market, stack, monkeypatch):
    monkeypatch.chdir(stack.parent)
    market.only = ("0111-72",)
    [program] = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "capacity.md").read_text(), re.DOTALL)
    exec(program, {})
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
    terminal("11,520")
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
    assert run("buy", *BUY, "--agree-usd", "11520").exit_code == 0
    assert bought(stack)
    stack.write_text(before)
    shown = run("buy", *BUY, "--json")
    assert json.loads(shown.stdout)["reservation"] == RESERVATION
    assert bought(stack)
    assert market.count("PurchaseCapacityBlock", dry_run=False) == 1


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 0, "Nothing was bought: type the price at a terminal, or give --agree-usd 11520.00"),
        (("--json",), 0, '"reservation": ""'),
        (("--agree-usd", "11519.99"), 1, "the price is 11520.00 USD, not 11519.99"),
        (("--agree-usd", "yes"), 1, "yes is no price: nothing was bought"),
    ],
)
def test_nothing_is_bought_without_a_terminal_or_the_price(market, run, stack, words, code, text):
    shown = run("buy", *BUY, *words)
    assert (shown.exit_code, text in shown.output) == (code, True), shown.output
    assert market.reservations == []
    assert stack.read_text() == (ROOT / "Pulumi.dev.yaml").read_text()


@pytest.mark.parametrize("typed", ["", "1", typer.Abort()])
def test_person_who_does_not_type_the_price_buys_nothing(market, run, stack, terminal, typed):
    terminal(typed)
    assert run("buy", *BUY).exit_code == {"": 0, "1": 1}.get(typed if isinstance(typed, str) else None, 130)
    assert market.reservations == []
    assert stack.read_text() == (ROOT / "Pulumi.dev.yaml").read_text()


def test_offer_that_is_gone_or_dearer_when_the_person_agrees_is_not_bought(market, run, monkeypatch, terminal):
    def then(change):
        def prompt(*_, **__):
            change()
            return PRICE

        terminal(PRICE)
        monkeypatch.setattr(command.typer, "prompt", prompt)
        return run("buy", *BUY)

    assert "does not sell cb-0111-72-0 for 11520.00 USD any more" in then(lambda: setattr(market, "factor", 1.1)).output
    market.factor = 1.0
    assert (
        "EC2 does not sell cb-0111-72-0 in us-west-2 now"
        in then(lambda: setattr(market, "sold", lambda _: False)).output
    )
    assert market.reservations == []


def test_same_block_under_a_new_offering_is_found_by_its_start(market, run, stack):
    market.shift = 1
    assert "EC2 does not sell cb-0111-72-0" in run("buy", *BUY, "--agree-usd", PRICE).output
    assert run("buy", *BUY, "--starts", "2027-01-11T11:30:00Z", "--agree-usd", PRICE).exit_code == 0
    assert bought(stack)
    assert "january has cr-" in run("buy", *BUY).output, "the offering that was typed is its tag"


def test_missing_right_is_refused_before_the_price_with_the_statement(market, run):
    market.refused["PurchaseCapacityBlock"] = AwsError("UnauthorizedOperation", "You are not authorized")
    shown = run("buy", *BUY)
    assert shown.exit_code == 1
    assert (
        '"Action": ["ec2:PurchaseCapacityBlock", "ec2:PurchaseCapacityBlockExtension", "ec2:CreateTags"]'
        in shown.output
    )


def test_old_credentials_buy_nothing(market, run):
    market.refused["DescribeCapacityReservations"] = AwsError("ExpiredToken")
    shown = run("buy", *BUY, "--agree-usd", PRICE)
    assert (shown.exit_code, "nothing was bought: AWS does not take these credentials" in shown.output) == (2, True)
    assert market.reservations == []


@pytest.mark.parametrize("is_served", [True, False])
def test_purchase_without_an_answer_is_looked_for_and_not_repeated(market, run, stack, is_served):
    def no_answer(asked):
        if asked["DryRun"]:
            return None
        if is_served:
            market.purchase_capacity_block(asked)
        return ReadTimeoutError(endpoint_url="https://ec2")

    market.refused["PurchaseCapacityBlock"] = no_answer
    shown = run("buy", *BUY, "--agree-usd", PRICE)
    assert market.count("PurchaseCapacityBlock", dry_run=False) == 1
    if is_served:
        assert shown.exit_code == 0, shown.output
        assert bought(stack)
    else:
        assert shown.exit_code == 1
        assert "is not known: run the same command again" in shown.output


def test_ctrl_c_during_a_purchase_waits_for_the_file(market, run, stack):
    def interrupted(asked):
        if not asked["DryRun"]:
            os.kill(os.getpid(), signal.SIGINT)

    market.refused["PurchaseCapacityBlock"] = interrupted
    shown = run("buy", *BUY, "--agree-usd", PRICE)
    assert shown.exit_code == 130
    assert "The purchase is finished first." in shown.stderr
    assert bought(stack)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_kill_before_the_file_is_written_loses_nothing(market, run, stack, monkeypatch):
    monkeypatch.setattr(stack_edit.GroupEdit, "write", lambda _: (_ for _ in ()).throw(SystemExit(137)))
    shown = run("buy", *BUY, "--agree-usd", PRICE)
    assert (shown.exit_code, f"Bought: {RESERVATION}" in shown.stderr) == (137, True)
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ("{name: january, instanceType: trn1.32xlarge}", "january has on-demand capacity"),
        (
            "{name: january, instanceType: trn2.48xlarge, capacity: &c {type: capacity-block, id: cr-1}}",
            "has capacity-block capacity of trn2.48xlarge",
        ),
        (
            "{name: january, instanceType: trn1.32xlarge, capacity: {type: capacity-block, id: cr-1, "
            "ends: '2027-01-05T11:30:00Z'}}",
            "january has cr-1 until 2027-01-05T11:30:00Z, and a group has one block at a time",
        ),
    ],
)
def test_group_in_use_is_refused(market, run, stack, group, reason):
    text = stack.read_text()
    stack.write_text(text.replace("trainium-eks:nodeGroups:\n", f"trainium-eks:nodeGroups:\n    - {group}\n"))
    shown = run("buy", *BUY, "--agree-usd", PRICE)
    assert (shown.exit_code, reason in shown.output) == (1, True), shown.output
    assert market.reservations == []


def test_group_that_the_config_refuses_is_not_bought(market, run):
    shown = run("buy", *[word.replace("january", "January_1") for word in BUY], "--agree-usd", PRICE)
    assert (shown.exit_code, "January_1 cannot have this block: nothing was bought" in shown.output) == (1, True)
    assert market.reservations == []


def test_block_that_is_over_gives_its_group_to_the_next(market, run, stack, monkeypatch):
    assert run("buy", *BUY, "--agree-usd", PRICE).exit_code == 0
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(int((NOW + timedelta(days=12)).timestamp())))
    later = ["cb-0118-72-0", *BUY[1:]]
    assert run("buy", *later, "--agree-usd", PRICE).exit_code == 0
    assert groups(stack)[-1]["capacity"]["starts"] == "2027-01-18T11:30:00Z"
    assert len(groups(stack)) == len(groups(ROOT / "Pulumi.dev.yaml")) + 1


def test_extension_is_bought_once_at_its_price_and_writes_the_new_end(market, run, stack):
    assert run("buy", *BUY, "--agree-usd", PRICE).exit_code == 0
    assert "Nothing was bought" in run("extend", "january", "--days", "1").stdout
    assert "the price is 3840.00 USD" in run("extend", "january", "--days", "1", "--agree-usd", "1").output
    assert market.extensions == []
    written = stack.read_text()
    assert run("extend", "january", "--days", "1", "--agree-usd", "3840").exit_code == 0
    assert groups(stack)[-1]["capacity"]["ends"] == "2027-01-15T11:30:00Z"
    stack.write_text(written)
    assert "Bought before" in run("extend", "january", "--days", "1", "--agree-usd", "3840").stdout
    assert groups(stack)[-1]["capacity"]["ends"] == "2027-01-15T11:30:00Z"
    assert len(market.extensions) == 1
    market.sold = lambda _: False
    assert "EC2 sells no extension" in run("extend", "january", "--days", "2").output
    assert "1 to 14, or a multiple of 7" in run("extend", "january", "--days", "15").output
    assert "is no group of dev with a Capacity Block" in run("extend", "trn1", "--days", "1").output
