"""``trn verify --fabric``: the judged reports of gangs that test the nodes and the network of node groups."""

from typing import TYPE_CHECKING

from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import FAILED

if TYPE_CHECKING:
    from trainium_eks.jobs.objects.options import TrainOptions


def run(cluster: ClusterOptions, asked: "TrainOptions", *, against: str = "", tool: str | None = None) -> int:
    """Test the node groups one after the other; return the exit code: 0, or 1 when a check failed."""
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from trainium_eks.cli.environment.check.render_verify import checks_table
    from trainium_eks.cli.shared.console import answer
    from trainium_eks.client import fabric
    from trainium_eks.client.session import open_session

    with open_session(cluster) as session:
        results = fabric.test(session, asked, against, tool)
    parts = []
    for each in results:
        size = f"{len(each.report.get('nodes', ()))} nodes of {each.group.instance_type}"
        title = Text(f"{each.group.name} · {size} · {each.job}", "bold underline")
        bad, good = Text("✗ the fabric is not as it must be", "bold red"), Text("✓ fabric", "bold green")
        checks = Padding(checks_table(each.checks), (0, 0, 0, 2), expand=False)
        parts.append(Group(title, checks, bad if each.failed else good))
    answer(cluster, {"groups": [each.to_json() for each in results]}, *parts)
    return FAILED if any(each.failed for each in results) else 0
