"""SageMaker training jobs: the request by botocore's model, the script as containers run it, and what AWS answers."""

import json
import os
import signal
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from aws_double import AwsError as Refused
from cluster_snapshots import outputs as stack_outputs
from sagemaker_answers import BEGUN, IMAGE, JOB, WHERE, check, summary, training
from trainium_workloads.text_classification import sagemaker

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


CASES: list[dict[str, Any]] = [
    {},
    {"nodes": 4, "spot": True, "channel": ("train=s3://acme-data/reviews/train", "model=/data/models/bert")},
    {"keep_alive": 1800, "retries": 0, "name": "bert-1", "max_hours": 0.5},
    {"instance_type": "p5.4xlarge", "program": Program(script="train.py"), "has_workspace": True},
]


@pytest.mark.parametrize("options", CASES)
def test_the_request_is_one_that_botocore_s_model_takes(options):
    check("CreateTrainingJob", training_request(made(**options)))


def test_a_job_is_isolated_in_the_private_subnets_under_the_stack_s_role_and_key():
    request = training_request(made())
    assert request["EnableNetworkIsolation"] is True
    assert request["VpcConfig"] == {"SecurityGroupIds": ["sg-0a1b2c3d"], "Subnets": [*WHERE.subnet_ids]}
    assert (request["RoleArn"], request["OutputDataConfig"]["KmsKeyId"]) == (WHERE.role_arn, WHERE.kms_key_arn)
    assert request["AlgorithmSpecification"]["TrainingImage"] == IMAGE
    resources = {"InstanceType": "ml.trn1.32xlarge", "InstanceCount": 1, "VolumeSizeInGB": 500}
    assert request["ResourceConfig"] == resources
    assert request["RetryStrategy"] == {"MaximumRetryAttempts": 3}
    assert training_request(made(keep_alive=900))["ResourceConfig"]["KeepAlivePeriodInSeconds"] == 900


def test_spot_saves_checkpoints_where_the_next_job_of_the_name_goes_on():
    first, again = made(spot=True, name="bert", max_hours=2), made(name="bert")
    request = training_request(first)
    assert request["EnableManagedSpotTraining"] is True
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 7200, "MaxWaitTimeInSeconds": 14400}
    assert request["CheckpointConfig"] == {
        "S3Uri": "s3://acme-data/sagemaker/training/bert/checkpoints",
        "LocalPath": "/opt/ml/checkpoints",
    }
    assert training_request(again)["CheckpointConfig"] == request["CheckpointConfig"]
    assert "TRN_CHECKPOINT_SECONDS=600" in launch_script(first)
    assert made().uri("checkpoints") != made(name="other").uri("checkpoints")


