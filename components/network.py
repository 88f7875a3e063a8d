"""Network: a VPC for training, and ExistingNetwork: an existing one, with the same outputs."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws
import pydantic

from trainium_eks.model.catalogue import regions
from trainium_eks.model.config import network as validators
from trainium_eks.model.config.network import ExistingNetworkConfig, NetworkConfig
from trainium_eks.model.policies.addon_policies import allow
from trainium_eks.model.sizing import addresses
from trainium_eks.model.validation import formats
from trainium_eks.model.validation.problems import Problem

from . import _iam, _ids
from ._args import Tags, Text, child_of, outputs, validate_args
from ._dicts import ExistingNetworkArgsDict, NetworkArgsDict

PUBLIC_ROLE_TAG = {"kubernetes.io/role/elb": "1"}
"""Tag by which controllers find the subnets of internet-facing load balancers (EKS user guide, network
requirements)."""

PRIVATE_ROLE_TAG = {"kubernetes.io/role/internal-elb": "1"}
"""Tag for the subnets of internal load balancers."""

ANYWHERE = "0.0.0.0/0"


class NetworkArgs(NetworkConfig):
    """Args of :class:`Network`: the config's network section, and its wiring."""

    region: formats.Region
    """AWS region of the zones."""
    kms_key_arn: _ids.KeyArn | None = None
    """Key for the flow logs' group; None leaves them to CloudWatch's own encryption."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds every role made here; None for no bound."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags in addition to the provider's."""


class ExistingNetworkArgs(ExistingNetworkConfig):
    """Args of :class:`ExistingNetwork`: the config's existing-network section, and its region."""

    region: formats.Region
    """AWS region of the VPC."""


def validate(args: NetworkArgs) -> list[Problem]:
    """Return the problems of a new network."""
    return [
        *validators.validate(args, region=args.region),
        *formats.tags("tags", args.tags),
    ]


def existing_problems(args: ExistingNetworkArgs) -> list[Problem]:
    """Return the problems of an adopted network, as far as its ids tell."""
    return validators.existing_problems(args, region=args.region)


