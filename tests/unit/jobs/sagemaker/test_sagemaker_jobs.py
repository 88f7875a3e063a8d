"""SageMaker training jobs: the request by botocore's model, the script as containers run it, and what AWS answers."""

import json
import os
import signal
import subprocess
from dataclasses import replace
from datetime import UTC, datetime

import boto3
import pytest
from aws_double import AwsError as Refused
from cluster_snapshots import outputs as stack_outputs
from sagemaker_answers import BEGUN, IMAGE, JOB, WHERE, check, summary, training
from trainium_workloads.text_classification import sagemaker
from waiting import until

from trainium_eks.aws.sessions import AwsError
from trainium_eks.jobs.objects.job import Program
from trainium_eks.jobs.sagemaker import job as sagemaker_job
from trainium_eks.jobs.sagemaker.job import SageMakerJob
from trainium_eks.jobs.sagemaker.request import launch_script, training_request
from trainium_eks.jobs.sagemaker.service import SageMakerJobs, watched
from trainium_eks.jobs.submit.requests import JobRequest

OUTPUTS = stack_outputs()


def planned(**options):
    outputs = OUTPUTS.model_copy(update={"sage_maker": options.pop("where", WHERE)})
    program = options.pop("program", Program(module="trainium_workloads.bert.pretrain"))
    given = {"on": "sagemaker", "instance_type": "trn1.32xlarge", "image": IMAGE, **options}
    request = JobRequest(program=program, **given)
    return sagemaker_job.plan(request, outputs, outputs.namespaces[0], given["image"], "bcdfg")


def made(**options):
    found = planned(**options)
    assert isinstance(found, SageMakerJob), found
    return found


VOLUME = OUTPUTS.shared_volume
ON_LUSTRE = {
    "FileSystemId": VOLUME.file_system_id,
    "FileSystemType": "FSxLustre",
    "FileSystemAccessMode": "ro",
    "DirectoryPath": f"/{VOLUME.mount_name}/training/models/bert",
}
CHECKPOINTS = {"S3Uri": "s3://acme-data/sagemaker/training/bert/checkpoints", "LocalPath": "/opt/ml/checkpoints"}
RESOURCES = {"InstanceType": "ml.trn1.32xlarge", "InstanceCount": 1, "VolumeSizeInGB": 500}


