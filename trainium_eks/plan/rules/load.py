"""R89: the share of the control plane that one team's jobs take from all others (decision 77)."""

import re
from collections.abc import Iterator

import yaml

from trainium_eks.model.finding import Finding
from trainium_eks.plan.graph import Graph
from trainium_eks.plan.reading import Json, at, items, mapping, text
from trainium_eks.plan.rules._objects import NAMESPACE, is_tenant, namespace, object_name, releases
from trainium_eks.plan.rules._rule import judged, rule

QUOTA = "kubernetes:core/v1:ResourceQuota"
COUNTED = "count/jobs.batch.volcano.sh"
CONFIGURATION = "values.custom.scheduler_config_override"


@rule("R89", "Hold jobs back while their namespace's quota is full", "high", "Volcano plugin resourcequota, own")
def held_back(graph: Graph) -> Iterator[Finding]:
    """Volcano makes the pods of every waiting job, and the API server refuses those beyond the quota again and again,
    unless the scheduler has the action enqueue and the plugin resourcequota. Each team's quota counts Volcano jobs,
    too, which stay in etcd, and all teams share that."""
    for release in releases(graph, "volcano"):
        found = at(release.inputs, CONFIGURATION)
        lacking = _lacking(found)
        faults = [f"{CONFIGURATION} lacks {' and '.join(lacking)}, wanted both"] if lacking else []
        yield from judged(release, faults, "jobs wait for their quota without pods")
    for home in graph.of_type(NAMESPACE):
        if is_tenant(graph, home):
            name = object_name(home)
            hard = [
                mapping(at(each.inputs, "spec.hard"))
                for each in graph.cluster_objects(home).of_type(QUOTA)
                if namespace(each) == name
            ]
            # R71 judges a namespace without a quota.
            uncounted = any(hard) and not any(COUNTED in each for each in hard)
            faults = [f"no ResourceQuota of {name} counts {COUNTED}, wanted it counted"] if uncounted else []
            yield from judged(home, faults, f"{COUNTED} is counted")


def _lacking(found: Json) -> list[str]:
    if isinstance(found, str):
        try:
            found = yaml.safe_load(found)
        except yaml.YAMLError:
            found = None
    configuration = mapping(found)
    actions = re.split(r"[\s,]+", str(configuration.get("actions") or ""))
    plugins = [
        text(mapping(plugin).get("name"))
        for tier in items(configuration.get("tiers"))
        for plugin in items(mapping(tier).get("plugins"))
        if mapping(plugin).get("enableJobEnqueued") is not False
    ]
    lacking = [] if "enqueue" in actions else ["the action enqueue"]
    return lacking if "resourcequota" in plugins else [*lacking, "the plugin resourcequota"]
