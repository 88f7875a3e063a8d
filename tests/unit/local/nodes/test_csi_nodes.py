"""What nodes say of the storage drivers on them."""

from dataclasses import replace

import pytest

from trainium_eks.local.nodes.csi_nodes import volumes
from trainium_eks.model.catalogue.instances import CATALOGUE


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("m6i.xlarge", 26),  # one interface and the root volume
        ("trn1.32xlarge", 15),  # eight interfaces, four disks
        ("p5.48xlarge", 1),  # more than all places are taken
    ],
)
def test_a_node_takes_the_volumes_for_which_its_type_has_places(instance_type: str, expected: int) -> None:
    assert volumes(CATALOGUE.find(instance_type)) == expected


def test_each_local_disk_takes_a_place() -> None:
    instance = CATALOGUE.find("m6i.xlarge")
    assert volumes(replace(instance, local_disks=2)) == volumes(instance) - 2