def test_training_request_is_valid_for_botocore():
    for options in (
        {},
        {"nodes": 4, "spot": True, "channel": ("train=s3://acme-data/reviews/train", "model=/data/models/bert")},
        {"keep_alive": 21_600, "retries": 30, "name": "bert-1", "max_hours": 28 * 24},
        {"instance_type": "p5.4xlarge", "program": Program(script="train.py"), "has_workspace": True},
    ):
        check("CreateTrainingJob", training_request(made(**options)))
    for options, path, expected in (
        ({}, "EnableNetworkIsolation", True),
        ({}, "VpcConfig", {"SecurityGroupIds": ["sg-0a1b2c3d"], "Subnets": [*WHERE.subnet_ids]}),
        ({}, "RoleArn", WHERE.role_arn),
        ({}, "OutputDataConfig.KmsKeyId", WHERE.kms_key_arn),
        ({}, "AlgorithmSpecification.TrainingImage", IMAGE),
        ({}, "RetryStrategy", {"MaximumRetryAttempts": 3}),
        ({"keep_alive": 900}, "ResourceConfig", {**RESOURCES, "KeepAlivePeriodInSeconds": 900}),
        ({"spot": True}, "EnableManagedSpotTraining", True),
        (
            {"spot": True, "max_hours": 2},
            *("StoppingCondition", {"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 14400}),
        ),
        # The next job of the name goes on.
        ({"name": "bert"}, "CheckpointConfig", CHECKPOINTS),
        (
            {"channel": ("train=s3://acme-data/reviews", "model=models/bert")},
            *("InputDataConfig.1.DataSource.S3DataSource.S3Uri", "s3://acme-data/reviews"),
        ),
        ({"channel": ("model=models/bert",)}, "InputDataConfig.1.DataSource.FileSystemDataSource", ON_LUSTRE),
    ):
        found = training_request(made(**options))
        for each in path.split("."):
            found = found[int(each) if each.isdigit() else each]
        assert found == expected
        assert ("TRN_CHECKPOINT_SECONDS=600" in launch_script(made(**options))) is ("spot" in options)


def test_impossible_job_is_refused_by_its_option():
    for path, options in (
        ("--on", {"where": None}),
        *(("--instance-type", {"instance_type": "trn2.3xlarge"}), ("--group", {"group": "trn1"})),
        *(("--data", {"data": ("reviews",)}), ("--kind", {"kind": "trainjob"}), ("--precompile", {"precompile": True})),
        ("--name", {"name": "b" * 60}),
        ("--image", {"image": "docker.io/library/python:3.12"}),
        *(("--nodes", {"nodes": 0}), ("--nodes", {"nodes": 2, "instance_type": "trn1.2xlarge"})),
        *(("--ranks-per-node", {"ranks_per_node": 5}), ("--precision", {"precision": "int4"})),
        *(("--retries", {"retries": 31}), ("--max-hours", {"max_hours": 0.0})),
        *(("--keep-alive", {"keep_alive": 21_601}), ("--keep-alive", {"keep_alive": 60, "spot": True})),
        *(
            ("--channel", {"channel": each})
            for each in (
                *(("train",), ("code=s3://acme-data/x",), ("a=s3://acme-data/x", "a=s3://acme-data/y")),
                *(("a=s3://payroll/x",), ("a=/data/../research",)),
            )
        ),
        *(("", {"program": Program()}), ("--script", {"program": Program("launch.sh")})),
        ("--env", {"variables": {"HF_TOKEN": "hf_x"}}),
    ):
        found = planned(**options)
        assert isinstance(found, tuple)
        assert [each.path for each in found] == [path]


# --- the script of the containers -------------------------------------------------------------------------------------

TORCHRUN = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$SEEN/words"
env > "$SEEN/environment"
pwd > "$SEEN/directory"
eval "$BEHAVES"
"""


class Container:
    """SageMaker's directory in a container, and a torchrun that notes how it was called."""

    def __init__(self, place, host="algo-1", hosts=1):
        self.root, self.seen = place / "ml", place
        for each in ("model", "output/data", "checkpoints", "input/config", "input/data/code"):
            (self.root / each).mkdir(parents=True)
        names = [f"algo-{number + 1}" for number in range(hosts)]
        config = {"current_host": host, "hosts": names, "network_interface_name": "eth7"}
        (self.root / "input/config/resourceconfig.json").write_text(json.dumps(config))
        torchrun = place / "torchrun"
        torchrun.write_text(TORCHRUN)
        torchrun.chmod(0o755)

    def start(self, job, behaves="true"):
        environment = {"PATH": f"{self.seen}:{os.environ['PATH']}", "SEEN": str(self.seen), "BEHAVES": behaves}
        script = launch_script(job, str(self.root))
        return subprocess.Popen(["bash", "-c", script], env=environment, stderr=subprocess.PIPE, text=True)

    def run(self, job, behaves="true"):
        _, said = (process := self.start(job, behaves)).communicate(timeout=30)
        return process.returncode, said


def test_a_container_gets_sagemaker_s_variables_and_its_place_in_the_gang(tmp_path):
    container = Container(tmp_path, "algo-10", 12)
    job = made(nodes=12, channel=("train=s3://acme-data/reviews",), env=(), variables={"MINE": "a 'b'"})
    assert container.run(job) == (0, "")
    words, root = (tmp_path / "words").read_text().split("\n"), container.root
    for name, value in (("--node_rank", "9"), ("--master_addr", "algo-1"), ("--nproc_per_node", "32")):
        assert words[words.index(name) + 1] == value
    places = {
        "SM_MODEL_DIR": f"{root}/model",
        "SM_CHANNEL_TRAIN": f"{root}/input/data/train",
        "SM_CHECKPOINT": f"{root}/checkpoints",
    }
    of_neuron = {"SM_NUM_NEURONS": "32", "TRN_BACKEND": "xla", "PJRT_DEVICE": "NEURON"}
    of_network = {"CCOM_SOCKET_IFNAME": "eth7", "FI_PROVIDER": "efa"}
    seen = dict(line.split("=", 1) for line in (tmp_path / "environment").read_text().splitlines() if "=" in line)
    assert seen.items() >= {**places, **of_neuron, **of_network, "MINE": "a 'b'"}.items()
    read = sagemaker.arguments(seen, ["--epochs", "2"])
    pairs = dict(zip(read[::2], read[1::2], strict=True))
    assert [pairs[each] for each in ("--model-out", "--train-data", "--output")] == [*places.values()]


def test_the_workspace_is_unpacked_and_the_script_found_there(tmp_path):
    container = Container(tmp_path)
    (tmp_path / "train.py").write_text("")
    archive = container.root / "input/data/code/workspace.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", tmp_path, "train.py"], check=True)
    job = made(program=Program("train.py", arguments=("--epochs", "2")), has_workspace=True)
    assert container.run(job)[0] == 0
    assert (tmp_path / "words").read_text().endswith("train.py\n--epochs\n2\n")
    missing = replace(job, job=replace(job.job, program=Program("other.py")))
    said = "there is no script other.py\n"
    assert container.run(missing) == (78, said)
    assert (container.root / "output/failure").read_text() == said


