"""Search for SageMaker endpoints that researchers made with ``trn serve``: no state holds them, and they cost money."""

from collections.abc import Iterator

from trainium_eks.aws.account import Json
from trainium_eks.model.catalogue import prices, sagemaker_hosting
from trainium_eks.model.catalogue.instances import CATALOGUE
from trainium_eks.operate.cleanup.left_over import LeftOver, Where


def endpoints(where: Where) -> Iterator[LeftOver]:
    """Yield the endpoints whose models run under the execution role of the stack's researchers."""
    if not where.marks.stack:
        return
    role = f"{where.marks.prefix}sagemaker-execution"
    for each in where.account.pages("sagemaker", "list_endpoints", "Endpoints"):
        name = each["EndpointName"]
        used = where.account.call("sagemaker", "describe_endpoint", EndpointName=name)["EndpointConfigName"]
        config = where.account.call("sagemaker", "describe_endpoint_config", EndpointConfigName=used)
        variants = config["ProductionVariants"]
        models = tuple(variant["ModelName"] for variant in variants if "ModelName" in variant)
        found = [where.account.call("sagemaker", "describe_model", ModelName=model) for model in models]
        roles = [model.get("ExecutionRoleArn", "").rpartition("/")[2] for model in found]
        # Pulumi ends the role's name with seven digits.
        if not any(each.startswith(role) for each in roles):
            continue
        yield LeftOver(
            "SageMaker endpoint",
            name,
            f"its models run as {roles[0]}",
            _hourly(variants),
            (
                where.command("sagemaker", "delete-endpoint", "--endpoint-name", name),
                where.command("sagemaker", "delete-endpoint-config", "--endpoint-config-name", used),
                *(where.command("sagemaker", "delete-model", "--model-name", model) for model in models),
            ),
            frozenset({name, each["EndpointArn"]}),
            # While the state holds the role, the endpoint is a researcher's in use.
            owners=frozenset(roles),
            note=f"made by `trn serve`; {each['EndpointStatus']}",
        )


def _hourly(variants: Json) -> float | None:
    """Return the estimated price of all instances, or None where a type has no price."""
    total = 0.0
    for each in variants:
        kind = each.get("InstanceType", "").removeprefix(sagemaker_hosting.PREFIX)
        known = sagemaker_hosting.types(CATALOGUE)
        price = known.price(kind) if kind in known else None
        if price is None:
            return None
        total += price.hourly_usd * prices.SAGEMAKER_FACTOR * each.get("InitialInstanceCount", 1)
    return total
