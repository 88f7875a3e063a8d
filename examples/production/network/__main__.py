"""The network of a production environment and a runner in it: the machine from which `up` reaches a private API.

An administrator brings the network up once, before the stack in `../cluster`, which reads the output `existingNetwork`
(docs/deploying.md, Production from nothing). No name here begins with `trn-`, so that the deploy role cannot change the
network. Network and key are protected: `pulumi destroy` refuses until `protect` is set to false and applied.
"""

import json

import pulumi
import pulumi_aws as aws

from trainium_eks import EncryptionKey, Network

config = pulumi.Config()
region = config.require("region")
account = config.require("account")
deploy_policies = config.require_object("deployPolicies")
protect = config.get_bool("protect")
name = "production-network"

tags = {"Owner": "ml-platform", "CostCenter": "foundation-models", "Environment": "production-network"}
provider = aws.Provider("aws", region=region, allowed_account_ids=[account], default_tags={"tags": tags})
kept = pulumi.ResourceOptions(providers=[provider], protect=True if protect is None else protect)
own = pulumi.ResourceOptions(provider=provider)

key = EncryptionKey(f"{name}-key", {"region": region}, kept)
network = Network(
    name,
    {
        "region": region,
        "cidr_block": "10.32.0.0/16",
        "nat_gateways": "per-zone",
        "peer_cidr_blocks": config.get_object("peerCidrBlocks") or [],
        "interface_endpoints": ["ecr.api", "ecr.dkr", "sts", "logs"],
        "kms_key_arn": key.key_arn,
    },
    kept,
)

# The runner: nobody reaches it but by Session Manager, and it is the deploy role.
trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
role = aws.iam.Role(
    "training-runner", assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [trust]}), opts=own
)
policies = {each: f"arn:aws:iam::{account}:policy/{each}" for each in deploy_policies}
policies["session-manager"] = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
attached = [
    aws.iam.RolePolicyAttachment(f"training-runner-{each}", role=role.name, policy_arn=arn, opts=own)
    for each, arn in policies.items()
]
group = aws.ec2.SecurityGroup(
    "training-runner", vpc_id=network.vpc_id, description="Runner: nothing in, TLS out", opts=own
)
aws.vpc.SecurityGroupEgressRule(
    "training-runner-tls",
    security_group_id=group.id,
    description="AWS, registries, the Kubernetes API",
    ip_protocol="tcp",
    from_port=443,
    to_port=443,
    cidr_ipv4="0.0.0.0/0",
    opts=own,
)
template = aws.ec2.LaunchTemplate(
    "training-runner",
    # Resolved when the instance starts, so that a preview asks AWS nothing.
    image_id="resolve:ssm:/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
    instance_type="m7i.xlarge",
    metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1},
    tag_specifications=[
        {"resource_type": kind, "tags": {**tags, "Name": "training-runner"}} for kind in ("instance", "volume")
    ],
    block_device_mappings=[
        {
            "device_name": "/dev/xvda",
            "ebs": {"volume_type": "gp3", "volume_size": 50, "encrypted": "true", "kms_key_id": key.key_arn},
        }
    ],
    opts=own,
)
runner = aws.ec2.Instance(
    "training-runner",
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
    subnet_id=network.accelerator_subnet_id,
    vpc_security_group_ids=[group.id],
    iam_instance_profile=aws.iam.InstanceProfile("training-runner", role=role.name, opts=own).name,
    tags={"Name": "training-runner"},
    opts=pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=[*attached, *network.egress])),
)

pulumi.export("existingNetwork", network.as_existing_network())
pulumi.export("runner", runner.id)
