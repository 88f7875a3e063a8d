"""Models served by SageMaker: their requests as plain data, and endpoints and batch transform at AWS."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainium_eks.aws.sessions import AwsError, client, saying
from trainium_eks.jobs.submit.refusals import NAME, NAME_FORM
from trainium_eks.model.catalogue import sagemaker_hosting
from trainium_eks.model.catalogue.instances import Catalogue, InstanceType, near
from trainium_eks.model.config.sagemaker import LONGEST_NAME
from trainium_eks.model.outputs import SageMakerOutput
from trainium_eks.model.validation.problems import Problem

VARIANT = "all"

LINES = "application/jsonlines"
PAYLOAD_MB = 1
"""Most of a request of batch transform: the container's server takes as much."""

BATCH_SECONDS, BATCH_RETRIES = 3600, 3
"""Time for one request of batch transform, and its further tries."""

BAKE_SECONDS = 120
"""Time that the instances before a change are kept after it."""

UNIQUE = "[bcdfghjklmnpqrstvwxz]{5}"
"""Letters after the name of an endpoint's model and configuration, as a pattern."""


@dataclass(frozen=True)
class ServedModel:
    """A model on SageMaker's instances."""

    name: str
    """Name of the endpoint; it begins with the namespace's."""
    unique: str
    """Letters that tell its model and configuration from earlier ones."""
    namespace: str
    where: SageMakerOutput
    data: str
    """S3 URI of the ``model.tar.gz``."""
    image: str
    instance: InstanceType
    instances: int = 1
    engine: str = "auto"
    field: str = ""
    """Key of a record's text; empty for the default."""

    @property
    def version(self) -> str:
        """Return the name of the model, of the endpoint's configuration, and of a job of batch transform."""
        return f"{self.name}-{self.unique}"

    @property
    def instance_type(self) -> str:
        """Return the type as SageMaker calls it."""
        return f"{sagemaker_hosting.PREFIX}{self.instance.name}"

    @property
    def tags(self) -> list[dict[str, str]]:
        """Return the tags, by which the rights of researchers know their own resources."""
        return [{"Key": "Namespace", "Value": self.namespace}, {"Key": "Name", "Value": self.name}]


def admitted(
    where: SageMakerOutput | None, wanted: str, catalogue: Catalogue, *, batch: bool
) -> InstanceType | list[Problem]:
    """Return the instance type, or the problems of a stack that does not admit it."""
    if where is None or not where.serving_types:
        fix = "`sageMaker: {servingTypes: [ml.inf2.xlarge]}` in the stack's config admits it; docs/sagemaker.md"
        return [Problem("--on", "the stack admits no serving on SageMaker", fix, value="sagemaker")]
    name = f"{sagemaker_hosting.PREFIX}{(wanted or where.serving_types[0]).removeprefix(sagemaker_hosting.PREFIX)}"
    if name not in where.serving_types:
        good, reason = near(name, where.serving_types), "the stack's `servingTypes` have not this type"
        return [Problem("--instance-type", reason, value=name, allowed=where.serving_types, good=good)]
    found = sagemaker_hosting.problems("--instance-type", name, catalogue, batch=batch)
    return found or sagemaker_hosting.find(name, catalogue)


def problems(made: ServedModel) -> Iterator[Problem]:
    """Yield the problems of a model's request."""
    if not NAME.fullmatch(made.name) or len(made.version) > LONGEST_NAME:
        most = LONGEST_NAME - len(made.version) + len(made.name) - len(made.namespace) - 1
        value = made.name.removeprefix(f"{made.namespace}-")
        yield Problem("--name", NAME_FORM.format(most), value=value, good="serve-model")
    if not sagemaker_hosting.ECR_IMAGE.fullmatch(made.image):
        yield Problem("--image", "SageMaker pulls images from ECR alone", "push one: trn image push", value=made.image)
    if made.engine == "vllm":
        fix = "give a model to --engine transformers, or serve it on EKS"
        yield Problem("--engine", "our images for SageMaker have no vLLM", fix, value=made.engine)
    if made.data and not made.data.startswith(f"s3://{made.where.bucket}/"):
        reason = f"the execution role reads the bucket {made.where.bucket} alone"
        yield Problem("MODEL", reason, "copy the model there", value=made.data)


