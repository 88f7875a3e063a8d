"""A Kubeflow pipeline: data, a gang that trains on a team's queue, and a verdict.

``python pipeline.py compile`` writes ``training.yaml`` for Kubeflow Pipelines; ``python pipeline.py run --name NAME``
runs that file here, each step as a process. The training's step looks for the job of its name before it submits one: a
step that is tried again, or a pipeline that is started again, goes on with the job.
"""

import argparse
import os
import sys
from typing import Any

from kfp import compiler, components, dsl, local

IMAGE = os.environ.get("PIPELINE_IMAGE", "registry.example.com/team/python-trn:1")
"""Image of the steps: Python with kfp and ``trn`` (docs/python.md)."""

PIPELINE = "training.yaml"


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def preprocess(examples: int) -> int:
    """Count the examples; a batch of ten is a step. Return the steps."""
    return examples // 10


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def train(
    name: str, run: str, steps: int, nodes: int, image: str, outputs: str, metrics: dsl.Output[dsl.Metrics]
) -> float:
    """Find or submit the job, await it and return its last loss."""
    import json
    import subprocess
    import time

    def trn(*arguments: str) -> tuple[int, dict[str, Any]]:
        command = ["trn", *arguments[:1], "--outputs", outputs, "--json", *arguments[1:]]
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True)
        if done.returncode == 2:
            raise RuntimeError(f"trn {arguments[0]} was refused: {done.stdout}")
        return done.returncode, json.loads(done.stdout)

    name = name or f"kubeflow-{run.replace('-', '')[:20]}"
    code, found = trn("jobs", "--all")
    state = {each["name"]: each["state"] for each in found.get("jobs", ())}.get(name)
    if state in ("Failed", "Aborted", "Terminated"):
        code, found = trn("cancel", name)  # the next one of that name resumes from its checkpoints
        state = None
    if state is None and code == 0:
        chosen = ("--image", image) if image else ()
        wanted = ("--example", "gradient-sum", "--name", name, "--nodes", str(nodes), *chosen)
        code, found = trn("train", "--detach", *wanted, "--", "--steps", str(steps))
    if code != 0:
        raise RuntimeError(f"the cluster does not answer as it should: {found}")
    print(f"{'found' if state else 'submitted'} {name}", flush=True)
    # A cluster that does not answer is asked again; a deleted job is refused.
    while (job := (found := trn("status", name)[1]).get("job", {})).get("ended") is None:
        time.sleep(2)
    for _ in range(100):  # the log cannot be read while the agent of its node starts again
        if job["state"] != "Completed" or (last := found.get("progress")):
            break
        time.sleep(2)
        found = trn("status", name)[1]
    if job["state"] != "Completed" or not last or last["loss"] is None:
        raise RuntimeError(f"the job {name} has ended as {job['state']}, or its log is gone: trn status {name}")
    metrics.log_metric("loss", last["loss"])
    metrics.log_metric("steps", last["step"])
    return last["loss"]


@dsl.component(base_image=IMAGE, install_kfp_package=False)
def evaluate(loss: float, highest: float) -> str:
    """Refuse a model that is worse than it may be."""
    if loss > highest:
        raise ValueError(f"the loss is {loss}, and may be {highest}")
    return f"accepted with loss {loss}"


@dsl.pipeline(name="training")
def training(
    name: str = "",
    examples: int = 600,
    nodes: int = 2,
    image: str = "",
    outputs: str = "/etc/trainium-eks/outputs.json",
    highest: float = 0.251,
) -> str:
    """Train on the newest data, and judge the model."""
    prepared = preprocess(examples=examples)
    trained = train(
        name=name,
        run=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        steps=prepared.output,
        nodes=nodes,
        image=image,
        outputs=outputs,
    )
    trained.set_retry(num_retries=3, backoff_duration="30s")
    return evaluate(loss=trained.outputs["Output"], highest=highest).output


def main() -> int:
    """Compile the pipeline, or run the compiled pipeline."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("compile", "run"))
    parser.add_argument("--name", default="kubeflow", help="name of the job")
    parser.add_argument("--examples", type=int, default=600)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--image", default="", help="default: the one pushed last")
    parser.add_argument("--outputs", default="outputs.json", help="file with the stack's outputs")
    asked = vars(parser.parse_args())
    if asked.pop("what") == "compile":
        compiler.Compiler().compile(training, PIPELINE)
        return 0
    local.init(local.SubprocessRunner(use_venv=False), pipeline_root="runs")
    print(components.load_component_from_file(PIPELINE)(**asked).output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
