"""docs/deploying.md from nothing: its blocks in their order, in one shell, with the AWS CLI over moto.

Without the Pulumi CLI its commands are only printed, with their arguments as the shell has filled them. With it they
run on the state bucket and key that moto made, and its resources are made in the simulated AWS of tests/engine.
"""

import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml
from bootstrap_account import ACCOUNT, mended_moto
from engine.rig import why_not
from engine.simulated_aws.server import serving
from golden import ROOT
from staging_servers import moto_server

pytestmark = pytest.mark.slow

INSTEAD = yaml.safe_load((Path(__file__).parent / "from_nothing.yaml").read_text())
SETTINGS = {
    "PULUMI_SKIP_CONFIRMATIONS": "true", "PULUMI_SKIP_UPDATE_CHECK": "true", "AWS_EC2_METADATA_DISABLED": "true",
    "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true", "PYTHONPATH": str(ROOT),
}  # fmt: skip


def script(part, instead):
    """The lines of a part of the page, as the shell of its reader gets them."""
    [text] = re.findall(part, (ROOT / "docs" / "deploying.md").read_text(), re.DOTALL)
    blocks = re.findall(r"^ *```console\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    for written in "".join(blocks).replace("\\\n", " ").splitlines():
        line = re.sub(r"\s{2,}# .*", "", written.strip())
        [line] = [re.sub(pattern, it, line) for pattern, it in instead.items() if re.fullmatch(pattern, line)] or [line]
        line = line.replace("<account>", ACCOUNT).replace("<role>", "admin")
        assert not re.search(r"<\w[^<>]*>", line), line
        yield line


@pytest.fixture(params=["without the CLI", "with the CLI"])
def run(request, tmp_path):
    whole = request.param == "with the CLI"
    aws = shutil.which("aws", path=os.pathsep.join([f"{sys.prefix}/awscli/bin", os.environ["PATH"]]))
    if missing := "no AWS CLI: make .venv/.awscli" if aws is None else why_not() if whole else "":
        pytest.skip(missing)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "aws").symlink_to(aws)
    (tmp_path / "tools" / "trn").write_text(f'#!/bin/sh\nexec {sys.executable} -m trainium_eks.cli "$@"\n')
    (tmp_path / "tools" / "trn").chmod(0o755)
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\nregion=us-west-2\n")
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id=a\naws_secret_access_key=b\n")
    path = os.pathsep.join([f"{tmp_path}/tools", str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "HOME": str(tmp_path)}

    def run(where, part):
        lines = [*script(part, INSTEAD["always"] | INSTEAD[request.param])]
        begin = ["set -ex", *([] if whole else ['pulumi() { echo "pulumi $*"; }'])]
        simulated = serving(tmp_path / "inventory.json") if whole else nullcontext({})
        with mended_moto(), moto_server() as (url, _), simulated as providers:
            environment = {**SETTINGS, **own, **providers, "WORK": str(where), "AWS_ENDPOINT_URL": url}
            environment["SOURCE_DATE_EPOCH"] = os.environ["SOURCE_DATE_EPOCH"]
            done = subprocess.run(
                ["bash", "-c", "\n".join(begin + lines)], cwd=where, env=environment, text=True, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
        assert done.returncode == 0, done.stdout
        return done.stdout

    return run


def test_first_environment_follows_the_page(run, tmp_path):
    (clone := tmp_path / "clone").mkdir()
    for each in ROOT.iterdir():
        if each.name.startswith("Pulumi."):  # a command changes them
            shutil.copy2(each, clone)
        else:
            (clone / each.name).symlink_to(each)
    said = run(clone, r"\A(.*?)\n## Production from nothing")
    assert f"pulumi login s3://training-state-{ACCOUNT}-us-west-2?region=us-west-2&awssdk=v2" in said.replace("'", "")
    assert "--secrets-provider=awskms://alias/training-state?region=us-west-2" in said
    assert f"pulumi config set permissionsBoundary arn:aws:iam::{ACCOUNT}:policy/trn-boundary" in said
    assert ":assumed-role/training-deployer/" in "".join(said.split()), "as whom `make check` asks"


def test_production_follows_the_page(run, tmp_path):
    (work := tmp_path / "work").mkdir()
    (work / "trainium-eks").symlink_to(ROOT)
    said = run(work, r"\n## Production from nothing\n(.*?)\n## The account's stack")
    assert re.search(rf"allowedAccountIds\[0\]'? {ACCOUNT}\n", said)
    assert "the first up reaches it from a machine in the adopted network" in said