@pytest.mark.parametrize(("behaves", "code"), [("exit 3", 3), ('touch "$TRN_REFUSED"; exit 1', 78)])
def test_failure_has_its_exit_code_and_the_log_location(tmp_path, behaves, code):
    container, job = Container(tmp_path), made()
    assert container.run(job, behaves)[0] == code
    said = f"node 0 ended with exit code {code}: trn logs {job.job.name}\n"
    assert (container.root / "output/failure").read_text() == said
    (container.root / "model").rmdir()
    code, said = container.run(made())
    assert (code, "take an image whose USER is root" in said) == (78, True), "a directory that cannot be written"


def test_sigterm_reaches_the_launcher_to_save(tmp_path):
    behaves = 'trap "touch $SEEN/saved; exit 143" TERM; touch $SEEN/up; while :; do sleep 0.05; done'
    process = Container(tmp_path).start(made(), behaves)
    until((tmp_path / "up").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert (process.returncode, (tmp_path / "saved").exists()) == (143, True)


# --- AWS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud(moto_cloud):
    place = {"LocationConstraint": "us-west-2"}
    boto3.client("s3", "us-west-2").create_bucket(Bucket="acme-data", CreateBucketConfiguration=place)
    return SageMakerJobs("us-west-2", WHERE, "training")


def test_submitted_job_is_found_by_its_team_and_stack(cloud):
    job = made(nodes=2, name="bert", spot=True)
    cloud.submit(job, "H4sIAAAAAAAA")
    name, where = job.job.name, f"sagemaker/training/bert/code/{job.job.name}"
    objects = boto3.client("s3", "us-west-2").list_objects_v2(Bucket="acme-data")["Contents"]
    assert [each["Key"] for each in objects] == [f"{where}/launch.sh", f"{where}/workspace.tar.gz"]
    found = cloud.find(name)
    assert (found.nodes, found.instance_type, found.kind) == (2, "ml.trn1.32xlarge", "sagemaker")
    assert found.checkpoints == job.uri("checkpoints")
    assert [each.name for each in cloud.jobs(datetime(2000, 1, 1, tzinfo=UTC))] == [name]
    assert found.to_json()["instanceType"] == "ml.trn1.32xlarge"
    other = SageMakerJobs("us-west-2", WHERE.model_copy(update={"role_arn": WHERE.role_arn + "2"}), "training")
    assert [each.find(name) for each in (other, SageMakerJobs("us-west-2", WHERE, "research"))] == [None, None]
    assert cloud.find("training-none-bcdfg") is None


def test_states_use_the_common_words_and_billable_time_is_counted():
    for status, second, state in (
        ("InProgress", "Starting", "Pending"),
        ("InProgress", "Training", "Running"),
        ("InProgress", "Interrupted", "Restarting"),
        ("Stopping", "Stopping", "Terminating"),
        ("Stopped", "Stopped", "Terminated"),
        ("Stopped", "MaxRuntimeExceeded", "Failed"),
        ("Failed", "Failed", "Failed"),
        ("Completed", "Completed", "Completed"),
    ):
        found = watched(training(status, second))
        assert (found.state, found.ended is None) == (state, status in ("InProgress", "Stopping"))
    steps = [{"Status": each, "StartTime": BEGUN} for each in ("Training", "Interrupted", "Restarting", "Training")]
    more = {"BillableTimeInSeconds": 6033, "TrainingEndTime": BEGUN, "SecondaryStatusTransitions": steps}
    found = watched(training("Completed", "Completed", **more))
    assert (found.seconds(datetime.now(UTC)), found.restarts, found.ended) == (6033, 1, BEGUN)


def test_second_job_of_a_name_waits_and_log_lines_keep_to_their_node(doubled):
    answers = {"ListTrainingJobs": {"TrainingJobSummaries": [summary("TrainingJob", JOB, "InProgress")]}}
    answers["ListTransformJobs"] = {"TransformJobSummaries": []}
    jobs, double = doubled(**answers, DescribeTrainingJob=training("InProgress", "Training"))
    with pytest.raises(AwsError, match="another --name has separate checkpoints"):
        jobs.submit(made(name="bert"))
    assert "sagemaker:CreateTrainingJob" not in [name for name, _ in double.asked]
    streams = ("training-bert/algo-1", "training-bert/algo-12", "training-bert2/algo-1")
    events = [
        {"logStreamName": f"{stream}-1700000000", "eventId": stream, "timestamp": 1000, "message": stream}
        for stream in streams
    ]
    jobs, double = doubled(FilterLogEvents={"events": events})
    bert = watched(training("InProgress", "Training", TrainingJobName="training-bert"))
    found = [(node, line.text) for _, node, _, line in jobs.lines(bert, None)]
    assert found == [(0, streams[0]), (11, streams[1])]
    assert [node for _, node, _, _ in jobs.lines(bert, 0)] == [0]
    assert double.asked[-1][1]["logStreamNamePrefix"] == "training-bert/algo-1-"
    # No log group yet is no log, and no error.
    jobs, _ = doubled(FilterLogEvents=Refused("ResourceNotFoundException", "no group"))
    assert [*jobs.lines(bert, None)] == []
