"""Names that eksctl, Terraform's modules, CloudFormation, Karpenter and HyperPod have for what the config has, too.

A name counts in any spelling, and without a usual beginning or end: ``iamRoleArn``, ``create_iam_role``, ``iam-role``.
"""

import functools
import re
from collections.abc import Collection, Mapping, Sequence

_TABLE = """
ConfigModel:
  enabled -> a section that is there is on; null turns off one that may be null
  tag additional_tags default_tags extra_tags common_tags -> the stack's `tags` are on everything
  iam iam_role role node_role node_iam_role instance_profile execution_role service_role iam_role_additional_policies ->
    the stack makes each role; `permissions_boundary` bounds them all
  kms kms_key key encryption encryption_key secrets_encryption secrets_encryption_key encrypted volume_encrypted
    volume_kms_key kms_key_administrator -> all is encrypted with the stack's key; `kept_key_arn` takes an earlier
    stack's
  security_group vpc_security_group node_security_group additional_security_group node_security_group_additional_rule ->
    the stack makes the security groups, with EFA's rules
  taint startup_taint -> the catalogue sets the taint that the device plugin and EKS know: remove it
  ssh remote_access key_pair ssh_key bastion -> no node takes SSH: aws ssm start-session opens a shell on one
  launch_template custom_launch_template block_device_mapping metadata_option imdsv1 pod_imds ebs_optimized monitoring
    user_data pre_bootstrap_command pre_bootstrap_user_data override_bootstrap_command bootstrap bootstrap_extra_arg
    cloudinit_pre_nodeadm kubelet_extra kubelet life_cycle lifecycle_script user_data_template_path threads_per_core
    tag_specification -> the stack makes launch template and user data: remove it
StackConfig: eks_managed managed self_managed
  aws_region location -> region | fsx lustre fsx_lustre storage -> file_system | ecr repository -> image_repository
  node_pool instance_group worker_group node_group -> node_groups | account aws_account -> allowed_account_ids
  fargate_profile auto_mode compute node_group_default -> nodes come by `node_groups` or Karpenter: these have EFA
  name cluster_name eks_cluster_name hyperpod_cluster_name resource_name_prefix name_prefix metadata environment env
    stack api_version kind -> the stack's name makes all names: remove it
  vpc networking vpc_id existing_vpc subnet private_subnet existing_private_subnet public_subnet control_plane_subnet ->
    `network` makes a VPC, `existing_network` {vpcId, cidrBlock, privateSubnets} takes one that there is
  access access_entries authentication_mode map_role map_user aws_auth aws_auth_role aws_auth_configmap masters_role
    admin iam_identity_mapping cluster_creator_admin_permission oidc irsa service_account -> `cluster.admin_principals`
    and those of `namespaces` get access entries; controllers have Pod Identity
  existing_file_system file_system_id fsx_id fsx_file_system existing_fsx existing_lustre efs -> LUSTRE
  prometheus amazon_prometheus kube_prometheus_stack monitoring grafana cloud_watch logging fluentbit metrics_server ->
    `observability` has metrics, Grafana and logs
  availability_zone az zone -> `network.zone_ids` lists zones by id: [usw2-az4, usw2-az1]
  team user group -> `namespaces` are the teams, each with its principals
  gpu_operator mpi_operator training_operator nvidia_device_plugin aws_efa_k8s_device_plugin efa neuron_device_plugin
    neuron efa_support -> `neuron_addons` and `gpu_addons` have the device plugins; every type that has EFA gets it
ClusterConfig: cluster eks_cluster eks control_plane
  version k8s_version -> kubernetes_version | upgrade_policy -> support_type | eks_addon -> addons
  service_ipv4_cidr service_cidr kubernetes_network -> service_cidr_block | log_retention -> log_retention_days
  admin admin_role access access_entries authentication_mode aws_auth_role map_role masters_role
    bootstrap_cluster_creator_admin_permission -> `admin_principals` is a list of role ARNs
  name region location -> the stack's name makes the cluster's, and `region` is the stack's: remove it
  endpoint_access cluster_endpoint resources_vpc endpoint_public_access endpoint_private_access private_cluster
    public_access private_access authorized_network endpoint_public_access_cidr -> `endpoint` {publicAccessCidrs:
    [203.0.113.0/24]} says who reaches the API
  logging log_type enabled_log_type cluster_logging cloud_watch cloudwatch_log_group_retention_in_day -> every log is
    kept, for `log_retention_days`
  addon_version -> a version is a field of its add-on: `addons` {vpc-cni: {version: v1.21.1-eksbuild.1}}
  vpc subnet -> `network` makes a VPC, `existing_network` takes one that there is
  compute storage zonal_shift -> there is no Auto Mode, which has no EFA: remove it
  node_group managed_node_group default_capacity default_capacity_instance -> `node_groups` stand beside the cluster;
    `system_nodes` and `cpu_nodes` are its CPU nodes
EndpointConfig: cluster_endpoint endpoint
  public public_access -> `public_access_cidrs` says who reaches the public endpoint, and empty turns it off
  private private_access -> the private endpoint is always on | cidr allowed_cidr -> public_access_cidrs
  way_in -> `private_access_via` says from where the private endpoint is reached: vpc or peers
CpuNodesConfig NodeGroupConfig: eks_managed_node_group managed_node_group node_group ng instance_group
  desired_capacity desired desired_node desired_count count node_count num_node instance_count initial_size size replica
    desired_node_count initial_node_count -> desired_size
  type machine_type node_type -> instance_type
  min min_node min_count min_capacity -> min_size | max max_node max_count max_capacity -> max_size
  volume_size disk_size disk_size_gb root_volume_size ebs_volume_size_in_gb -> root_volume_gib
  instance_types instance_selector -> a group has one instance type, because EFA interfaces are laid out for it: give
    `instance_type`
  scaling autoscaling -> `min_size`, `max_size` and `desired_size` are fields of the group itself
  volume_type volume_iops volume_throughput instance_storage -> the volume is an encrypted gp3 of `root_volume_gib`
  private_networking public_ip associate_public_ip_address -> every node is in a private subnet: remove it
NodeGroupConfig:
  version k8s_version cluster_version -> kubernetes_version | ami_release_version -> release_version
  node_label -> labels | placement_group_name -> placement_group | group nodegroup_name -> name
  name_prefix use_name_prefix instance_prefix instance -> EKS' name of the group begins with `name`: remove it
  instance_storage_policy instance_store_policy -> `local_storage` raid0 makes one volume of the disks
  zone_ids zone availability_zone az subnet override_vpc -> a group has one zone, because EFA does not cross zones: give
    `zone_id`, the zone's id, and make a group for each zone
  efa efa_support efa_only efa_enabled -> a type that has EFA gets it: remove it; `interface_layout` lays it out
  efa_interface efa_indices network_interface -> the catalogue says how many a type has; `interface_layout` how they lie
  ami ami_type ami_family latest_ami_release_version -> the catalogue says which AMI a type needs; `release_version`
    pins its release
  placement cluster_placement_group -> `placement_group` auto makes one where it helps
  capacity_type allow_spot spot spot_price market_type instance_market_option instances_distribution -> `capacity` says
    how instances are bought: {type: on-demand}, or {type: spot} if R29 is waived
  capacity_reservation reservation odcr capacity_reservation_target capacity_block training_plan -> `capacity` takes
    {type: reservation or capacity-block, id: cr-…, zoneId: …}
  update max_unavailable_percentage -> `max_unavailable` is a number of nodes
  max_pod max_pods_per_node node_repair node_recovery health_check on_start_deep_health_check -> the type decides on
    pods, and EKS repairs nodes by itself: remove it
Reservation CapacityBlock:
  capacity_reservation capacity_block reservation -> id
NetworkConfig: vpc network
  cidr ip_range ipv4_cidr_block ip_address -> cidr_block | endpoint vpc_endpoint -> interface_endpoints
  peer peer_cidr vpn_cidr -> peer_cidr_blocks | flow_log -> flow logs are kept, for `flow_log_retention_days`
  az availability_zone zone max_azs num_azs -> `zone_ids` lists zones by id: [usw2-az4, usw2-az1]
  nat nat_gateway nat_gateway_count single_nat_gateway one_nat_gateway_per_az -> `nat_gateways` is single or per-zone
  id vpc subnet private_subnet public_subnet intra_subnet -> this section makes a VPC; `existing_network` takes one that
    there is: {vpcId, cidrBlock, privateSubnets}
ExistingNetworkConfig: existing_vpc existing_network
  id -> vpc_id | cidr vpc_cidr -> cidr_block | subnet private_subnet -> `private_subnets` lists {id, zoneId, cidrBlock}
ExistingSubnet:
  subnet_id -> id | cidr -> cidr_block | az availability_zone -> zone_id
FileSystemConfig: fsx_lustre fsx lustre file_system
  id file_system_id fs_id dns_name mount_name existing volume_handle arn -> LUSTRE | metadata iops -> metadata_iops
  efa -> efa_enabled
  size capacity size_gb capacity_gb size_gib storage_capacity capacity_gib -> storage_capacity_gib
  deletion_protection -> protect
  throughput throughput_capacity per_unit_storage_throughput -> throughput_per_tib
  storage_type drive_cache_type data_compression_type file_system_type file_system_type_version lustre log root_squash
    weekly_maintenance_start_time -> it is Lustre 2.15 on SSD, with LZ4; its fields stand in this section itself
  import_path s3_import_path export_path auto_import_policy data_repository data_repository_path s3 bucket bucket_name
    s3_bucket_name -> `durability` {type: s3, bucket: <name>} links a bucket, by a data repository association
  automatic_backup_retention_day backup skip_final_backup -> `durability` {type: backup, retentionDays: 7} keeps them
  subnet zone availability_zone -> `zone_id` chooses the zone, and so the subnet
KarpenterConfig: karpenter
  instance_type -> instance_types | node_pool provisioner ec2_node_class -> accelerator_pools
  limit requirement -> `cpu_limit` bounds the CPU nodes of `instance_types`; `accelerator_pools` are all other nodes
  ami ami_family version weight -> the release pins it, as for managed groups: remove it
  disruption consolidation consolidate_after ttl_seconds_after_empty consolidation_policy -> `consolidate_minutes`, and
    `accelerator_empty_minutes` for nodes with accelerators
  expire_after ttl_seconds_until_expired -> `expire_after_hours` is a number of hours
KarpenterPoolConfig:
  capacity_reservation reservation -> capacity_reservation_ids | limit max_size -> max_nodes
  instance_types requirement zone availability_zone -> a pool has one `instance_type` in one `zone_id`
ClusterAutoscalerConfig: cluster_autoscaler
  node_group auto_discovery -> the CPU pool is always served; `accelerator_groups` names further groups
  min_size max_size -> the sizes are the group's own: `node_groups` {minSize: 0, maxSize: 8}
  balance_similar_node_group -> there is one CPU pool, and a gang must not be spread over groups
GpuAddonsConfig:
  training_operator -> `trainers` names Kubeflow's controllers: [v1] is the Training Operator, [] is none
QueueConfig:
  limit max cpu gpu nominal_quota quota -> `capability` {aws.amazon.com/neuron: 32} is the most it may use
NamespaceConfig:
  uid user_id run_as_user -> training_user_id | bucket bucket_name s3_bucket -> data_bucket
  user group role role_arn member iam_role -> principals | quota hard resource_quotas limit -> resource_quota
ImageRepositoryConfig: ecr
  repository -> name | image_tag_mutability scan_on_push lifecycle_policy -> `kept_images` says how many stay
"""
_LUSTRE = (
    "this config makes its file system; to mount one that there is, set `file_system` to null and use the component "
    "LustreVolumes in a program of your own (examples/lustre_volumes.py)"
)
_ENDS = re.compile("(ids?|arns?|config(uration)?s?|specification|selectorterms|module|s)$")
_BEGINNINGS = re.compile("^(enable|create|use|install|with|disable)(?=.)")


