"""An `up` that is killed: before its first resource and among them.

`test_control_plane` has the kills before that, `test_stack` one in the middle of the whole stack.
"""

from collections.abc import Mapping
from pathlib import Path

import pytest
from local_project import LocalProject

pytestmark = pytest.mark.slow

PROGRAM = """\
import pulumi
import pulumi_kubernetes as k8s

opts = pulumi.ResourceOptions(provider=k8s.Provider("cluster", kubeconfig="{}"))
for name in ("room", "hall"):
    k8s.core.v1.Namespace(name, metadata={"name": name}, opts=opts)
"""


@pytest.mark.parametrize("moment", ["started in", "+ Namespace"])
def test_an_up_that_was_killed_is_finished_by_the_next(
    binaries: Mapping[str, Path], tmp_path: Path, moment: str
) -> None:
    project = LocalProject.small(tmp_path / "project", PROGRAM)
    try:
        project.kill_when(moment, "local", "up", "--stack", "dev")
        shown = project.trn("local", "up", "--stack", "dev")
        assert shown.returncode == 0, shown.stderr
        again = project.trn("local", "up", "--stack", "dev")
        assert "Nothing has changed" in again.stdout, again.stderr
        assert {"room", "hall"} <= {each["metadata"]["name"] for each in project.get("dev", "namespaces")}
    finally:
        project.trn("local", "down", "--stack", "dev")
    assert project.processes("dev") == []
