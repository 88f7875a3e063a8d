"""What the ledger promises: nothing that was made is forgotten, whenever the process dies."""

import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local import ledger as module
from trainium_eks.local.ledger import Holding, Ledger, deletion_order, digest


def holding(name, *after, reference="r"):
    return Holding(
        urn=name, type="kubernetes:core/v1:Namespace", kind="object", reference={"name": reference}, after=after
    )


@pytest.fixture
def file(tmp_path):
    return tmp_path / "ledger"


@pytest.fixture
def ledger(file):
    return Ledger.open(file)


def names(holdings):
    return [each.urn for each in holdings]


def test_held_objects_survive_a_restart(file, ledger):
    ledger.begin()
    ledger.hold(holding("gone"), done=True)
    ledger.hold(holding("a"), done=False)
    ledger.hold(replace(holding("b", "a"), protect=True, retain=True, digest="d"), done=False)
    ledger.hold(replace(holding("b", "a"), protect=True, retain=True, digest="d"), done=True)
    ledger.drop(ledger.holdings[0])
    for _ in range(2):
        again = Ledger.open(file)
        assert [(each.urn, each.done, each.after) for each in again.holdings] == [("a", False, ()), ("b", True, ("a",))]
        kept = again.holdings[1]
        assert (kept.protect, kept.retain, kept.digest, again.run) == (True, True, "d", 1)
        ledger.compact()


def test_truncated_line_is_ignored(file, ledger):
    ledger.hold(holding("a"), done=True)
    whole = file.read_bytes()
    ledger.hold(holding("b"), done=True)
    second = file.read_bytes()[len(whole) :]
    for cut in (1, len(second) // 2, len(second) - 1):
        file.write_bytes(whole + second[:cut])
        again = Ledger.open(file)
        assert names(again.holdings) == ["a"]
        again.hold(holding("c"), done=True)
        assert names(Ledger.open(file).holdings) == ["a", "c"]


def test_object_missing_from_an_up_is_left_over(file, ledger):
    ledger.begin()
    for name in ("a", "b"):
        ledger.hold(holding(name), done=True)
    ledger.hold(holding("job", reference="1"), done=True)
    ledger.begin()
    ledger.hold(holding("b"), done=True)
    ledger.hold(holding("job", reference="2"), done=True)
    assert [(each.urn, each.reference["name"]) for each in ledger.left_over()] == [("a", "r"), ("job", "1")]
    again = Ledger.open(file)
    again.begin()
    assert again.run == 3, "a run counts although it holds nothing"
    assert names(Ledger.open(file).left_over()) == ["a", "job", "b", "job"]


def test_newest_entry_of_a_resource_is_found_after_a_restart(file, ledger):
    for reference in ("1", "2", "1"):
        ledger.hold(holding("job", reference=reference), done=True)
    for opened in (ledger, Ledger.open(file)):
        assert opened.of("job", "object").reference == {"name": "1"}
        assert opened.of("job", "nodes") is None
        assert opened.of("other", "object") is None


def test_ledger_of_another_version_is_refused_with_the_fix(file):
    file.write_text('{"version": 99}\n')
    with pytest.raises(ClusterError, match=r"version 99.*`trn local down`"):
        Ledger.open(file)


def test_failed_write_is_reported_and_leaves_the_ledger_unchanged(file, ledger, monkeypatch):
    ledger.hold(holding("a"), done=True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    whole, write = file.read_bytes(), module.os.write
    file.with_name(f".{file.name}.part").mkdir()
    with pytest.raises(ClusterError, match=r"ledger cannot be written: Is a directory"):
        ledger.compact()
    monkeypatch.setattr(module.os, "write", lambda descriptor, data: write(descriptor, data[:10]))
    with pytest.raises(ClusterError, match=r"ledger cannot be written: No space left on device"):
        ledger.hold(holding("b"), done=True)
    assert file.read_bytes() == whole
    with pytest.raises(ClusterError, match=r"ledger/below cannot be written: Not a directory"):
        Ledger.open(file / "below").begin()


def test_threads_write_whole_lines(file, ledger):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: ledger.hold(holding(f"urn-{number}"), done=True), range(200)))
    assert len(Ledger.open(file).holdings) == 200


def test_digest_depends_on_inputs_but_not_on_their_order():
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def of(**after):
    """Holdings by name, each with the names of those that it came after."""
    return [holding(name, *names.split()) for name, names in after.items()]


@pytest.mark.parametrize(
    ("held", "rounds"),
    [
        (of(vpc="", subnet="vpc", nodes="subnet vpc", x=""), ["nodes x", "subnet", "vpc"]),
        # A ring goes in one round: not before what came after it, nor with what was there before.
        (of(vpc="", a="b vpc", b="c", c="a", last="c", subnet="vpc"), ["last subnet", "a b c", "vpc"]),
        (of(a="b", b="a", c="d a", d="c"), ["c d", "a b"]),
        (of(a="b", b="a", c="d", d="c"), ["a b c d"]),
        (of(a="gone"), ["a"]),
        ([], []),
        # Two things of one resource do not wait for each other.
        ([holding("job", "job", reference="1"), holding("job", "job", reference="2"), *of(x="")], ["job job x"]),
        # A volume waits for the namespace that takes its claim along.
        (
            [
                *of(volume="", room=""),
                replace(holding("claim", "room", "volume"), deleted_with="room"),
                replace(holding("quota", "room", "claim"), deleted_with="room"),
            ],
            ["quota", "claim", "room", "volume"],
        ),
    ],
)
def test_deletion_order_is_the_reverse_of_creation(held, rounds):
    assert [" ".join(sorted(names(each))) for each in deletion_order(held)] == rounds
