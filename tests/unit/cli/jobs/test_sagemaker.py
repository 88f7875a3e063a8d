"""SageMaker in the commands: jobs, endpoints and batch transform are submitted, listed, followed, asked and ended."""

import io
import json
import shlex
from datetime import timedelta

import pytest
from aws_double import AwsDouble, AwsError
from cluster_snapshots import outputs
from outcome import ends
from recorded_scenes import now, snapshot
from sagemaker_answers import ARN, IMAGE, JOB, MISSING, MODEL_DATA, WHERE, endpoint, summary, training, transform

from trainium_eks.client import sagemaker, train_facts
from trainium_eks.jobs.sagemaker import service, serving

SCENE = snapshot("queue_full")
NAME = f"training-serve-{JOB.removeprefix('training-')}"
VERSION = f"{NAME}-zzzzz"
TRAIN = ("train", "--on", "sagemaker", "--example", "bert", "--instance-type", "trn1.32xlarge", "--image", IMAGE)
SERVE = ("serve", JOB, "--on", "sagemaker", "--image", IMAGE)
PREDICT = (
    "predict", JOB, "s3://acme-data/in/reviews.jsonl", "--to", "s3://acme-data/sagemaker/predicted",
    "--on", "sagemaker", "--image", IMAGE,
)  # fmt: skip


def _next(states):
    return states.pop(0) if len(states) > 1 else states[0]


DELETED = ("DeleteEndpoint", "DeleteEndpointConfig", "DeleteModel", "StopTransformJob", "StopTrainingJob")
INVOKE = "sagemaker-runtime:InvokeEndpoint"
BEGUN = now(SCENE) - timedelta(minutes=5)
ABSENT = AwsError("ValidationException", MISSING)


class Cloud:
    """SageMaker with one training job, whose status each look moves on, and with what the commands make."""

    def __init__(self):
        self.states = [("Completed", "Completed")]
        self.status = [("Creating", ""), ("InService", "")]
        self.batch = ["InProgress", "Completed"]
        self.endpoints, self.transforms = {}, []
        config = {"EndpointConfigArn": f"{ARN}:endpoint-config/{VERSION}", "CreationTime": BEGUN}
        variants = [{"VariantName": "all", "ModelName": VERSION}]
        model = {"ModelName": VERSION, "ModelArn": f"{ARN}:model/{VERSION}", "ExecutionRoleArn": WHERE.role_arn}
        lines = [
            {"logStreamName": stream, "eventId": str(at), "timestamp": 1000 * at, "message": f"line {at}"}
            for at, stream in enumerate(("all/i-1", f"{JOB}/algo-1-17", f"{JOB}/algo-2-17"))
        ]
        answers = {
            "DescribeTrainingJob": self.described_training,
            "DescribeTransformJob": self.described_batch,
            "DescribeEndpoint": self.described,
            "DescribeEndpointConfig": {**config, "EndpointConfigName": VERSION, "ProductionVariants": variants},
            "DescribeModel": {**model, "CreationTime": BEGUN},
            "ListTrainingJobs": lambda _: {
                "TrainingJobSummaries": [summary("TrainingJob", JOB, self.states[0][0], CreationTime=BEGUN)]
            },
            "CreateTrainingJob": {"TrainingJobArn": f"{ARN}:training-job/{JOB}"},
            "ListTransformJobs": lambda _: {
                "TransformJobSummaries": [summary("TransformJob", name, "InProgress") for name in self.transforms]
            },
            "ListEndpoints": lambda _: {
                "Endpoints": [summary("Endpoint", each, "InService", LastModifiedTime=BEGUN) for each in self.endpoints]
            },
            "ListEndpointConfigs": lambda _: {
                "EndpointConfigs": [
                    {**config, "EndpointConfigName": version} for version in (VERSION, *self.endpoints.values())
                ]
            },
            "CreateModel": {"ModelArn": f"{ARN}:model/m"},
            "CreateEndpointConfig": {"EndpointConfigArn": f"{ARN}:endpoint-config/c"},
            "CreateEndpoint": self.changed,
            "UpdateEndpoint": self.changed,
            "CreateTransformJob": self.started,
            **{name: {} for name in DELETED},
        }
        of_sagemaker = {f"sagemaker:{name}": answer for name, answer in answers.items()}
        others = {INVOKE: self.predicted, "logs:FilterLogEvents": {"events": lines}, "s3:PutObject": {}}
        self.double = AwsDouble({**of_sagemaker, **others})

    def described_training(self, asked):
        if asked["TrainingJobName"] != JOB:
            return ABSENT
        status, second = _next(self.states)
        times = {"TrainingEndTime": now(SCENE), "BillableTimeInSeconds": 90}
        ended = times if status in ("Completed", "Failed") else {}
        return training(status, second, CreationTime=BEGUN, **ended)

    def predicted(self, asked):
        found = [{"label": "good", "score": 0.98} for _ in json.loads(asked["Body"])["texts"]]
        return {"Body": io.BytesIO(json.dumps({"predictions": found}).encode())}

    def changed(self, asked):
        self.endpoints[asked["EndpointName"]] = asked["EndpointConfigName"]
        return {"EndpointArn": f"{ARN}:endpoint/{asked['EndpointName']}"}

    def described(self, asked):
        if asked["EndpointName"] not in self.endpoints:
            return ABSENT
        status, why = _next(self.status)
        return endpoint(asked["EndpointName"], status, self.endpoints[asked["EndpointName"]], FailureReason=why)

    def started(self, asked):
        self.transforms.append(asked["TransformJobName"])
        return {"TransformJobArn": f"{ARN}:transform-job/{asked['TransformJobName']}"}

    def described_batch(self, asked):
        if asked["TransformJobName"] not in self.transforms:
            return ABSENT
        status = _next(self.batch)
        return transform(asked["TransformJobName"], status, FailureReason="line 2 is no text" * (status == "Failed"))

    @property
    def made(self):
        """Names of the operations that changed anything."""
        names = [name.partition(":")[2] for name, _ in self.double.asked]
        return [name for name in names if not name.startswith(("D", "L"))]

    def deleted(self, what):
        return {asked[f"{what}Name"] for name, asked in self.double.asked if name == f"sagemaker:Delete{what}"}


