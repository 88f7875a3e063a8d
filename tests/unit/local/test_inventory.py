"""The inventory of a stack's resources: a later ``up`` finds every resource, also after a kill."""

import stat
from dataclasses import replace
from types import SimpleNamespace

import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import inventory
from trainium_eks.local.changes import Change
from trainium_eks.local.deployment import UpFailedError, _delete_all, _Tally
from trainium_eks.local.events import Done, Failed
from trainium_eks.local.paths import Paths
from trainium_eks.plan.graph import Graph, Options, Resource

PREFIX = "urn:pulumi:dev::p::"
VPC, NAMESPACE = "aws:ec2/vpc:Vpc", "kubernetes:core/v1:Namespace"


def resource(name, *after, called="", type_=NAMESPACE, deleted_with="", options=None, **inputs):
    inputs = {"apiVersion": "v1", "kind": "Namespace", "metadata": {}, **inputs} if type_ == NAMESPACE else inputs
    chosen = options or Options(deleted_with=deleted_with and PREFIX + deleted_with)
    outputs = {"metadata": {"name": called or name}} if type_ == NAMESPACE else {}
    urns = tuple(PREFIX + each for each in after)
    return Resource(PREFIX + name, type_, name, inputs=inputs, outputs=outputs, dependencies=urns, options=chosen)


def graph(*resources):
    return Graph("p", "dev", tuple(sorted(resources, key=lambda each: each.urn)), {})


def names(resources):
    return [each.urn.removeprefix(PREFIX) for each in resources]


@pytest.fixture
def paths(tmp_path):
    return Paths(tmp_path)


def end_well(paths, *resources):
    inventory.begin(paths, graph(*resources), inventory.load(paths))
    inventory.complete(paths, inventory.list_items(graph(*resources)))


def test_resources_are_listed_after_those_they_depend_on(paths):
    assert inventory.load(paths) == []
    end_well(paths, resource("a", "c"), resource("b", "a"), resource("c"))
    assert names(inventory.load(paths)) == ["c", "a", "b"]
    assert not paths.unfinished.exists()
    assert stat.S_IMODE(paths.made.stat().st_mode) == 0o600


def test_killed_up_leaves_old_and_new_resources_on_the_list(paths):
    end_well(paths, resource("a"), resource("b", "c"), resource("c"))
    whole = paths.made.read_text()
    inventory.begin(paths, graph(resource("a"), resource("new", "a")), inventory.load(paths))
    assert not paths.made.exists()
    paths.made.write_text(whole)  # as after a kill before it was removed
    found = inventory.load(paths)
    assert names(found) == ["a", "new", "c", "b"]
    assert names([each for each in found if each.whole]) == ["a", "c", "b"]
    end_well(paths, resource("b"))
    assert names(inventory.load(paths)) == ["b"]


def test_object_with_another_name_is_left_over():
    [before, now] = (inventory.list_items(graph(resource("job", called=name))) for name in ("job-1", "job-2"))
    assert inventory.find_removed(before, before) == []
    assert [each.reference["name"] for each in inventory.find_removed(before, now)] == ["job-1"]


def test_resources_in_name_only_are_counted_by_their_inputs():
    before = inventory.list_items(graph(*(resource(name, type_=VPC, cidrBlock="10.0.0.0/16") for name in "abc")))
    now = inventory.list_items(graph(*(resource(name, type_=VPC, cidrBlock="10.0.0.0/16") for name in "abd")))
    now[1] = replace(now[1], inputs={"cidrBlock": "10.1.0.0/16"})
    whole = [replace(each, whole=True) for each in before]
    assert inventory.count_simulated(whole, now) == {Change.SAME: 1, Change.UPDATED: 1, Change.CREATED: 1}
    assert inventory.count_simulated(before, now) == {Change.CREATED: 3}, "that up did not end well"


@pytest.mark.parametrize("text", ["{", '{"version": 3, "deployment": {"resources": [{"urn": "u"}]}}'])
def test_unreadable_inventory_is_refused_with_the_fix(paths, text):
    paths.made.write_text(text)
    with pytest.raises(ClusterError, match=r"made\.json is damaged, or of another version.*`trn local down`"):
        inventory.load(paths)


def test_failed_write_keeps_the_old_inventory(paths):
    end_well(paths, resource("a"))
    (paths.root / ".unfinished.json.part").mkdir()
    with pytest.raises(ClusterError, match=r"cannot be written: .*unfinished\.json.*: Is a directory"):
        inventory.begin(paths, graph(resource("b")), inventory.load(paths))
    assert names(inventory.load(paths)) == ["a"]


class Makers:
    def __init__(self, refused=""):
        self.deleted, self.refused = [], refused

    def delete(self, _kind, reference):
        name = reference.get("name", "")
        if name == self.refused:
            raise ClusterError("pods hold it")
        self.deleted.append(name)


def delete(*resources, refused=""):
    makers, events = Makers(refused), []
    tally = _Tally(SimpleNamespace(event=events.append))
    try:
        _delete_all(inventory.list_items(graph(*resources)), makers, tally)
    except UpFailedError as error:
        return makers.deleted, events, str(error)
    return makers.deleted, events, tally.changes


def test_claim_is_deleted_with_its_namespace_and_before_its_volume():
    claim = resource("claim", "room", "volume", deleted_with="room")
    quota = resource("quota", "room", "claim", deleted_with="room")
    deleted, events, _ = delete(resource("volume"), resource("room"), claim, quota)
    assert list(dict.fromkeys(deleted)) == ["room", "volume"]
    assert names(events)[:2] == ["quota", "claim"]
    assert delete(claim)[0] == ["claim"], "its namespace stays"


def test_protected_resource_stops_every_deletion():
    deleted, _, said = delete(resource("a"), resource("b", options=Options(protect=True)))
    assert deleted == []
    assert said == f"these are no longer in the program but protected, so nothing was deleted:\n  {PREFIX}b"


def test_retained_resource_is_kept_and_reported():
    inside = resource("inside", "kept", deleted_with="kept")
    deleted, events, changes = delete(inside, resource("kept", options=Options(retain_on_delete=True)))
    assert deleted == ["inside"]
    assert [each.change for each in events] == [Change.DELETED, Change.KEPT]
    assert changes == {"object": {Change.DELETED: 1}}


def test_refused_deletion_stops_the_later_deletions():
    deleted, events, said = delete(resource("a"), resource("b", "a"), resource("c", "b"), refused="b")
    assert (deleted, said) == (["c"], "what is no longer in the program could not be deleted")
    assert events == [Done(f"{PREFIX}c", "object", "c", Change.DELETED), Failed(f"{PREFIX}b", "pods hold it")]