class Network(pulumi.ComponentResource):
    """A VPC with one public and one private subnet in each zone, NAT, flow logs and an S3 gateway endpoint.

    Zones are given by id, because names differ between accounts; the first is the accelerator zone. Nodes live in the
    private subnets, which take most of the range. Only the NAT gateways get public addresses.
    """

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    cidr_block: pulumi.Output[str]
    """Address range of the VPC."""
    public_subnet_ids: pulumi.Output[Sequence[str]]
    """Public subnets, in the order of the zones."""
    private_subnet_ids: pulumi.Output[Sequence[str]]
    """Private subnets, in the order of the zones."""
    accelerator_subnet_id: pulumi.Output[str]
    """Private subnet of the accelerator zone."""
    accelerator_zone_id: pulumi.Output[str]
    """Zone id of the accelerators: the first zone."""

    def __init__(
        self,
        name: str,
        args: NetworkArgs | NetworkArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(NetworkArgs, args, validate, f"Network {name}", opts=opts)
        super().__init__("trainium-eks:index:Network", name, {}, opts)
        self._args = args
        self._zone_ids = args.zone_ids or regions.default_zones(args.region)
        plan = addresses.plan(args.cidr_block, self._zone_ids)

        self._vpc = self._make_vpc()
        self._public = {
            zone: self._make_subnet("public", zone, cidr, PUBLIC_ROLE_TAG) for zone, cidr in plan.public.items()
        }
        self._private = {
            zone: self._make_subnet("private", zone, cidr, PRIVATE_ROLE_TAG) for zone, cidr in plan.private.items()
        }
        self._egress: list[pulumi.Resource] = []
        self._make_internet_route()
        self._nat_gateways = self._make_nat_gateways()
        self._private_tables = {zone: self._make_private_routes(zone) for zone in self._zone_ids}
        self._make_s3_endpoint()
        self._make_interface_endpoints()
        if self._args.flow_logs:
            self._make_flow_logs()

        self.vpc_id = self._vpc.id
        self.cidr_block = self._vpc.cidr_block
        self.public_subnet_ids = pulumi.Output.all(*(subnet.id for subnet in self._public.values()))
        self.private_subnet_ids = pulumi.Output.all(*(subnet.id for subnet in self._private.values()))
        self.accelerator_subnet_id = self._private[self._zone_ids[0]].id
        self.accelerator_zone_id = pulumi.Output.from_input(self._zone_ids[0])
        self.register_outputs(outputs(self, Network))

    @property
    def zone_ids(self) -> tuple[str, ...]:
        """Zone ids, the accelerator zone first."""
        return self._zone_ids

    @property
    def egress(self) -> Sequence[pulumi.Resource]:
        """Routes and endpoints that must exist before a node in a private subnet can reach ECR, EKS and S3."""
        return tuple(self._egress)

    def as_existing_network(self) -> pulumi.Output[dict[str, Any]]:
        """Return the section ``existingNetwork`` of a stack's config that adopts this network, to be exported."""
        return pulumi.Output.all(
            vpcId=self._vpc.id,
            cidrBlock=self._vpc.cidr_block,
            **({"peerCidrBlocks": list(self._args.peer_cidr_blocks)} if self._args.peer_cidr_blocks else {}),
            **{
                f"{kind}Subnets": [
                    {"id": subnet.id, "zoneId": zone, "cidrBlock": subnet.cidr_block} for zone, subnet in own.items()
                ]
                for kind, own in (("private", self._private), ("public", self._public))
            },
        )

    def private_subnet_id(self, zone_id: str) -> pulumi.Output[str]:
        """Return the id of a zone's private subnet.

        Raises:
            ValueError: for a zone that the network does not have, with the zones that it has.
        """
        if zone_id not in self._private:
            raise ValueError(f"no private subnet in {zone_id!r}; zones of the network: {', '.join(self._private)}")
        return self._private[zone_id].id

    def _make_vpc(self) -> aws.ec2.Vpc:
        """Make the VPC with DNS, which nodes need to register, and close its default security group."""
        vpc = aws.ec2.Vpc(
            f"{self._name}-vpc",
            cidr_block=self._args.cidr_block,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags=self._tags("vpc"),
            opts=child_of(self),
        )
        aws.ec2.DefaultSecurityGroup(
            f"{self._name}-default-security-group",
            vpc_id=vpc.id,
            tags=self._tags("default-unused"),
            opts=child_of(self),
        )
        return vpc

    def _make_subnet(self, kind: str, zone: str, cidr_block: str, role: Mapping[str, str]) -> aws.ec2.Subnet:
        return aws.ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=self._vpc.id,
            availability_zone_id=zone,
            cidr_block=cidr_block,
            map_public_ip_on_launch=False,
            tags={**self._tags(f"{kind}-{zone}"), **role},
            opts=child_of(self),
        )

    def _make_internet_route(self) -> None:
        """Make the internet route of the public subnets, which the NAT gateways use."""
        gateway = aws.ec2.InternetGateway(
            f"{self._name}-internet", vpc_id=self._vpc.id, tags=self._tags("internet"), opts=child_of(self)
        )
        table = self._make_route_table("public")
        route = aws.ec2.Route(
            f"{self._name}-public-internet",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            gateway_id=gateway.id,
            opts=child_of(self),
        )
        associations = [self._associate("public", zone, table, subnet) for zone, subnet in self._public.items()]
        self._egress += [route, *associations]

    def _make_nat_gateways(self) -> dict[str, aws.ec2.NatGateway]:
        """Make one gateway in the accelerator zone, which pulls the large images, or one in each zone."""
        zones = self._zone_ids if self._args.nat_gateways == "per-zone" else self._zone_ids[:1]
        gateways = {}
        for zone in zones:
            address = aws.ec2.Eip(
                f"{self._name}-nat-{zone}-address", domain="vpc", tags=self._tags(f"nat-{zone}"), opts=child_of(self)
            )
            gateways[zone] = aws.ec2.NatGateway(
                f"{self._name}-nat-{zone}",
                allocation_id=address.allocation_id,
                subnet_id=self._public[zone].id,
                tags=self._tags(f"nat-{zone}"),
                # A NAT gateway fails to start before its subnet's way out is there (EC2: gateway not attached).
                opts=child_of(self, *self._egress),
            )
        return gateways

    def _make_private_routes(self, zone: str) -> aws.ec2.RouteTable:
        """Make a zone's private route table, one for each zone in both NAT modes, so that changing the mode replaces no
        association."""
        table = self._make_route_table(f"private-{zone}")
        nat = self._nat_gateways.get(zone) or self._nat_gateways[self._zone_ids[0]]
        route = aws.ec2.Route(
            f"{self._name}-private-{zone}-internet",
            route_table_id=table.id,
            destination_cidr_block=ANYWHERE,
            nat_gateway_id=nat.id,
            opts=child_of(self),
        )
        self._egress += [route, self._associate("private", zone, table, self._private[zone])]
        return table

    def _make_s3_endpoint(self) -> None:
        """Make the S3 endpoint, so that datasets, checkpoints and image layers bypass the NAT gateway, which charges by
        the gigabyte."""
        self._egress.append(
            aws.ec2.VpcEndpoint(
                f"{self._name}-s3",
                vpc_id=self._vpc.id,
                service_name=f"com.amazonaws.{self._args.region}.s3",
                vpc_endpoint_type="Gateway",
                route_table_ids=[table.id for table in self._private_tables.values()],
                tags=self._tags("s3"),
                opts=child_of(self),
            )
        )

    def _make_interface_endpoints(self) -> None:
        """Make private addresses for the listed services, reachable from the whole VPC over TLS."""
        if not self._args.interface_endpoints:
            return
        group = aws.ec2.SecurityGroup(
            f"{self._name}-endpoints",
            vpc_id=self._vpc.id,
            description="Interface endpoints: TLS from inside the VPC",
            tags=self._tags("endpoints"),
            opts=child_of(self),
        )
        rule = aws.vpc.SecurityGroupIngressRule(
            f"{self._name}-endpoints-tls",
            security_group_id=group.id,
            description="TLS from the VPC",
            tags=self._tags("endpoints"),
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            cidr_ipv4=self._vpc.cidr_block,
            opts=child_of(self),
        )
        self._egress.append(rule)
        # Only the gateway endpoints of China go without the country.
        prefix = "cn.com.amazonaws" if regions.partition(self._args.region) == "aws-cn" else "com.amazonaws"
        for service in self._args.interface_endpoints:
            endpoint = aws.ec2.VpcEndpoint(
                f"{self._name}-endpoint-{service.replace('.', '-')}",
                vpc_id=self._vpc.id,
                service_name=f"{prefix}.{self._args.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=[subnet.id for subnet in self._private.values()],
                security_group_ids=[group.id],
                tags=self._tags(service),
                opts=child_of(self),
            )
            self._egress.append(endpoint)

    def _make_flow_logs(self) -> None:
        """Log every accepted and refused connection in CloudWatch, encrypted with ``kms_key_arn``."""
        group = aws.cloudwatch.LogGroup(
            f"{self._name}-flow-logs",
            retention_in_days=self._args.flow_log_retention_days,
            kms_key_id=self._args.kms_key_arn,
            tags=self._tags("flow-logs"),
            opts=child_of(self),
        )
        role = _iam.make_role(
            f"{self._name}-flow-logs",
            description="Writes the VPC's flow logs",
            trust=_iam.service_trust("vpc-flow-logs.amazonaws.com"),
            boundary=self._args.permissions_boundary,
            tags=self._tags("flow-logs"),
            parent=self,
        )
        permission = aws.iam.RolePolicy(
            f"{self._name}-flow-logs", role=role.id, policy=group.arn.apply(_flow_log_policy), opts=child_of(self)
        )
        aws.ec2.FlowLog(
            f"{self._name}-flow-log",
            vpc_id=self._vpc.id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_destination=group.arn,
            iam_role_arn=role.arn,
            max_aggregation_interval=600,
            tags=self._tags("flow-log"),
            opts=child_of(self, permission),
        )

    def _make_route_table(self, key: str) -> aws.ec2.RouteTable:
        return aws.ec2.RouteTable(f"{self._name}-{key}", vpc_id=self._vpc.id, tags=self._tags(key), opts=child_of(self))

    def _associate(
        self, kind: str, zone: str, table: aws.ec2.RouteTable, subnet: aws.ec2.Subnet
    ) -> aws.ec2.RouteTableAssociation:
        return aws.ec2.RouteTableAssociation(
            f"{self._name}-{kind}-{zone}", route_table_id=table.id, subnet_id=subnet.id, opts=child_of(self)
        )

    def _tags(self, thing: str) -> dict[str, Text]:
        return {"Name": f"{self._name}-{thing}", **self._args.tags}