def file_problems(source: str, target: str, where: SageMakerOutput) -> Iterator[Problem]:
    """Yield the problems of the input and the output of batch transform."""
    if not source.startswith(f"s3://{where.bucket}/"):
        reason = f"it is not an object of the bucket {where.bucket}, which the execution role reads"
        yield Problem("INPUT", reason, value=source, good=f"s3://{where.bucket}/<path>.jsonl")
    elif not source.endswith((".jsonl", "/")):
        yield Problem("INPUT", "it is neither JSON lines nor a prefix that ends with /", "name a .jsonl", value=source)
    own = f"s3://{where.bucket}/{where.prefix}/"
    if not target.startswith(own):
        reason = f"the execution role writes below {own} alone"
        yield Problem("--to", reason, value=target, good=f"{own}predicted")


def model_request(made: ServedModel) -> dict[str, Any]:
    """Return the parameters of CreateModel."""
    return {
        "ModelName": made.version,
        "PrimaryContainer": {
            "Image": made.image,
            "ModelDataUrl": made.data,
            "Environment": sagemaker_hosting.environment(made.instance, made.engine, made.field),
        },
        "ExecutionRoleArn": made.where.role_arn,
        "VpcConfig": {"SecurityGroupIds": [*made.where.security_group_ids], "Subnets": [*made.where.subnet_ids]},
        "EnableNetworkIsolation": True,
        "Tags": made.tags,
    }


def configuration_request(made: ServedModel) -> dict[str, Any]:
    """Return the parameters of CreateEndpointConfig."""
    variant = {
        "VariantName": VARIANT,
        "ModelName": made.version,
        "InstanceType": made.instance_type,
        "InitialInstanceCount": made.instances,
        "ContainerStartupHealthCheckTimeoutInSeconds": sagemaker_hosting.startup_seconds(made.instance),
    }
    key = {"KmsKeyId": made.where.kms_key_arn} if sagemaker_hosting.takes_volume_key(made.instance) else {}
    return {"EndpointConfigName": made.version, "ProductionVariants": [variant], **key, "Tags": made.tags}


def endpoint_request(made: ServedModel, *, exists: bool) -> dict[str, Any]:
    """Return the parameters of CreateEndpoint, or of UpdateEndpoint for an existing one."""
    named = {"EndpointName": made.name, "EndpointConfigName": made.version}
    if not exists:
        return {**named, "Tags": made.tags}
    routing = {"Type": "ALL_AT_ONCE", "WaitIntervalInSeconds": BAKE_SECONDS}
    policy = {"TrafficRoutingConfiguration": routing, "TerminationWaitInSeconds": BAKE_SECONDS}
    return {**named, "DeploymentConfig": {"BlueGreenUpdatePolicy": policy}}


def transform_request(made: ServedModel, source: str, target: str) -> dict[str, Any]:
    """Return the parameters of CreateTransformJob. The source is a JSON Lines file or a prefix of several; each file
    becomes ``<target>/<file>.out``."""
    key = {"VolumeKmsKeyId": made.where.kms_key_arn} if sagemaker_hosting.takes_volume_key(made.instance) else {}
    return {
        "TransformJobName": made.version,
        "ModelName": made.version,
        "MaxConcurrentTransforms": 1,
        "MaxPayloadInMB": PAYLOAD_MB,
        "BatchStrategy": "MultiRecord",
        "ModelClientConfig": {
            "InvocationsTimeoutInSeconds": BATCH_SECONDS,
            "InvocationsMaxRetries": BATCH_RETRIES,
        },
        "TransformInput": {
            "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": source}},
            "ContentType": LINES,
            "SplitType": "Line",
        },
        "TransformOutput": {
            "S3OutputPath": target.rstrip("/"),
            "Accept": LINES,
            "AssembleWith": "Line",
            "KmsKeyId": made.where.kms_key_arn,
        },
        "TransformResources": {"InstanceType": made.instance_type, "InstanceCount": made.instances, **key},
        "Tags": made.tags,
    }


