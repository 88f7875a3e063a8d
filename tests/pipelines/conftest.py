"""The local cloud under the pipelines of ``examples/pipelines``."""

import os
from dataclasses import replace

import pytest
from local_project import ROOT, LocalProject
from pipelines.rig import Cloud


@pytest.fixture(scope="session")
def cloud(binaries, tmp_path_factory):
    """The repository's local stack, with Volcano."""
    if "TRN_PIPELINES" not in os.environ:
        pytest.skip("no environments of the pipelines: `make test-pipelines` installs them and runs these tests")
    project = LocalProject.of_the_repository(tmp_path_factory.mktemp("pipelines") / "project")
    project = replace(project, environment={"TRN_VOLCANO": ""})
    (project.path / "workloads").symlink_to(ROOT / "workloads")
    project.configure("local")
    try:
        shown = project.trn("local", "up")
        assert shown.returncode == 0, shown.stderr
        if "vc-scheduler" not in project.processes("local"):
            pytest.skip("no Volcano on this machine: `python -m trainium_eks.local.toolchain` provides it where it can")
        yield Cloud(project)
    finally:
        project.trn("local", "down")
