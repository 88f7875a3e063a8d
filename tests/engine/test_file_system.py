"""Another file system on a real engine: what goes, in which order, and that the plan says so."""

from engine.rig import Config, Rig, called, succeeded

from trainium_eks.plan.differences.diff import compare

CLAIM = "PersistentVolumeClaim trn-dev-training-claim"
FILE_SYSTEM = "LustreFileSystem trn-dev-fsx-file-system"
GOES = [
    CLAIM,
    "PersistentVolume trn-dev-volumes-training",
    "Job trn-dev-volumes-directories",
    "PersistentVolumeClaim trn-dev-volumes-setup-claim",
    "PersistentVolume trn-dev-volumes-lustre-setup",
    FILE_SYSTEM,
]
"""In the order of deletion: whoever is made from another goes before it."""


def another(config: Config) -> None:
    config["trainium-eks:fileSystem"] = {"deploymentType": "SCRATCH_2", "durability": {"type": "none"}}


def test_what_stands_on_a_file_system_goes_before_it_and_namespaces_before_their_volumes(rig: Rig) -> None:
    rig.begin("dev")
    succeeded(rig.up("dev"))
    before = rig.recorded("dev")
    rig.configure("dev", another)

    planned = compare(before, rig.recorded("dev"))
    assert {called(each.resource.urn) for each in planned.replaced} == set(GOES)
    assert [called(each.resource.urn) for each in planned.claims] == [CLAIM]

    up = succeeded(rig.up("dev"))
    assert [step.name for step in up.steps if step.operation == "delete-replaced"] == GOES
    done = [step.operation for step in up.steps if step.operation in ("delete-replaced", "create-replacement")]
    assert done == ["delete-replaced"] * len(GOES) + ["create-replacement"] * len(GOES)

    down = succeeded(rig.destroy("dev"))
    order = [step.name for step in down.steps if step.operation == "delete"]
    for namespace, volume in (
        ("Namespace trn-dev-training-namespace", "PersistentVolume trn-dev-volumes-training"),
        ("Namespace trn-dev-volumes-setup", "PersistentVolume trn-dev-volumes-lustre-setup"),
    ):
        # Kubernetes keeps a volume as long as its claim, and the claim ends with its namespace.
        assert order.index(namespace) < order.index(volume) < order.index(FILE_SYSTEM)
