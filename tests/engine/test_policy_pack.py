"""The policy pack on a real engine: nothing in a sound preview, the broken rule in another."""

import pytest
from engine.rig import REPOSITORY, Config, Rig, why_not

if missing := why_not():
    pytest.skip(missing, allow_module_level=True)

PACK = REPOSITORY / "policy"

if not (REPOSITORY / ".venv" / "policy").is_dir():
    pytest.skip("no .venv/policy: `make policy` sets it up", allow_module_level=True)


def expired(config: Config) -> None:
    config["trainium-eks:waivers"]["R06"]["expires"] = "2026-01-31"


def test_a_sound_stack_previews_with_the_pack(rig: Rig) -> None:
    rig.begin("dev")
    code, said = rig.preview_with_policies("dev", PACK)
    assert "✅ trainium-eks" in said, said
    assert code == 0


def test_an_expired_waiver_and_its_rule_stop_the_preview(rig: Rig) -> None:
    rig.configure("dev", expired)
    code, said = rig.preview_with_policies("dev", PACK)
    assert code != 0
    assert "[mandatory] [severity: medium]  r06" in said
    assert "R06: the waiver expired on 2026-01-31" in said
    assert said.count("[mandatory]") == 3, "two faults of R06, and the waiver"


def test_an_update_judges_what_a_preview_cannot_know(rig: Rig) -> None:
    """Ids are known now, so the rules that follow them are judged, too; all hold."""
    rig.configure("dev")
    code, said = rig.up_with_policies("dev", PACK)
    assert "✅ trainium-eks" in said, said
    assert code == 0