class SageMakerServing:
    """Endpoints and batch transform of a namespace."""

    def __init__(self, region: str, where: SageMakerOutput) -> None:
        self._region, self._where = region, where

    def serve(self, made: ServedModel, *, exists: bool) -> None:
        """Make an endpoint, or let it answer with another model. Of a refused one the model and its configuration are
        removed."""
        sagemaker = client("sagemaker", self._region)
        try:
            with saying(f"make the endpoint {made.name}"):
                sagemaker.create_model(**model_request(made))
                sagemaker.create_endpoint_config(**configuration_request(made))
                request = endpoint_request(made, exists=exists)
                (sagemaker.update_endpoint if exists else sagemaker.create_endpoint)(**request)
        except AwsError:
            self._remove(sagemaker, made.version)
            raise

    def predict(self, made: ServedModel, source: str, target: str) -> None:
        """Start a job of batch transform."""
        sagemaker = client("sagemaker", self._region)
        try:
            with saying(f"start the batch transform {made.version}"):
                sagemaker.create_model(**model_request(made))
                sagemaker.create_transform_job(**transform_request(made, source, target))
        except AwsError:
            self._remove(sagemaker, made.version)
            raise

    def ask(self, name: str, texts: Sequence[str]) -> Any:
        """Return an endpoint's answer to texts."""
        with saying(f"ask the endpoint {name}"):
            runtime = client("sagemaker-runtime", self._region)
            body = json.dumps({"texts": [*texts]})
            answer = runtime.invoke_endpoint(EndpointName=name, ContentType="application/json", Body=body)
            content = answer["Body"].read()
        try:
            return json.loads(content)
        except ValueError:
            raise AwsError(f"the endpoint {name} does not answer by JSON: its image is another server's") from None

    def delete(self, name: str) -> None:
        """Delete an endpoint with its models and configurations. Another stack's endpoint is refused."""
        with saying(f"delete the endpoint {name}"):
            sagemaker = client("sagemaker", self._region)
            current = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
            model = sagemaker.describe_endpoint_config(EndpointConfigName=current)["ProductionVariants"][0]["ModelName"]
            if sagemaker.describe_model(ModelName=model).get("ExecutionRoleArn") != self._where.role_arn:
                raise AwsError(f"the endpoint {name} is another stack's: its model has another role")
            sagemaker.delete_endpoint(EndpointName=name)
            self._remove(sagemaker, *self._versions(sagemaker, name))

    def tidy(self, name: str) -> None:
        """Remove the models and configurations that an endpoint had before its last change."""
        with saying(f"look for earlier versions of {name}"):
            sagemaker = client("sagemaker", self._region)
            current = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
            self._remove(sagemaker, *(each for each in self._versions(sagemaker, name) if each != current))

    def forget(self, version: str) -> None:
        """Remove the model of a job of batch transform, if it is still there."""
        self._remove(client("sagemaker", self._region), version)

    def _versions(self, sagemaker: Any, name: str) -> list[str]:
        pages = sagemaker.get_paginator("list_endpoint_configs").paginate(NameContains=f"{name}-")
        names = (each["EndpointConfigName"] for page in pages for each in page["EndpointConfigs"])
        return [each for each in names if re.fullmatch(f"{re.escape(name)}-{UNIQUE}", each)]

    def _remove(self, sagemaker: Any, *versions: str) -> None:
        """Remove configurations and models; a missing one, or one in use, is passed over: neither costs anything."""
        for each in versions:
            for delete, key in (
                (sagemaker.delete_endpoint_config, "EndpointConfigName"),
                (sagemaker.delete_model, "ModelName"),
            ):
                with suppress(AwsError), saying(f"remove {each}"):
                    delete(**{key: each})
