"""Helpers for unit tests of programs that use these components. No service is contacted: AWS and Kubernetes are
simulated.

:func:`record` runs a program as ``trn plan`` does and returns everything it registers: resources with their inputs,
options and dependencies, and the exports::

    from trainium_eks.testing import record

    def test_the_network_has_flow_logs():
        graph = record(lambda: Network("net", {"region": "us-west-2", "zone_ids": ["usw2-az4", "usw2-az1"]}))
        assert graph.of_type("aws:ec2/flowLog:FlowLog")

:class:`Mocks` is for existing tests with ``pulumi.runtime.set_mocks``.
"""

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pulumi

from trainium_eks.plan.backend import SimulationError, UnknownTypeError
from trainium_eks.plan.graph import SECRET, UNKNOWN, Graph, Resource
from trainium_eks.plan.recording.assumptions import Assumptions
from trainium_eks.plan.recording.lookup_answers import Lookup, placeholder
from trainium_eks.plan.recording.program import RecordingError, RecordingTimeoutError, record_program
from trainium_eks.plan.recording.registration import provider_urn
from trainium_eks.plan.resource_types.resource_type import DEFAULT_REGION
from trainium_eks.plan.resource_types.simulation import Simulation

__all__ = [
    "SECRET",
    "UNKNOWN",
    "Assumptions",
    "Graph",
    "Mocks",
    "RecordingError",
    "RecordingTimeoutError",
    "Resource",
    "SimulationError",
    "record",
]


def record(
    program: Callable[[], object],
    *,
    project: str = "project",
    stack: str = "test",
    config: Mapping[str, str] | None = None,
    preview: bool = False,
    assumptions: Assumptions | None = None,
    timeout_seconds: float = 60,
) -> Graph:
    """Return the graph of everything that ``program`` registers.

    Resource types that are not simulated are recorded with their inputs, and a component that another package builds
    (``awsx.ec2.Vpc``, an ``eks.Cluster`` with its default node group) without its children: ``graph.not_simulated``.
    Their outputs are unknown, so a function given to ``apply`` does not run, as in a preview.

    A call leaves no state of Pulumi's SDK for the next, so tests may run in any order.

    Args:
        program: function that is called once, inside a stack. Its return value is ignored.
        project: name of the Pulumi project.
        stack: name of the stack.
        config: key to text, as Pulumi stores it. Keys without namespace are the project's.
        preview: leave values that a provider computes unknown, as in the first preview of a stack.
        assumptions: answers for look-ups; of the others identity, region, partition, zones, AMI, VPC, subnets, security
            group, cluster and SSM parameter get a placeholder. When None, a look-up is an error: components should look
            nothing up.
        timeout_seconds: longest time without progress, after which a program waits for something that never comes.

    Raises:
        RecordingError: for a duplicate URN, a look-up, an unknown input.
        RecordingTimeoutError: with the pending operations.
        Exception: the exception that the program raises.
    """
    # In a new thread, because the caller's may already have an event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(
            record_program,
            program,
            project=project,
            stack=stack,
            config=config,
            dry_run=preview,
            assumptions=assumptions,
            foreign=True,
            timeout_seconds=timeout_seconds,
        ).result()


class Mocks(pulumi.runtime.Mocks):
    """Mocks that answer from the simulation: ids and ARNs of the right form, computed properties.

    ``pulumi.runtime.set_mocks(Mocks())``. Look-ups get the placeholders of :func:`record`; a resource type that the
    simulation does not know answers with its inputs. ``pulumi_eks`` builds the control plane of a ``TrainiumCluster``
    in a separate process, which mocks do not reach: its outputs are placeholders with the word ``mocked``;
    :func:`record` has the real form.

    Args:
        region: AWS region of resources with a provider that sets none.
    """

    def __init__(self, region: str = DEFAULT_REGION) -> None:
        self._region = region
        self._simulation = Simulation(region)

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """Return the id of a resource, and its inputs with the provider's computed properties."""
        if args.custom is False:
            return "", dict(args.inputs)
        urn = _urn(args.typ, args.name)
        provider = provider_urn(args.provider or "")
        explicit = _urn(_PROVIDER, provider.rsplit("::", 1)[-1]) if provider else ""
        asked = Resource(urn, args.typ, args.name, inputs=args.inputs, provider=explicit)
        try:
            identity, computed = self._simulation.create(asked)
        except UnknownTypeError:
            identity, computed = f"sim-{hashlib.sha256(urn.encode()).hexdigest()[:8]}", {}
        return args.resource_id or identity, {**args.inputs, **computed}

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]] | None]:
        """Return a placeholder for a look-up.

        Raises:
            SimulationError: when none is known; override this method to answer it.
        """
        answer = placeholder(Lookup(args.token, args.args, self._region))
        if answer is None:
            raise SimulationError(f"no placeholder is known for {args.token}: override Mocks.call")
        return answer, []


_PROVIDER = "pulumi:providers:aws"


def _urn(type_: str, name: str) -> str:
    """Return a URN without the types of the parents, which mocks do not get."""
    return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{type_}::{name}"
