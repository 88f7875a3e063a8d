"""The request for a training job, as plain data, and the script that its containers run."""

import shlex
from collections.abc import Mapping
from typing import Any

from trainium_eks.jobs.objects.command import PORT, REFUSAL, REFUSAL_FILE, SIGNALS, WAIT
from trainium_eks.jobs.objects.environment import environment
from trainium_eks.jobs.objects.job import REFUSED
from trainium_eks.jobs.sagemaker.job import CODE_CHANNEL, SageMakerJob

ROOT = "/opt/ml"
"""Directory that SageMaker shares with a container."""

LAUNCH = "launch.sh"
ARCHIVE = "workspace.tar.gz"
"""Names of the files in the channel of the code."""

VOLUME_GIB = 500
"""Storage of an instance without local disks, GiB; at most as much of local disks is requested."""

SPOT_WAIT = 2
"""Times the longest run that a Spot job may take, its waits included."""


def training_request(made: SageMakerJob) -> dict[str, Any]:
    """Return the parameters of CreateTrainingJob.

    The entry point is a script in a channel, because an entry point has at most 256 characters (botocore).
    """
    job, where, options = made.job, made.where, made.job.options
    seconds = round(options.max_hours * 3600)
    stops = {"MaxRuntimeInSeconds": seconds} | ({"MaxWaitTimeInSeconds": SPOT_WAIT * seconds} if made.spot else {})
    code = {CODE_CHANNEL: f"{made.uri('code', job.name)}/"}
    return {
        "TrainingJobName": job.name,
        "AlgorithmSpecification": {
            "TrainingImage": job.image,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["bash", f"{ROOT}/input/data/{CODE_CHANNEL}/{LAUNCH}"],
        },
        "RoleArn": where.role_arn,
        "InputDataConfig": [_channel(made, name, uri) for name, uri in {**code, **made.channels}.items()],
        "OutputDataConfig": {"S3OutputPath": made.uri("output"), "KmsKeyId": where.kms_key_arn},
        "ResourceConfig": _instances(made),
        "VpcConfig": {"SecurityGroupIds": [*where.security_group_ids], "Subnets": [*where.subnet_ids]},
        "StoppingCondition": stops,
        "EnableNetworkIsolation": True,
        "EnableManagedSpotTraining": made.spot,
        "CheckpointConfig": {"S3Uri": made.uri("checkpoints"), "LocalPath": f"{ROOT}/checkpoints"},
        "Tags": [{"Key": "Namespace", "Value": job.namespace}, {"Key": "Name", "Value": job.name}],
        **({"RetryStrategy": {"MaximumRetryAttempts": job.retries}} if job.retries else {}),
    }


def _instances(made: SageMakerJob) -> dict[str, Any]:
    job, instance = made.job, made.job.instance
    local = instance.local_disks * instance.local_disk_gb
    found: dict[str, Any] = {
        "InstanceType": made.instance_type,
        "InstanceCount": job.nodes,
        "VolumeSizeInGB": min(VOLUME_GIB, local) if local else VOLUME_GIB,
    }
    if not local:
        # SageMaker takes no key for local disks, which encrypt by themselves (API reference, ResourceConfig).
        found["VolumeKmsKeyId"] = made.where.kms_key_arn
    if job.options.keep_alive:
        found["KeepAlivePeriodInSeconds"] = job.options.keep_alive
    return found


def _channel(made: SageMakerJob, name: str, source: str) -> dict[str, Any]:
    if source.startswith("s3://"):
        data = {"S3DataType": "S3Prefix", "S3Uri": source, "S3DataDistributionType": "FullyReplicated"}
        return {"ChannelName": name, "DataSource": {"S3DataSource": data}}
    assert made.volume is not None, "a path without a volume is refused"
    files = {
        "FileSystemId": made.volume.file_system_id,
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": "ro",
        "DirectoryPath": source,
    }
    return {"ChannelName": name, "DataSource": {"FileSystemDataSource": files}}


_NODE = """\
import json
found = json.load(open("{root}/input/config/resourceconfig.json"))
hosts = sorted(found["hosts"], key=lambda host: int(host.rpartition("-")[2]))
print(hosts.index(found["current_host"]), hosts[0], found.get("network_interface_name", "eth0"))"""
"""Program that prints the node's number, the name of node 0 and the network interface."""


def launch_script(made: SageMakerJob, root: str = ROOT) -> str:
    """Return the script of each container: SageMaker's settings as variables, the workspace, then torchrun.

    SageMaker's training toolkit, which our images lack, sets the same variables."""
    job = made.job
    program = [job.program.script] if job.program.script else ["-m", job.program.module]
    size = f"--nnodes {job.nodes} --nproc_per_node {job.ranks_per_node} --max_restarts {job.options.max_restarts}"
    meets = f'--node_rank "$node" --master_addr "$first" --master_port {PORT}' if job.nodes > 1 else "--standalone"
    words = " ".join(map(shlex.quote, [*program, *job.program.arguments]))
    lines = [
        'fail() { echo "$1" >&2; echo "$1" > ' + f"{root}/output/failure; exit {REFUSED}; }}",
        f"for directory in model output checkpoints; do [ -w {root}/$directory ] || {{ echo "
        f'"user $(id -u) of the image cannot write {root}/$directory: take an image whose USER is root" >&2; '
        f"exit {REFUSED}; }}; done",
        f"place=$(python3 -c {shlex.quote(_NODE.format(root=root))}) || fail 'no resourceconfig.json of SageMaker'",
        "read -r node first interface <<EOF\n$place\nEOF",
        *(f"export {name}={shlex.quote(value)}" for name, value in _variables(made, root).items()),
        # The job's own value wins.
        *(
            f'export {name}="$interface"'
            for name in ("CCOM_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
            if name not in job.env
        ),
        f"export {REFUSAL_FILE}=$(mktemp -u)",
    ]
    if job.has_workspace:
        archive = f"{root}/input/data/{CODE_CHANNEL}/{ARCHIVE}"
        lines.append(f'work=$(mktemp -d) && tar -xzf {archive} -C "$work" && cd "$work" || fail \'no workspace\'')
    if job.program.script:
        missing = shlex.quote(f"there is no script {job.program.script}")
        lines.append(f"[ -f {shlex.quote(job.program.script)} ] || fail {missing}")
    ends = [
        REFUSAL,
        f'[ "$code" = 0 ] || echo "node $node ended with exit code $code: trn logs {job.name}" > {root}/output/failure',
        'exit "$code"',
    ]
    launch = f"torchrun {size} {meets} --tee 3 --role '' {words} &"
    return "\n".join([*SIGNALS, *lines, launch, *WAIT, *ends, ""])


def _variables(made: SageMakerJob, root: str) -> Mapping[str, str]:
    """Return the variables of the containers, the job's own last."""
    job = made.job
    devices = {"neuron": "SM_NUM_NEURONS", "nvidia": "SM_NUM_GPUS"}.get(job.instance.family)
    found = {
        "SM_MODEL_DIR": f"{root}/model",
        "SM_OUTPUT_DATA_DIR": f"{root}/output/data",
        "SM_CHECKPOINT": f"{root}/checkpoints",
        "TRN_OUTPUT_DIR": f"{root}/checkpoints",
        **{f"SM_CHANNEL_{name.replace('-', '_').upper()}": f"{root}/input/data/{name}" for name in made.channels},
    }
    if devices:
        found[devices] = str(job.instance.logical_neuron_cores or job.instance.accelerators)
    return {**found, **environment(job)}
