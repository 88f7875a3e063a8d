"""``trn kubeconfig``: a researcher's kubeconfig, with its context in their namespace."""

import copy
import json

import yaml

from trainium_eks.cli.shared.output import write
from trainium_eks.client.cluster_access import find_source
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import WRONG_USAGE, Failure
from trainium_eks.client.session import find_namespace
from trainium_eks.model.validation.parsing import parse_yaml


def run(cluster: ClusterOptions) -> int:
    """Run ``trn kubeconfig``; return the exit code."""
    source = find_source(cluster.stack, cluster.outputs, cluster.kubeconfig, cluster.directory)
    namespace = find_namespace(source.outputs, cluster.namespace, cluster.outputs).name
    if source.paths is not None and source.has_own_kubeconfig:
        from trainium_eks.local.control_plane import researchers

        text = researchers.kubeconfig(source.paths, namespace).read_text(encoding="utf-8")
    else:
        text = source.kubeconfig.read_text(encoding="utf-8") if source.kubeconfig else source.merged
    document = in_namespace(text or source.outputs.kubeconfig, namespace)
    write(json.dumps(document, indent=2) + "\n" if cluster.as_json else yaml.safe_dump(document, sort_keys=False))
    return 0


def in_namespace(text: str, namespace: str) -> dict[str, object]:
    """Return a kubeconfig with its current context in a namespace.

    Args:
        text: of the kubeconfig, YAML or JSON.
        namespace: which one.

    Raises:
        Failure: the text is no kubeconfig.
    """
    try:
        document = copy.deepcopy(parse_yaml(text))
        current = document["current-context"]
        [context] = [each for each in document["contexts"] if each["name"] == current]
        context["context"]["namespace"] = namespace
    except (KeyError, TypeError, ValueError):
        title = "the outputs hold no kubeconfig (pulumi shows it only with --show-secrets); give one with --kubeconfig"
        raise Failure(WRONG_USAGE, title) from None
    return dict(document)
