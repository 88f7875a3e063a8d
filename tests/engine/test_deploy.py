"""What `make up` and `make destroy` run, to its end: `trn deploy` with a real engine behind it."""

from engine.rig import Rig, called, succeeded


def test_up_and_destroy_run_to_their_end_without_an_account_that_could_be_asked(rig: Rig) -> None:
    rig.begin("dev")
    code, said = rig.python("-m", "trainium_eks.cli", "deploy", "up", "--stack", "dev", "--", "--yes")
    assert code == 0, said
    assert "dev: about $" in said
    assert "checks could be made" in said
    assert rig.resources("dev")

    down = ("deploy", "destroy", "--stack", "dev", "--", "--yes", "--no-export")
    code, said = rig.python("-m", "trainium_eks.cli", *down)
    assert code == 0, said
    assert rig.resources("dev") == ()
    kept = {called(thing["urn"]): thing for thing in rig.inventory()}
    assert set(kept) == {"Key trn-dev-key-key", "KeyPolicy trn-dev-key-policy"}

    arn = kept["Key trn-dev-key-key"]["outputs"]["arn"]
    rig.configure("dev", lambda config: config.update({"trainium-eks:keptKeyArn": arn}))
    again = succeeded(rig.preview("dev"))
    keys = {step.name: step.state["inputs"] for step in again.steps if "aws:kms/" in step.urn}
    assert set(keys) == {"KeyPolicy trn-dev-key-policy", "Alias trn-dev-key-alias"}
    assert keys["Alias trn-dev-key-alias"]["targetKeyId"] == arn.rpartition("/")[2]