def test_data_comes_from_s3_or_from_the_team_s_directory_of_the_file_system():
    channels = training_request(made(channel=("train=s3://acme-data/reviews", "model=models/bert")))["InputDataConfig"]
    by_name = {each["ChannelName"]: each["DataSource"] for each in channels}
    assert by_name["train"]["S3DataSource"]["S3Uri"] == "s3://acme-data/reviews"
    volume = OUTPUTS.shared_volume
    assert volume is not None
    assert by_name["model"]["FileSystemDataSource"] == {
        "FileSystemId": volume.file_system_id,
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": "ro",
        "DirectoryPath": f"/{volume.mount_name}/training/models/bert",
    }


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"where": None}, "--on"),
        ({"instance_type": "trn2.3xlarge"}, "--instance-type"),
        ({"group": "trn1"}, "--group"),
        ({"data": ("reviews",)}, "--data"),
        ({"kind": "trainjob"}, "--kind"),
        ({"precompile": True}, "--precompile"),
        ({"name": "Bert"}, "--name"),
        ({"name": "b" * 60}, "--name"),
        ({"image": "docker.io/library/python:3.12"}, "--image"),
        ({"nodes": 0}, "--nodes"),
        ({"nodes": 2, "instance_type": "trn1.2xlarge"}, "--nodes"),
        ({"ranks_per_node": 5}, "--ranks-per-node"),
        ({"precision": "int4"}, "--precision"),
        ({"retries": 31}, "--retries"),
        ({"max_hours": 0.0}, "--max-hours"),
        ({"keep_alive": 21_601}, "--keep-alive"),
        ({"keep_alive": 60, "spot": True}, "--keep-alive"),
        ({"channel": ("train",)}, "--channel"),
        ({"channel": ("code=s3://acme-data/x",)}, "--channel"),
        ({"channel": ("a=s3://acme-data/x", "a=s3://acme-data/y")}, "--channel"),
        ({"channel": ("a=s3://payroll/x",)}, "--channel"),
        ({"channel": ("a=/data/../research",)}, "--channel"),
        ({"program": Program()}, ""),
        ({"program": Program("launch.sh")}, "--script"),
        ({"variables": {"HF_TOKEN": "hf_x"}}, "--env"),
    ],
)
def test_a_job_that_cannot_run_is_refused_by_its_option(options, path):
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

    @property
    def environment(self):
        lines = (self.seen / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


def test_a_container_gets_sagemaker_s_variables_and_its_place_in_the_gang(tmp_path):
    container = Container(tmp_path, "algo-10", 12)
    job = made(nodes=12, channel=("train=s3://acme-data/reviews",), env=(), variables={"MINE": "a 'b'"})
    assert container.run(job) == (0, "")
    words = (tmp_path / "words").read_text().split("\n")
    assert words[words.index("--node_rank") + 1] == "9"
    assert words[words.index("--master_addr") + 1] == "algo-1"
    assert words[words.index("--nproc_per_node") + 1] == "32"
    seen, root = container.environment, container.root
    assert seen["SM_MODEL_DIR"] == f"{root}/model"
    assert seen["SM_CHANNEL_TRAIN"] == f"{root}/input/data/train"
    assert (seen["SM_CHECKPOINT"], seen["SM_NUM_NEURONS"]) == (f"{root}/checkpoints", "32")
    assert (seen["CCOM_SOCKET_IFNAME"], seen["TRN_BACKEND"], seen["MINE"]) == ("eth7", "xla", "a 'b'")
    assert (seen["FI_PROVIDER"], seen["PJRT_DEVICE"]) == ("efa", "NEURON")
    read = sagemaker.arguments(seen, ["--epochs", "2"])
    pairs = dict(zip(read[::2], read[1::2], strict=True))
    assert pairs["--train-data"] == f"{root}/input/data/train"
    assert (pairs["--output"], pairs["--model-out"]) == (f"{root}/checkpoints", f"{root}/model")


def test_the_workspace_is_unpacked_and_the_script_found_there(tmp_path):
    container = Container(tmp_path)
    (tmp_path / "train.py").write_text("")
    archive = container.root / "input/data/code/workspace.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", tmp_path, "train.py"], check=True)
    job = made(program=Program("train.py", arguments=("--epochs", "2")), has_workspace=True)
    assert container.run(job)[0] == 0
    assert (tmp_path / "words").read_text().endswith("train.py\n--epochs\n2\n")
    missing = replace(job, job=replace(job.job, program=Program("other.py")))
    code, said = container.run(missing)
    assert (code, said) == (78, "there is no script other.py\n")
    assert (container.root / "output/failure").read_text() == said


@pytest.mark.parametrize(("behaves", "code"), [("exit 3", 3), ('touch "$TRN_REFUSED"; exit 1', 78)])
def test_a_failure_leaves_its_code_and_where_to_look(tmp_path, behaves, code):
    container, job = Container(tmp_path), made()
    assert container.run(job, behaves)[0] == code
    said = f"node 0 ended with exit code {code}: trn logs {job.job.name}\n"
    assert (container.root / "output/failure").read_text() == said


def test_a_directory_that_the_image_s_user_cannot_write_is_said(tmp_path):
    container = Container(tmp_path)
    (container.root / "model").rmdir()
    code, said = container.run(made())
    assert (code, "take an image whose USER is root" in said) == (78, True)


def test_sigterm_reaches_the_launcher_which_may_save(tmp_path):
    container = Container(tmp_path)
    process = container.start(
        made(), 'trap "touch $SEEN/saved; exit 143" TERM; touch $SEEN/up; while :; do sleep 0.05; done'
    )
    deadline = time.monotonic() + 20
    while not (tmp_path / "up").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert (process.returncode, (tmp_path / "saved").exists()) == (143, True)


# --- AWS --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cloud(moto_cloud):
    place = {"LocationConstraint": "us-west-2"}
    boto3.client("s3", "us-west-2").create_bucket(Bucket="acme-data", CreateBucketConfiguration=place)
    return SageMakerJobs("us-west-2", WHERE, "training")


