"""SageMakerEndpoint: a model that answers in real time on SageMaker, beside a cluster."""

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import regions, sagemaker_hosting
from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.config import sagemaker
from trainium_eks.model.config.sagemaker import ENDPOINT_LOG_GROUPS, SageMakerEndpointConfig
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem

from . import _iam, _ids
from ._args import Tags, Text, outputs, text, validate_args
from ._dicts import SageMakerEndpointArgsDict
from ._sagemaker_policies import Reach, execution_statements

VARIANT = "all"
"""Name of the endpoint's only variant."""

BAKE_SECONDS = 300
"""Time in which an alarm rolls a change back: with a part of the new instances first, then with all of them."""


class SageMakerEndpointArgs(SageMakerEndpointConfig):
    """Args of :class:`SageMakerEndpoint`: an entry of the config, and its wiring."""

    region: formats.Region
    """AWS region."""
    vpc_id: _ids.VpcId
    """VPC of the instances."""
    subnet_ids: tuple[_ids.SubnetId, ...]
    """Private subnets of the instances."""
    kms_key_arn: _ids.KeyArn
    """Key of the volumes, the logs and the captured calls."""
    bucket: Text
    """Bucket of the model and of captured calls."""
    bucket_key_arn: _ids.KeyArn | None = None
    """Key of the bucket's objects; None for ``kms_key_arn``."""
    prefix: str = "sagemaker"
    """Key prefix of captured calls."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds the role; None for no bound."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""
    catalogue: Catalogue = pydantic.Field(default_factory=lambda: CATALOGUE)
    """Known instance types."""


def validate(args: SageMakerEndpointArgs) -> list[Problem]:
    """Return the problems of the args."""
    found = sagemaker.validate_endpoint(args, args.catalogue)
    if not args.subnet_ids:
        found.append(Problem("subnet_ids", "it is empty: the instances have no network", "name a private subnet"))
    return [*found, *formats.tags("tags", args.tags)]


class SageMakerEndpoint(pulumi.ComponentResource):
    """Endpoint that answers with one model: isolated containers in private subnets, under a role that reads this model
    and this image.

    A change starts new instances beside the old ones, leads the calls there, and is rolled back when the alarm about
    errors rings. The endpoint's name is the component's.
    """

    endpoint_name: pulumi.Output[str]
    """Name of the endpoint."""
    endpoint_arn: pulumi.Output[str]
    """ARN of the endpoint."""
    role_arn: pulumi.Output[str]
    """Execution role of the containers."""

    def __init__(
        self,
        name: str,
        args: SageMakerEndpointArgs | SageMakerEndpointArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(SageMakerEndpointArgs, args, validate, f"SageMakerEndpoint {name}", opts=opts)
        super().__init__("trainium-eks:index:SageMakerEndpoint", name, {}, opts)
        self._args, self._child = args, pulumi.ResourceOptions(parent=self)
        self._tags = {"Name": name, **args.tags}
        self._instance = sagemaker_hosting.find(args.instance_type, args.catalogue)

        logs = aws.cloudwatch.LogGroup(
            f"{name}-logs",
            name=f"{ENDPOINT_LOG_GROUPS}/{name}",
            retention_in_days=args.log_retention_days,
            kms_key_id=args.kms_key_arn,
            tags=self._tags,
            opts=self._child,
        )
        role, policy = self._make_role()
        configuration = self._make_configuration(self._make_model(role, policy, self._make_group()))
        endpoint = aws.sagemaker.Endpoint(
            name,
            name=name,
            endpoint_config_name=configuration.name,
            deployment_config=self._deployment(self._make_alarm()),
            tags=self._tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[logs]),
        )
        self._scale(endpoint)

        self.endpoint_name, self.endpoint_arn, self.role_arn = endpoint.name, endpoint.arn, role.arn
        self.register_outputs(outputs(self, SageMakerEndpoint))

    def _make_role(self) -> tuple[aws.iam.Role, aws.iam.RolePolicy]:
        args, name = self._args, self._name
        role = _iam.make_role(
            f"{name}-execution",
            description=f"Taken by SageMaker for the endpoint {name}",
            trust=_iam.service_trust("sagemaker.amazonaws.com"),
            boundary=args.permissions_boundary,
            tags=args.tags,
            parent=self,
        )
        captures = self._capture_prefix if args.capture_percent else ""
        bucket_key = "" if args.bucket_key_arn is None else args.bucket_key_arn

        def document(known: list[str]) -> str:
            bucket, image, model, key, other_key = known
            reach = Reach(model, captures, (f"{ENDPOINT_LOG_GROUPS}/{name}",), watches_alarms=True)
            bucket_arn = f"arn:{regions.partition(args.region)}:s3:::{bucket}"
            return _iam.policy(
                execution_statements(args.region, reach, bucket_arn, _repository_arn(image), key, other_key)
            )

        policy = pulumi.Output.all(args.bucket, text(args.image), text(args.model), args.kms_key_arn, bucket_key).apply(
            document
        )
        return role, aws.iam.RolePolicy(f"{name}-execution", role=role.name, policy=policy, opts=self._child)

    def _make_group(self) -> aws.ec2.SecurityGroup:
        """Make the instances' security group: TLS outwards for S3, nothing inwards."""
        group = aws.ec2.SecurityGroup(
            f"{self._name}-instances",
            vpc_id=self._args.vpc_id,
            description=f"Instances of the SageMaker endpoint {self._name}",
            tags=self._tags,
            opts=self._child,
        )
        aws.vpc.SecurityGroupEgressRule(
            f"{self._name}-tls",
            security_group_id=group.id,
            description="TLS to S3, whose gateway endpoint has public addresses; the containers are isolated",
            cidr_ipv4="0.0.0.0/0",
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            tags=self._tags,
            opts=self._child,
        )
        return group

    def _make_model(
        self, role: aws.iam.Role, policy: aws.iam.RolePolicy, group: aws.ec2.SecurityGroup
    ) -> aws.sagemaker.Model:
        args = self._args
        return aws.sagemaker.Model(
            f"{self._name}-model",
            execution_role_arn=role.arn,
            primary_container={
                "image": text(args.image),
                "model_data_url": pulumi.Output.concat("s3://", args.bucket, "/", text(args.model)),
                "environment": sagemaker_hosting.environment(self._instance),
            },
            enable_network_isolation=True,
            vpc_config={"security_group_ids": [group.id], "subnets": list(args.subnet_ids)},
            tags=self._tags,
            # SageMaker reads the model's archive before it makes the model.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )

    def _make_configuration(self, model: aws.sagemaker.Model) -> aws.sagemaker.EndpointConfiguration:
        args, instance = self._args, self._instance
        return aws.sagemaker.EndpointConfiguration(
            f"{self._name}-config",
            production_variants=[
                {
                    "variant_name": VARIANT,
                    "model_name": model.name,
                    "instance_type": args.instance_type,
                    "initial_instance_count": args.instances,
                    "container_startup_health_check_timeout_in_seconds": sagemaker_hosting.startup_seconds(instance),
                }
            ],
            kms_key_arn=args.kms_key_arn if sagemaker_hosting.takes_volume_key(instance) else None,
            data_capture_config=self._capture() if args.capture_percent else None,
            tags=self._tags,
            opts=self._child,
        )

    @property
    def _capture_prefix(self) -> str:
        return f"{self._args.prefix}/captured/{self._name}"

    def _capture(self) -> aws.sagemaker.EndpointConfigurationDataCaptureConfigArgsDict:
        return {
            "enable_capture": True,
            "initial_sampling_percentage": self._args.capture_percent,
            "destination_s3_uri": pulumi.Output.concat("s3://", self._args.bucket, "/", self._capture_prefix),
            "kms_key_id": self._args.kms_key_arn,
            "capture_options": [{"capture_mode": "Input"}, {"capture_mode": "Output"}],
            "capture_content_type_header": {"json_content_types": ["application/json", "application/jsonlines"]},
        }

    def _make_alarm(self) -> aws.cloudwatch.MetricAlarm:
        return aws.cloudwatch.MetricAlarm(
            f"{self._name}-errors",
            name=f"{self._name}-errors",
            alarm_description=f"Calls of the SageMaker endpoint {self._name} end with an error of the server",
            namespace="AWS/SageMaker",
            metric_name="Invocation5XXErrors",
            dimensions={"EndpointName": self._name, "VariantName": VARIANT},
            statistic="Sum",
            period=60,
            evaluation_periods=1,
            comparison_operator="GreaterThanOrEqualToThreshold",
            threshold=self._args.most_errors,
            treat_missing_data="notBreaching",
            tags=self._tags,
            opts=self._child,
        )

    def _deployment(self, alarm: aws.cloudwatch.MetricAlarm) -> aws.sagemaker.EndpointDeploymentConfigArgsDict:
        routing: aws.sagemaker.EndpointDeploymentConfigBlueGreenUpdatePolicyTrafficRoutingConfigurationArgsDict = {
            "type": "ALL_AT_ONCE",
            "wait_interval_in_seconds": BAKE_SECONDS,
        }
        if self._args.instances > 1:  # SageMaker takes at most half of the instances first
            routing |= {"type": "CANARY", "canary_size": {"type": "INSTANCE_COUNT", "value": 1}}
        return {
            "blue_green_update_policy": {
                "traffic_routing_configuration": routing,
                "termination_wait_in_seconds": BAKE_SECONDS,
            },
            "auto_rollback_configuration": {"alarms": [{"alarm_name": alarm.name}]},
        }

    def _scale(self, endpoint: aws.sagemaker.Endpoint) -> None:
        args, name = self._args, self._name
        if args.max_instances is None:
            return
        target = aws.appautoscaling.Target(
            f"{name}-instances",
            min_capacity=args.instances,
            max_capacity=args.max_instances,
            resource_id=f"endpoint/{name}/variant/{VARIANT}",
            scalable_dimension="sagemaker:variant:DesiredInstanceCount",
            service_namespace="sagemaker",
            tags=self._tags,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[endpoint]),
        )
        aws.appautoscaling.Policy(
            f"{name}-calls",
            policy_type="TargetTrackingScaling",
            resource_id=target.resource_id,
            scalable_dimension=target.scalable_dimension,
            service_namespace=target.service_namespace,
            target_tracking_scaling_policy_configuration={
                "target_value": args.calls_per_minute,
                "predefined_metric_specification": {"predefined_metric_type": "SageMakerVariantInvocationsPerInstance"},
            },
            opts=self._child,
        )


def _repository_arn(image: str) -> str:
    """Return the ARN of the ECR repository of an image."""
    registry, _, rest = image.partition("/")
    account, _, _, region, *_ = registry.split(".")
    repository = rest.partition("@")[0].partition(":")[0]
    return f"arn:{regions.partition(region)}:ecr:{region}:{account}:repository/{repository}"