def known_as(models: Sequence[str], fields: Collection[str], name: str) -> str:
    """Return the field, or the sentence, in the place of another tool's name in a model, named with its bases; empty
    without one."""
    own = {_squashed(field): field for field in fields}
    known = [_sections()[model] for model in models if model in _sections()]
    for whole in (_squashed(name), _BEGINNINGS.sub("", _squashed(name))):
        for word in [whole, *(whole.removeprefix(head) for heads, _ in known for head in heads)]:
            theirs = (rules.get(word) or rules.get(_ENDS.sub("", word), "") for _, rules in known)
            for ours in (own.get(word, ""), *theirs):
                if ours in fields or " " in ours:
                    return ours
    return ""


def _squashed(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.lower())


@functools.cache
def _sections() -> Mapping[str, tuple[list[str], dict[str, str]]]:
    """Return for each model the words for it, and other tools' names with what stands in their place."""
    found: dict[str, tuple[list[str], dict[str, str]]] = {}
    for part in re.split(r"\n(?=\w)", re.sub(r"\n    +", " ", _TABLE.replace("LUSTRE", _LUSTRE)).strip()):
        head, *rules = re.split(r"\n  | \| ", part)
        models, _, words = head.partition(":")
        for model in models.split():
            heads, known = found.setdefault(model, ([], {}))
            heads.extend(map(_squashed, words.split()))
            for names, ours in (rule.split(" -> ") for rule in rules):
                known.update(dict.fromkeys(map(_squashed, names.split()), ours))
    return found
