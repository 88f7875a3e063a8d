"""`trn serve` and `trn predict` on the local cloud, as a team's researcher: pods run here, and really answer."""

import json
import shutil
import subprocess

import pytest
import tiny_models
from running_pods import Pods, failures_of
from team_rooms import seat
from waiting import until

from trainium_eks.kube.api import ObjectReference
from trainium_eks.local.images import images

pytestmark = pytest.mark.slow

TEAM, JOB = "serving-runs", "polarity-abcde"
SERVICE = f"serve-{JOB}"
GOOD, BAD = "This lamp is superb and reliable. My family loves it.", "A broken kettle. I sent it back."


@pytest.fixture(scope="module")
def torch_image():
    found = images.find("torch")
    needed = ("torch", "transformers", "litserve")
    if found is None or not all(any(found.path.glob(f"lib*/python*/site-packages/{name}")) for name in needed):
        pytest.skip("local/torch is not made: trn local images make torch")
    return found


@pytest.fixture(scope="module")
def trn(api, paths, torch_image):
    with seat(api, paths, TEAM, "--stack", "shared") as call:
        yield call


@pytest.fixture(scope="module")
def volume(trn, paths, torch_image):
    """The team's volume, as this machine has it, with models, and one as a training writes it."""
    volume = paths.claims / TEAM / "fsx-claim"
    subprocess.run([torch_image.programs / "python", tiny_models.__file__, volume / "models"], check=True)
    (volume / "output" / JOB).mkdir(parents=True)
    shutil.copytree(volume / "models/positive", volume / "output" / JOB / "model")
    return volume


ASK = """
import http.client, json, socket, sys, time, urllib.parse
url, body, wanted = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], sys.argv[3]
asked, lost, answer, connection = 0, [], "", None
while wanted not in answer:
    try:
        connection = connection or http.client.HTTPConnection(url.hostname, url.port, timeout=120)
        connection.request("POST", url.path, body, {"Content-Type": "application/json"})
        got = connection.getresponse()
        answer, asked = got.read().decode(), asked + 1
        if got.status != 200:
            lost.append(answer)
        if got.will_close:
            connection = None
        if asked == 1:
            print("begun", flush=True)
    except socket.gaierror:  # a pod that does not answer its probe in time has no name for a while
        connection = None
        time.sleep(0.1)
    except (OSError, http.client.HTTPException) as error:
        connection = lost.append(repr(error))
print(json.dumps({"asked": asked, "lost": lost, "answer": json.loads(answer)}))
"""
"""Asks one request after the other, on connections that it keeps, until an answer has a text in it."""


def asking(api, url, body, wanted):
    """A pod of the team that was answered, and asks on until an answer has what is wanted; its name."""
    pod = Pods(api, TEAM).make(command=["python3", "-c", ASK, url, json.dumps(body), wanted])
    Pods(api, TEAM).await_log(pod, "begun")
    return pod


def answer_of(api, pod):
    Pods(api, TEAM).ended(pod)
    return json.loads(Pods(api, TEAM).log(pod).splitlines()[-1])


def test_classifier_is_replaced_without_a_lost_request(trn, volume, api):
    code, out, err = trn("serve", JOB, "--json")
    assert code == 0, err
    served = json.loads(out)
    assert (served["name"], served["state"]) == (SERVICE, "ready")
    clients = [asking(api, f"{served['url']}/predict", {"texts": [GOOD, BAD]}, "negative") for _ in range(2)]
    # The same again is there already.
    assert trn("serve", JOB)[0] == 0
    assert trn("serve", "models/negative", "--name", SERVICE)[0] == 0
    for each in clients:
        found = answer_of(api, each)
        assert [each["label"] for each in found["answer"]["predictions"]] == ["negative", "negative"]
        assert found["lost"] == []
        assert found["asked"] > 10
    code, out, err = trn("serve", "--stop", SERVICE)
    assert (code, out) == (0, f"{SERVICE} is ended\n"), err
    for kind, api_version in (("Deployment", "apps/v1"), ("Service", "v1")):
        reference = ObjectReference(api_version, kind, TEAM, SERVICE)
        until(lambda reference=reference: api.get(reference) is None, f"the {kind} goes")
    assert "there is none" in trn("serve", "--stop", SERVICE)[2]


def test_text_model_answers_a_chat(trn, volume, api):
    code, out, err = trn("serve", "/data/models/generator", "--json")
    assert code == 0, err
    question = {"model": "serve-generator", "messages": [{"role": "user", "content": "a lamp"}], "max_tokens": 4}
    found = answer_of(api, asking(api, f"{json.loads(out)['url']}/v1/chat/completions", question, "choices"))
    assert found["answer"]["choices"][0]["message"]["role"] == "assistant"
    assert found["answer"]["usage"]["completion_tokens"] <= 4
    assert trn("serve", "--stop", "serve-generator")[0] == 0


def test_a_file_is_predicted_by_a_job(trn, volume, api):
    (volume / "in").mkdir(exist_ok=True)
    (volume / "in/reviews.jsonl").write_text("".join(json.dumps({"text": each}) + "\n" for each in (GOOD, BAD)))
    code, out, err = trn("predict", JOB, "/data/in/reviews.jsonl", "--to", "predicted/reviews.csv")
    assert (code, out) == (0, "/data/predicted/reviews.csv: 2 predictions\n"), err
    header, *rows = (volume / "predicted/reviews.csv").read_text().splitlines()
    assert header == "row,label,score"
    assert [row.split(",")[1] for row in rows] == ["positive", "positive"]
    # What another try would not mend ends the Job at once, with the reason.
    code, _, err = trn("predict", JOB, "in/reviews.jsonl", "--to", "predicted/reviews.csv")
    assert code == 1
    assert "reviews.csv is there already; --replace overwrites it" in err
    jobs = api.list("batch/v1", "Job", namespace=TEAM, labels="trainium-eks/kind=predict")
    assert [reason for job in jobs for reason in failures_of(job)] == ["PodFailurePolicy"]


def test_unservable_model_is_refused_without_waiting(trn, volume, api):
    code, _, err = trn("serve", "polarity-none")
    assert code == 2
    assert "there is no model at /data/output/polarity-none/model" in err
    assert api.list("apps/v1", "Deployment", namespace=TEAM, labels="trainium-eks/kind=serve") == []
    (volume / "models/other").mkdir(parents=True, exist_ok=True)
    (volume / "models/other/config.json").write_text('{"architectures": ["BertForPreTraining"]}')
    code, _, err = trn("serve", "/data/models/other")
    assert code == 1
    assert "/data/models/other holds BertForPreTraining" in err
    assert trn("serve", "--stop", "serve-other")[0] == 0