class ExistingNetwork(pulumi.ComponentResource):
    """An existing VPC, with the outputs of :class:`Network`. It makes nothing and looks nothing up.

    Private subnets must have a way out (NAT, or endpoints for every service and a registry inside the VPC).
    """

    vpc_id: pulumi.Output[str]
    """Id of the VPC."""
    cidr_block: pulumi.Output[str]
    """Primary address range of the VPC."""
    public_subnet_ids: pulumi.Output[Sequence[str]]
    """Public subnets as given; may be empty."""
    private_subnet_ids: pulumi.Output[Sequence[str]]
    """Private subnets as given."""
    accelerator_subnet_id: pulumi.Output[str]
    """The first private subnet."""
    accelerator_zone_id: pulumi.Output[str]
    """Zone id of the first private subnet."""

    def __init__(
        self,
        name: str,
        args: ExistingNetworkArgs | ExistingNetworkArgsDict,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        args = validate_args(ExistingNetworkArgs, args, existing_problems, f"ExistingNetwork {name}", opts=opts)
        super().__init__("trainium-eks:index:ExistingNetwork", name, {}, opts)
        self._private = {subnet.zone_id: subnet.id for subnet in args.private_subnets}
        self._zone_ids = tuple(dict.fromkeys(subnet.zone_id for subnet in args.private_subnets))
        self.vpc_id = pulumi.Output.from_input(args.vpc_id)
        self.cidr_block = pulumi.Output.from_input(args.cidr_block)
        self.public_subnet_ids = pulumi.Output.from_input([subnet.id for subnet in args.public_subnets])
        self.private_subnet_ids = pulumi.Output.from_input([subnet.id for subnet in args.private_subnets])
        self.accelerator_subnet_id = self.private_subnet_id(self._zone_ids[0])
        self.accelerator_zone_id = pulumi.Output.from_input(self._zone_ids[0])
        self.register_outputs(outputs(self, ExistingNetwork))

    @property
    def zone_ids(self) -> tuple[str, ...]:
        """Zone ids of the private subnets, the accelerator zone first."""
        return self._zone_ids

    @property
    def egress(self) -> Sequence[pulumi.Resource]:
        """Empty, because the network's routes and endpoints exist already."""
        return ()

    def private_subnet_id(self, zone_id: str) -> pulumi.Output[str]:
        """Return the id of a zone's private subnet.

        Raises:
            ValueError: for a zone without a private subnet, with the zones that have one.
        """
        if zone_id not in self._private:
            raise ValueError(f"no private subnet in {zone_id!r}; zones of the network: {', '.join(self._zone_ids)}")
        return pulumi.Output.from_input(self._private[zone_id])


def _flow_log_policy(log_group_arn: str) -> str:
    return _iam.policy(
        [
            allow(
                ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
                [log_group_arn, f"{log_group_arn}:log-stream:*"],
            ),
            # The service lists groups before it writes; that action takes no narrower resource.
            allow("logs:DescribeLogGroups", "*"),
        ]
    )
