"""What the ledger promises: nothing that was made is forgotten, whenever the process dies."""

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import ledger as module
from trainium_eks.local.ledger import Holding, Ledger, deletion_order, digest


def holding(name: str, *after: str, reference: str = "r") -> Holding:
    return Holding(
        urn=name, type="kubernetes:core/v1:Namespace", kind="object", reference={"name": reference}, after=after
    )


def test_what_was_held_is_there_after_a_new_start(tmp_path: Path) -> None:
    first = Ledger.open(tmp_path / "ledger")
    first.begin()
    first.hold(holding("a"), done=False)
    first.hold(holding("b", "a"), done=True)
    again = Ledger.open(tmp_path / "ledger")
    assert [(each.urn, each.done, each.after) for each in again.holdings] == [("a", False, ()), ("b", True, ("a",))]
    assert again.run == 1


def test_what_is_done_replaces_what_was_begun(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.hold(holding("a"), done=False)
    ledger.hold(holding("a"), done=True)
    assert [each.done for each in Ledger.open(tmp_path / "ledger").holdings] == [True]


def test_what_is_dropped_is_gone(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.hold(holding("a"), done=True)
    ledger.drop(ledger.holdings[0])
    assert not Ledger.open(tmp_path / "ledger").holdings


def test_a_line_that_was_cut_off_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    ledger = Ledger.open(file)
    ledger.hold(holding("a"), done=True)
    whole = file.read_bytes()
    ledger.hold(holding("b"), done=True)
    second = file.read_bytes()[len(whole) :]
    for cut in (1, len(second) // 2, len(second) - 1):
        file.write_bytes(whole + second[:cut])
        again = Ledger.open(file)
        assert [each.urn for each in again.holdings] == ["a"]
        again.hold(holding("c"), done=True)
        assert [each.urn for each in Ledger.open(file).holdings] == ["a", "c"]


def test_what_an_up_does_not_ask_for_is_left_over(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.begin()
    for name in ("a", "b"):
        ledger.hold(holding(name), done=True)
    ledger.begin()
    ledger.hold(holding("b"), done=True)
    assert [each.urn for each in ledger.left_over()] == ["a"]


def test_an_object_of_another_name_leaves_the_old_one_over(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.begin()
    ledger.hold(holding("job", reference="directories-1"), done=True)
    ledger.begin()
    ledger.hold(holding("job", reference="directories-2"), done=True)
    assert [each.reference for each in ledger.left_over()] == [{"name": "directories-1"}]
    newest = ledger.of("job", "object")
    assert newest is not None
    assert newest.reference == {"name": "directories-2"}


def test_compacting_keeps_all_that_is_held(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    ledger = Ledger.open(file)
    for _ in range(3):
        ledger.begin()
        ledger.hold(holding("a"), done=True)
    size = file.stat().st_size
    ledger.compact()
    again = Ledger.open(file)
    assert file.stat().st_size < size
    assert (again.run, again.holdings) == (3, ledger.holdings)


def test_another_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    file.write_text('{"version": 99}\n')
    with pytest.raises(ClusterError, match=r"version 99.*`trn local down`"):
        Ledger.open(file)


def test_a_full_disk_is_told_and_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ledger"
    ledger = Ledger.open(file)
    ledger.hold(holding("a"), done=True)
    whole, write = file.read_bytes(), module.os.write
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    with pytest.raises(ClusterError, match=r"ledger cannot be written: No space left on device"):
        ledger.hold(holding("b"), done=True)
    assert file.read_bytes() == whole


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match=r"file/ledger cannot be written: Not a directory"):
        Ledger.open(tmp_path / "file" / "ledger").begin()


def test_nothing_goes_before_what_was_made_after_it() -> None:
    rounds = deletion_order([holding("vpc"), holding("subnet", "vpc"), holding("nodes", "subnet", "vpc"), holding("x")])
    assert [[each.urn for each in round_] for round_ in rounds] == [["nodes", "x"], ["subnet"], ["vpc"]]


def test_two_things_of_one_resource_do_not_wait_for_each_other() -> None:
    old, new = holding("job", "job", reference="1"), holding("job", "job", reference="2")
    assert deletion_order([old, new, holding("other")]) == [[old, new, holding("other")]]


def test_a_ring_goes_in_one_round_and_neither_before_what_came_after_it_nor_with_what_was_there_before() -> None:
    ring = [holding("a", "b", "vpc"), holding("b", "c"), holding("c", "a")]
    rounds = deletion_order([holding("vpc"), *ring, holding("last", "c"), holding("subnet", "vpc")])
    assert [{each.urn for each in round_} for round_ in rounds] == [{"last", "subnet"}, {"a", "b", "c"}, {"vpc"}]


def test_two_rings_go_one_after_the_other_where_one_came_after_the_other() -> None:
    older, newer = [holding("a", "b"), holding("b", "a")], [holding("c", "d", "a"), holding("d", "c")]
    rounds = deletion_order([*older, *newer])
    assert [{each.urn for each in round_} for round_ in rounds] == [{"c", "d"}, {"a", "b"}]


def test_two_rings_that_have_nothing_to_do_with_each_other_go_together() -> None:
    rings = [holding("a", "b"), holding("b", "a"), holding("c", "d"), holding("d", "c")]
    assert deletion_order(rings) == [rings]


def test_what_came_after_something_that_is_no_longer_held_waits_for_nothing() -> None:
    assert deletion_order([holding("a", "gone")]) == [[holding("a", "gone")]]
    assert deletion_order([]) == []


def test_a_run_that_was_begun_counts_although_it_held_nothing(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.begin()
    ledger.hold(holding("a"), done=True)
    again = Ledger.open(tmp_path / "ledger")
    again.begin()
    assert again.run == 2
    assert [each.urn for each in Ledger.open(tmp_path / "ledger").left_over()] == ["a"]


def test_what_is_held_twice_stands_last(tmp_path: Path) -> None:
    """The newest of a resource's things is found, also after a new start."""
    ledger = Ledger.open(tmp_path / "ledger")
    for reference in ("1", "2", "1"):
        ledger.hold(holding("job", reference=reference), done=True)
    for opened in (ledger, Ledger.open(tmp_path / "ledger")):
        newest = opened.of("job", "object")
        assert newest is not None
        assert newest.reference == {"name": "1"}
        assert opened.of("job", "nodes") is None
        assert opened.of("other", "object") is None


def test_what_protects_a_resource_is_remembered(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    ledger = Ledger.open(file)
    ledger.hold(replace(holding("a"), protect=True, retain=True, digest="d"), done=True)
    ledger.compact()
    (kept,) = Ledger.open(file).holdings
    assert (kept.protect, kept.retain, kept.digest, kept.done) == (True, True, "d", True)


def test_a_compaction_that_fails_leaves_the_ledger_as_it_was(tmp_path: Path) -> None:
    file = tmp_path / "ledger"
    ledger = Ledger.open(file)
    ledger.hold(holding("a"), done=True)
    whole = file.read_bytes()
    file.with_suffix(".part").mkdir()
    with pytest.raises(ClusterError, match=r"ledger cannot be written: Is a directory"):
        ledger.compact()
    assert file.read_bytes() == whole


def test_only_its_owner_reads_the_ledger(tmp_path: Path) -> None:
    Ledger.open(tmp_path / "ledger").begin()
    assert stat.S_IMODE((tmp_path / "ledger").stat().st_mode) == 0o600


def test_threads_write_whole_lines(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ledger.hold(holding(f"urn-{number}"), done=True), range(200)))
    assert len(Ledger.open(tmp_path / "ledger").holdings) == 200


def carried(name: str, *after: str, by: str) -> Holding:
    return replace(holding(name, *after), deleted_with=by)


def test_a_volume_waits_for_the_namespace_that_takes_its_claim_along() -> None:
    room, volume = holding("room"), holding("volume")
    claim, quota = carried("claim", "room", "volume", by="room"), carried("quota", "room", "claim", by="room")
    rounds = [{each.urn for each in round_} for round_ in deletion_order([volume, room, claim, quota])]
    assert rounds == [{"quota"}, {"claim"}, {"room"}, {"volume"}]


def test_what_is_made_from_a_thing_is_found_until_this_up_has_come_to_it(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger")
    ledger.begin()
    claim = replace(holding("claim"), replaced_with=("volume",))
    ledger.hold(claim, done=True)
    assert ledger.made_from("volume") == ()
    again = Ledger.open(tmp_path / "ledger")
    again.begin()
    assert [each.urn for each in again.made_from("volume")] == ["claim"]
    assert again.made_from("room") == ()
    again.hold(claim, done=True)
    assert again.made_from("volume") == ()


def test_the_digest_tells_other_inputs_and_not_another_order() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