@pytest.fixture
def cloud(monkeypatch):
    made = Cloud()
    session = made.double.session()
    for module in (service, serving, service.cloudwatch_logs):
        monkeypatch.setattr(module, "client", lambda name, region, **_: session.client(name, region_name=region))
    return made


@pytest.fixture
def call(call, tmp_path, monkeypatch):
    """The team's seat, with SageMaker beside the cluster."""
    monkeypatch.setattr(sagemaker, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(train_facts, "registry_image", lambda wanted, _: (wanted or "", None, True))
    file = tmp_path / "outputs.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "sageMaker": WHERE.model_dump(by_alias=True)}))
    return call


# --- Trainings ------------------------------------------------------------------------------------------------------


def test_logs_are_of_the_selected_node_and_followed_lines_appear_once(call, cloud):
    cloud.states = [("InProgress", "Training")]
    assert call("logs", JOB) == (0, "line 1\n")
    assert call("logs", JOB, "--node", "1") == (0, "line 2\n")
    assert call("logs", JOB, "--all", "--tail", "1") == (0, "node 1 | line 2\n")
    assert call("logs", JOB, "--node", "2")[0] == 2
    running, done = ("InProgress", "Training"), ("Completed", "Completed")
    cloud.states = [running, running, running, done]
    code, out = call("logs", JOB, "--follow")
    assert (code, out.count("line 1"), "node" in out) == (0, 1, False)
    cloud.states = [done]
    assert "node 1 | line 2\n" in call("logs", JOB, "--follow", "--all")[1]
    cloud.states = [running, ("Failed", "Failed")]
    assert call("logs", JOB, "--follow")[0] == 1
    cloud.double.answers["logs:FilterLogEvents"] = {"events": []}
    call.ends(1, f"logs {JOB}", "has no log yet: it is Failed")


def test_submit_uploads_files_first_and_stop_names_the_checkpoints(call, cloud):
    code, out = call(*TRAIN, "--spot", "--detach", "--json")
    assert (code, json.loads(out)["instanceType"]) == (0, "ml.trn1.32xlarge")
    listed_, made = ["sagemaker:ListTrainingJobs", "sagemaker:ListTransformJobs"], "sagemaker:CreateTrainingJob"
    assert [name for name, _ in cloud.double.asked] == [*listed_, "s3:PutObject", made]
    cloud.states = [("InProgress", "Training")]
    stopped = "is being stopped: SIGTERM, and SIGKILL after 120 s"
    call.ends(0, f"cancel {JOB}", stopped, "s3://acme-data/sagemaker/training/bert/checkpoints")
    assert cloud.double.asked[-1] == ("sagemaker:StopTrainingJob", {"TrainingJobName": JOB})
    cloud.double.asked.clear()
    cloud.states = [("Completed", "Completed")]
    call.ends(0, f"cancel {JOB}", "has ended already")
    assert "sagemaker:StopTrainingJob" not in dict(cloud.double.asked)


# --- Models ---------------------------------------------------------------------------------------------------------


def test_jobs_model_is_served_queried_listed_and_stopped(call, cloud):
    code, out = call(*SERVE)
    assert (code, f"{NAME} answers on 1 x ml.inf2.xlarge" in out) == (0, True), out
    assert cloud.made == ["CreateModel", "CreateEndpointConfig", "CreateEndpoint"]
    asked = dict(cloud.double.asked)
    assert asked["sagemaker:CreateModel"]["PrimaryContainer"]["ModelDataUrl"] == MODEL_DATA
    assert cloud.deleted("Model") == {VERSION}, "an earlier version goes"
    asked_it = call("predict", NAME, "--on", "sagemaker", "--text", "This lamp is superb.")
    assert asked_it == (0, "good  0.980  This lamp is superb.\n")
    assert call("predict", "trn-dev-reviews", "--on", "sagemaker", "--text", "a", "--json")[0] == 0
    assert cloud.double.asked[-1][1]["EndpointName"] == "trn-dev-reviews", "an endpoint of the stack"
    rows = {row[0]: row[1:4] for row in (line.split() for line in call("jobs")[1].splitlines()) if row}
    assert rows[NAME] == ["sagemaker-endpoint", "-", "Running"]
    assert call("logs", NAME) == (0, "line 0\n")
    call.ends(2, f"cancel {NAME}", f"trn serve --on sagemaker --stop {NAME}")
    # The namespace may be left out.
    assert call("serve", "--on", "sagemaker", "--stop", NAME.removeprefix("training-")) == (0, f"{NAME} is ended\n")
    assert cloud.deleted("Endpoint") == {NAME}
    assert cloud.deleted("EndpointConfig") == {VERSION, cloud.endpoints[NAME]}


def test_endpoint_update_succeeds_or_rolls_back(call, cloud):
    cloud.endpoints[NAME] = VERSION
    cloud.status = [("InService", ""), ("Updating", ""), ("InService", "")]
    code, out = call(*SERVE, "--replicas", "2", "--json")
    assert (code, json.loads(out)["instances"], cloud.made[-1]) == (0, 2, "UpdateEndpoint")
    cloud.status = [("InService", ""), ("RollingBack", ""), ("InService", "The container did not answer /ping")]
    serve = " ".join(SERVE)
    call.ends(1, serve, "answers with its earlier model: The container did not answer /ping")
    cloud.status = [("Failed", "no capacity")]
    call.ends(2, serve, "takes no other model")
    cloud.endpoints.clear()
    cloud.status = [("Creating", ""), ("Failed", "no capacity for ml.inf2.xlarge")]
    call.ends(1, serve, "no capacity for ml.inf2.xlarge", f"trn logs {NAME}")
    cloud.double.answers[INVOKE] = {"Body": io.BytesIO(b'{"text": "x"}')}
    call.ends(1, f"predict {NAME} --on sagemaker --text a", f'{NAME} is not a classifier: {{"text": "x"}}')


def test_batch_transform_deletes_its_model_and_can_be_listed_and_cancelled(call, cloud):
    code, out = call(*PREDICT, "--field", "body")
    assert (code, "s3://acme-data/sagemaker/predicted: the predictions" in out) == (0, True), out
    assert cloud.made == ["CreateModel", "CreateTransformJob"]
    environment = dict(cloud.double.asked)["sagemaker:CreateModel"]["PrimaryContainer"]["Environment"]
    assert environment["TRN_TEXT_FIELD"] == "body"
    assert cloud.deleted("Model") == set(cloud.transforms)
    cloud.batch = ["InProgress", "Failed"]
    call.ends(1, " ".join(PREDICT), "the job is Failed: line 2 is no text")
    cloud.batch = ["InProgress"]
    job = json.loads(call(*PREDICT, "--no-follow", "--json")[1])["job"]
    found = {each["name"]: each for each in json.loads(call("jobs", "--json")[1])["jobs"]}
    assert (found[job]["kind"], found[job]["state"]) == ("sagemaker-batch", "Pending")
    assert call("cancel", job)[0] == 0
    assert cloud.double.asked[-1] == ("sagemaker:StopTransformJob", {"TransformJobName": job})


def test_dry_run_shows_requests_and_jobs_of_both_kinds_are_one_table(call, cloud):
    found = json.loads(call(*TRAIN, "--dry-run", "--json", "--script-args", "--steps 5")[1])
    assert found["request"]["ResourceConfig"]["InstanceType"] == "ml.trn1.32xlarge"
    assert "trainium_workloads.bert.pretrain --steps 5" in found["script"]
    assert cloud.double.asked == []
    found = json.loads(call(*SERVE, "--dry-run", "--instance-type", "c5.xlarge", "--name", "mine")[1])
    assert found["configuration"]["ProductionVariants"][0]["InstanceType"] == "ml.c5.xlarge"
    assert found["endpoint"]["EndpointName"] == "training-mine"
    assert json.loads(call(*PREDICT, "--dry-run")[1])["job"]["BatchStrategy"] == "MultiRecord"
    assert cloud.made == []
    cloud.states = [("InProgress", "Training")]
    out = call.ends(0, "jobs")
    rows = [line.split() for line in out.splitlines()[1:4]]
    assert {row[0]: row[1:4] for row in rows} == {
        "beta": ["volcano", "test", "Pending"],
        "alpha": ["volcano", "test", "Running"],
        JOB: ["sagemaker", "-", "Running"],
    }
    found = {each["name"]: each for each in json.loads(call("jobs", "--json")[1])["jobs"]}
    assert (found[JOB]["instanceType"], found[JOB]["nodes"]) == ("ml.trn1.32xlarge", 2)
    # Those of the cluster are shown if AWS does not answer.
    cloud.double.answers.pop("sagemaker:ListTrainingJobs")
    call.ends(0, "jobs", "alpha", "SageMaker's jobs are not shown: cannot list SageMaker's training jobs")


def test_invalid_requests_and_stacks_without_sagemaker_are_refused(call, cloud, trn, tmp_path):
    for words, said in (
        ((*SERVE, "--group", "inf2", "--queue", "test", "--devices", "2"), ("--group", "--queue", "--devices")),
        (("serve", "/data/models/mine", *SERVE[2:]), ("MODEL", "SageMaker reads no model of the team's volume")),
        (("serve", "training-none", *SERVE[2:]), ("MODEL", "this account has no training job of the name")),
        ((*PREDICT[:2], "in/a.jsonl", *PREDICT[3:], "--replace"), ("INPUT", "--replace")),
        (("serve", "--on", "sagemaker", "--stop", "none"), ("no endpoint of the name", "there is none")),
        (("predict", NAME, "--text", "a"), ("--text asks an endpoint",)),
        (("predict", JOB, "--on", "sagemaker"), ("give INPUT and --to",)),
    ):
        call.ends(2, shlex.join(words), *said)
        assert cloud.made == []
    code, out = call(*TRAIN, "--queue", "test", "--kind", "trainjob")
    assert (code, "--queue" in out, "--kind" in out) == (2, True, True)
    file = tmp_path / "plain.json"
    file.write_text(json.dumps(outputs().model_dump(by_alias=True)))
    ends(2, trn(*TRAIN, "--outputs", file), "sageMaker: {} in the stack's config")
    where = WHERE.model_copy(update={"serving_types": ()}).model_dump(by_alias=True)
    file.write_text(json.dumps({**outputs().model_dump(by_alias=True), "sageMaker": where}))
    ends(2, trn(*SERVE, "--outputs", file), "servingTypes: [ml.inf2.xlarge]")
