"""The file that says what exists."""

from pathlib import Path

import pytest
from engine.simulated_aws.inventory import Inventory, InventoryError, Thing

THING = Thing("aws:ec2/vpc:Vpc", "vpc-1", "", "urn:one", "urn:one", {"cidrBlock": "10.0.0.0/16"}, {"arn": "a"})


def test_everything_is_there_when_it_is_opened_again(state: Path) -> None:
    with Inventory(state) as inventory:
        inventory.add(THING)
        assert inventory.fails_first("aws:ec2/vpc:Vpc")
        name = inventory.next_name("urn:one")
    with Inventory(state) as inventory:
        assert inventory.things() == (THING,)
        assert inventory.find(THING.type, "vpc-1", "") == THING
        assert not inventory.fails_first("aws:ec2/vpc:Vpc")
        assert inventory.next_name("urn:one") == name == "urn:one#2"


def test_a_file_in_use_is_refused(state: Path) -> None:
    with Inventory(state), pytest.raises(InventoryError, match="in use"):
        Inventory(state)
    Inventory(state).close()
