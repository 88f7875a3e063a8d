"""SageMaker: models, endpoint configurations and endpoints."""

from collections.abc import Iterable, Mapping

from trainium_eks.model.catalogue.instances import Catalogue
from trainium_eks.model.sizing import bill
from trainium_eks.model.sizing.bill import Line
from trainium_eks.plan.backend import Answer, Call
from trainium_eks.plan.graph import Graph, Resource
from trainium_eks.plan.resource_types.resource_type import (
    REGION,
    Holds,
    RefusesDeletion,
    ResourceType,
    ShownType,
    Worth,
    nothing_more,
    whole,
)

SCALING_TARGET = "aws:appautoscaling/target:Target"


def _named(kind: str, call: Call) -> Answer:
    name = call.name()
    return name, {"name": name, "arn": call.arn("sagemaker", f"{kind}/{name.lower()}")}


def _variant_lines(graph: Graph, config: Resource, catalogue: Catalogue) -> Iterable[Line]:
    """Yield the lines of the instances that an endpoint starts from the configuration."""
    endpoints = {
        each.inputs.get("name") for each in graph.of_type("aws:sagemaker/endpoint:Endpoint")
        if config.urn in each.dependencies
    }  # fmt: skip
    for variant in config.inputs.get("productionVariants") or ():
        if not isinstance(variant, Mapping):  # not known yet
            continue
        count = whole(variant.get("initialInstanceCount"), 1)
        most = [
            whole(target.inputs.get("maxCapacity"), count)
            for target in graph.of_type(SCALING_TARGET)
            for name in endpoints
            if target.inputs.get("resourceId") == f"endpoint/{name}/variant/{variant.get('variantName')}"
        ]
        yield bill.endpoint(str(variant.get("instanceType")), count, max([count, *most]), catalogue)


MODEL = ResourceType(
    token="aws:sagemaker/model:Model",
    simulated=lambda call: _named("model", call),
    named_by=("name",),
    replaced_by=(
        REGION, "name", "containers", "enableNetworkIsolation", "executionRoleArn", "inferenceExecutionConfig",
        "primaryContainer", "vpcConfig",
    ),
    creation="",
)  # fmt: skip

CONFIGURATION = ResourceType(
    token="aws:sagemaker/endpointConfiguration:EndpointConfiguration",
    simulated=lambda call: _named("endpoint-config", call),
    named_by=("name",),
    replaced_by=(
        REGION, "name", "namePrefix", "asyncInferenceConfig", "dataCaptureConfig", "executionRoleArn", "kmsKeyArn",
        "productionVariants", "shadowProductionVariants",
    ),
    price=_variant_lines,
    refuses_deletion=RefusesDeletion(
        "ValidationException: Cannot delete an endpoint configuration in use by {id}.",
        for_=("aws:sagemaker/endpoint:Endpoint",),
    ),
    creation="",
)  # fmt: skip

ENDPOINT = ResourceType(
    token="aws:sagemaker/endpoint:Endpoint",
    simulated=lambda call: _named("endpoint", call),
    named_by=("name",),
    replaced_by=(REGION, "name"),
    seconds=600,
    shown=ShownType(nothing_more),
    holds=Holds("the answers of its model", Worth.WORK),
    creation="",
)