def test_a_submitted_job_is_listed_and_found_with_its_files_in_s3(cloud):
    job = made(nodes=2, name="bert", spot=True)
    cloud.submit(job, "H4sIAAAAAAAA")
    objects = boto3.client("s3", "us-west-2").list_objects_v2(Bucket="acme-data")["Contents"]
    where = f"sagemaker/training/bert/code/{job.job.name}"
    assert [each["Key"] for each in objects] == [f"{where}/launch.sh", f"{where}/workspace.tar.gz"]
    found = cloud.find(job.job.name)
    assert (found.nodes, found.instance_type, found.kind) == (2, "ml.trn1.32xlarge", "sagemaker")
    assert found.checkpoints == job.uri("checkpoints")
    assert [each.name for each in cloud.jobs(datetime(2000, 1, 1, tzinfo=UTC))] == [job.job.name]
    assert found.to_json()["instanceType"] == "ml.trn1.32xlarge"


def test_a_job_of_another_team_or_stack_is_not_ours(cloud):
    cloud.submit(made(name="bert"))
    name = made(name="bert").job.name
    other = SageMakerJobs("us-west-2", WHERE.model_copy(update={"role_arn": WHERE.role_arn + "2"}), "training")
    assert other.find(name) is None
    assert SageMakerJobs("us-west-2", WHERE, "research").find(name) is None
    assert cloud.find("training-none-bcdfg") is None


@pytest.mark.parametrize(
    ("status", "second", "state"),
    [
        ("InProgress", "Starting", "Pending"),
        ("InProgress", "Downloading", "Pending"),
        ("InProgress", "Training", "Running"),
        ("InProgress", "Interrupted", "Restarting"),
        ("Stopping", "Stopping", "Terminating"),
        ("Stopped", "Stopped", "Terminated"),
        ("Stopped", "MaxRuntimeExceeded", "Failed"),
        ("Failed", "Failed", "Failed"),
        ("Completed", "Completed", "Completed"),
    ],
)
def test_states_are_in_the_words_of_all_jobs(status, second, state):
    found = watched(training(status, second))
    assert (found.state, found.ended is None) == (state, status in ("InProgress", "Stopping"))


def test_an_ended_job_counts_its_billable_time_and_restarts():
    steps = [{"Status": each, "StartTime": BEGUN} for each in ("Training", "Interrupted", "Restarting", "Training")]
    more = {"BillableTimeInSeconds": 6033, "TrainingEndTime": BEGUN, "SecondaryStatusTransitions": steps}
    found = watched(training("Completed", "Completed", **more))
    assert (found.seconds(datetime.now(UTC)), found.restarts, found.ended) == (6033, 1, BEGUN)


def test_a_second_job_of_a_name_waits_for_the_first_to_end(doubled):
    answers = {"ListTrainingJobs": {"TrainingJobSummaries": [summary("TrainingJob", JOB, "InProgress")]}}
    answers["ListTransformJobs"] = {"TransformJobSummaries": []}
    jobs, double = doubled(**answers, DescribeTrainingJob=training("InProgress", "Training"))
    with pytest.raises(AwsError, match="another --name has checkpoints of its own"):
        jobs.submit(made(name="bert"))
    assert "sagemaker:CreateTrainingJob" not in [name for name, _ in double.asked]


def test_lines_come_with_their_node_and_none_of_a_job_with_a_longer_name(doubled):
    events = [
        {"logStreamName": f"{stream}-1700000000", "eventId": str(number), "timestamp": 1000, "message": stream}
        for number, stream in enumerate(("training-bert/algo-1", "training-bert/algo-12", "training-bert2/algo-1"))
    ]
    jobs, double = doubled(FilterLogEvents={"events": events})
    bert = watched(training("InProgress", "Training", TrainingJobName="training-bert"))
    assert [(node, line.text) for _, node, _, line in jobs.lines(bert, None)] == [
        (0, "training-bert/algo-1"),
        (11, "training-bert/algo-12"),
    ]
    assert [node for _, node, _, _ in jobs.lines(bert, 0)] == [0]
    assert double.asked[-1][1]["logStreamNamePrefix"] == "training-bert/algo-1-"


def test_no_log_group_yet_is_no_log_and_no_error(doubled):
    jobs, _ = doubled(FilterLogEvents=Refused("ResourceNotFoundException", "no group"))
    assert [*jobs.lines(watched(training("InProgress", "Training")), None)] == []
