"""The file that says what exists."""

import json
import stat
import threading
from pathlib import Path

import pytest
from engine.simulated_aws.inventory import AlreadyExists, Inventory, InventoryError, Thing

THING = Thing("aws:ec2/vpc:Vpc", "vpc-1", "", "urn:one", "urn:one", {"cidrBlock": "10.0.0.0/16"}, {"arn": "a"})


def test_a_new_file_is_empty_and_its_owners(state: Path) -> None:
    with Inventory(state) as inventory:
        assert inventory.things() == ()
    assert stat.S_IMODE(state.stat().st_mode) == 0o600


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


def test_a_thing_exists_once(state: Path) -> None:
    with Inventory(state) as inventory:
        inventory.add(THING)
        with pytest.raises(AlreadyExists):
            inventory.add(THING)
        assert inventory.next_name("urn:one") == "urn:one#2"


def test_removal_forgets_no_name(state: Path) -> None:
    with Inventory(state) as inventory:
        inventory.add(THING)
        inventory.remove(THING)
        inventory.remove(THING)
        assert inventory.things() == ()
        assert inventory.next_name("urn:one") == "urn:one#2"


def test_a_crash_while_writing_leaves_what_was_there(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Inventory(state) as inventory:
        inventory.add(THING)
        before = state.read_text()

        def half(content: object, sink: object) -> None:
            sink.write("{")  # type: ignore[attr-defined]
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("engine.simulated_aws.inventory.json.dump", half)
            with pytest.raises(InventoryError, match="No space left"):
                inventory.remove(THING)
        assert state.read_text() == before
        assert inventory.things() == (THING,), "what could not be written has not happened"


def test_a_reader_never_finds_half_a_file(state: Path) -> None:
    with Inventory(state) as inventory:
        stop = threading.Event()

        def change() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                inventory.add(Thing("t", str(number), "", f"urn:{number}", f"urn:{number}", {"x": "y" * 1000}))

        writer = threading.Thread(target=change)
        writer.start()
        try:
            for _ in range(200):
                json.loads(state.read_text())
        finally:
            stop.set()
            writer.join()


def test_a_file_in_use_is_refused(state: Path) -> None:
    with Inventory(state), pytest.raises(InventoryError, match="in use"):
        Inventory(state)
    Inventory(state).close()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"version": 1}', '{"version": 1, "things": [{"a": 1}], "made": {}, "failed": []}']
)
def test_another_file_is_refused_and_left_alone(state: Path, content: str) -> None:
    state.parent.mkdir()
    state.write_text(content)
    with pytest.raises(InventoryError, match="not a state file"):
        Inventory(state)
    assert state.read_text() == content


def test_another_version_is_refused(state: Path) -> None:
    state.parent.mkdir()
    state.write_text('{"version": 2}')
    with pytest.raises(InventoryError, match="version 2, this program reads 1"):
        Inventory(state)


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InventoryError, match=r"file/state\.json cannot be used"):
        Inventory(tmp_path / "file" / "state.json")


def test_a_failed_opening_holds_no_lock(state: Path) -> None:
    state.parent.mkdir()
    state.write_text("{")
    with pytest.raises(InventoryError):
        Inventory(state)
    state.unlink()
    Inventory(state).close()
