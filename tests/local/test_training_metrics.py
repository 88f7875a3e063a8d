"""A training's own metrics on the local cloud: two jobs at once, each asked by another pod while it runs."""

import copy
import time

from prometheus_text import parse
from running_pods import ENDLESS
from training_jobs import job

from trainium_eks.jobs.objects import resources, volcano_job
from trainium_eks.jobs.objects.job import Program
from trainium_eks.local.control_plane import ports
from trainium_eks.local.spec.plan import Isolation
from trainium_eks.model.catalogue.instances import CATALOGUE

NODE = "m7i.4xlarge"
_ASK = (
    "import urllib.request as web; print(web.build_opener(web.ProxyHandler({})).open(%r, timeout=60).read().decode())"
)


def _submit(pods, name, port, output):
    """The pod of a job of one node, as Volcano's controllers make it of the job's template."""
    arguments = ("--steps", str(10 * ENDLESS), "--output", str(output))
    wanted = job(
        NODE,
        name=name,
        program=Program(module="trainium_workloads.gradient_sum", arguments=arguments),
        image="local/python",
        resources=resources.local_share(CATALOGUE.find(NODE)),
        nodes=1,
        ranks_per_node=2,
        backend="cpu",
        launcher="gang",
        claim="",
        service_account="",
        metrics_port=port,
    )
    [task] = volcano_job.manifest(wanted)["spec"]["tasks"]
    pod = copy.deepcopy(task["template"])
    pod["metadata"] |= {"name": name, "namespace": pods.namespace}
    pods.api.create({"apiVersion": "v1", "kind": "Pod", **pod})


def _scraped(pods, name, *, apart, step):
    """After a step. By what a PodMonitor goes by: the label, the port's name and the pod's address, unless it is this
    machine's."""
    pod = pods.running(name)
    assert pod["metadata"]["labels"]["trainium-eks/metrics"] == "true"
    [port] = [x["containerPort"] for x in pod["spec"]["containers"][0]["ports"] if x["name"] == "trn-metrics"]
    # Said before it is measured; of the one before, both are true.
    pods.await_log(name, f'"step": {step + 1},')
    host = pod["status"]["podIP"] if apart else "127.0.0.1"
    address = f"http://{host}:{port}/metrics"
    return parse(pods.outcome(command=["python3", "-c", _ASK % address]).removesuffix("\n"))


def test_running_job_is_scraped_at_its_address(pods, isolation, tmp_path):
    apart = isolation is Isolation.NET
    names = ("one", "two")
    begun = time.time()
    for name in names:
        _submit(pods, name, 9600 if apart else ports.free_port(set()), tmp_path / name)
    before = {name: _scraped(pods, name, apart=apart, step=1) for name in names}
    for name, found in before.items():
        assert found["trn_training_info"].labels["world_size"] == "2"
        assert begun <= found["trn_training_started_timestamp_seconds"].value <= time.time()
        after = _scraped(pods, name, apart=apart, step=int(found["trn_training_step"].value) + 1)
        for counter in ("trn_training_step", "trn_training_examples_total", "trn_training_productive_seconds_total"):
            assert after[counter].value > found[counter].value, counter
        assert "no metrics of this training" not in pods.log(name)
        pods.delete(name)
