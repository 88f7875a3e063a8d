"""Tokens for gated models: in a Secret, and in nothing else that is made or said."""

import base64
import json
from types import SimpleNamespace

import pytest
import remembering_api
from cluster_snapshots import outputs
from outcome import ends
from remembering_api import RememberingApi, take_seat

from trainium_eks.client.cluster_access import StackAccess
from trainium_eks.jobs.data import tokens
from trainium_eks.kube.api import ApiError

TOKEN = "hf_aVerySecretWord123"
ENCODED = base64.b64encode(TOKEN.encode()).decode()
ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:hub-x7k2f"


class Namespace(RememberingApi):
    """A team's Secrets, as a researcher may handle them: made and deleted, and never read."""

    @property
    def secrets(self):
        return {each["metadata"]["name"]: base64.b64decode(each["data"]["token"]).decode() for each in self.objects}


@pytest.fixture
def namespace(monkeypatch):
    made = Namespace()
    take_seat(monkeypatch, StackAccess("dev", outputs()), made)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return made


def _trn(command, given="", **environment):
    result = remembering_api.trn(command, given, **environment)
    assert TOKEN not in result.output
    assert ENCODED not in result.output
    return result


def test_token_comes_only_from_the_environment_or_a_pipe(namespace):
    assert "trn stage takes it for hf:// by itself" in _trn("secret", HF_TOKEN=f" {TOKEN}\n").stdout
    assert namespace.secrets == {"hugging-face": TOKEN}
    assert _trn("secret other", f"{TOKEN}\n").exit_code == 0
    assert namespace.secrets["other"] == TOKEN
    document = json.loads(_trn("secret other --json", "hf_new").stdout)
    assert (document["secret"], document["state"]) == ("other", "replaced")
    assert namespace.secrets["other"] == "hf_new"
    assert _trn("secret other --delete").stdout == "The Secret other is deleted\n"
    assert _trn("secret other --delete").stdout == "The Secret other is not there\n"
    assert "other" not in namespace.secrets
    for command, given, words in (
        ("secret --track", "", "export one or more of MLFLOW_TRACKING_URI"),
        ("secret --track --from-aws hub", "", "takes variables of your environment"),
        ("secret", "", "export HF_TOKEN, or pipe it in"),
        ("secret", f"{TOKEN} {TOKEN}", "it is one word"),
        ("secret Not_A_Name", TOKEN, "set --hf-secret to hugging-face"),
    ):
        ends(2, _trn(command, given), words)
        assert namespace.secrets == {"hugging-face": TOKEN}


def test_tracker_variables_are_stored(namespace):
    of_tracker = {"MLFLOW_TRACKING_URI": "https://mlflow", "MLFLOW_TRACKING_TOKEN": TOKEN, "WANDB_API_KEY": ""}
    said = _trn("secret --track", HF_TOKEN="hf_other", **of_tracker).stdout
    assert said == "The Secret tracking holds MLFLOW_TRACKING_URI, MLFLOW_TRACKING_TOKEN: --track-secret tracking\n"
    [made] = namespace.objects
    assert made["data"].keys() == {"MLFLOW_TRACKING_URI", "MLFLOW_TRACKING_TOKEN"}
    assert made["data"]["MLFLOW_TRACKING_TOKEN"] == ENCODED
    assert _trn("secret --track --delete").stdout == "The Secret tracking is deleted\n"


def test_refused_secret_is_not_echoed(namespace):
    def refuse(manifest, **_):
        raise ApiError(403, "Forbidden", f"no Secrets today: {json.dumps(manifest)} {TOKEN}")

    namespace.create = refuse
    ends(1, _trn("secret", TOKEN), "no Secrets today")
    parts = {"MLFLOW_TRACKING_USERNAME": TOKEN[:4], "MLFLOW_TRACKING_TOKEN": TOKEN}
    assert TOKEN[4:] not in ends(1, _trn("secret --track", **parts), "no Secrets today")


@pytest.mark.parametrize(
    ("held", "options", "region"),
    [
        (TOKEN, f"--from-aws {ARN}", "eu-west-1"),
        (json.dumps({"token": TOKEN}), "--from-aws hub", "us-west-2"),
        (json.dumps({"a": "b", "hub": TOKEN}), "--from-aws hub --json-key hub", "us-west-2"),
        (json.dumps({"hub": TOKEN, "other": "x"}), "--from-aws hub", ""),
    ],
)
def test_token_comes_from_secrets_manager(namespace, monkeypatch, held, options, region):
    asked = []
    manager = SimpleNamespace(get_secret_value=lambda **_: {"SecretString": held})
    monkeypatch.setattr(tokens, "client", lambda *given: asked.append(given[1]) or manager)
    result = _trn(f"secret {options}", HF_TOKEN="another")
    if region:
        assert (result.exit_code, namespace.secrets, asked) == (0, {"hugging-face": TOKEN}, [region])
    else:
        ends(2, result, "has the keys hub, other: name one with --json-key")


_STAGE = "stage hf://meta-llama/Llama-2-7b-hf --to models/llama-2-7b --dry-run"


def _variables(shown):
    assert shown.exit_code == 0, shown.stderr
    [job] = [each for each in json.loads(shown.stdout)["items"] if each["kind"] == "Job"]
    return job["spec"]["template"]["spec"]["containers"][0]["env"]


def test_staging_refers_to_the_token_or_names_the_command_for_one(namespace):
    assert "HF_TOKEN" not in [each["name"] for each in _variables(_trn(_STAGE))], "what is public needs none"
    result = _trn(f"{_STAGE} --hf-secret mine")
    assert (result.exit_code, result.stdout, "trn secret mine" in result.stderr) == (1, "", True)
    for options, name, key in (("", "hugging-face", "token"), ("--hf-secret mine:hub", "mine", "hub")):
        assert _trn(f"secret {name}", TOKEN).exit_code == 0
        reference = {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
        assert reference in _variables(_trn(f"{_STAGE} {options}", HF_TOKEN=TOKEN))
