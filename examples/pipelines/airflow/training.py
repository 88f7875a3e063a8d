"""An Airflow DAG: data, a gang that trains on a team's queue, and a verdict.

The job belongs to the DAG's run, not to the process that waits for it. A task that is tried again, because its worker
was lost or the scheduler was restarted, finds its job. A task that a person stops or clears cancels the job.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context, Param, dag, task

OUTPUTS = Path(os.environ.get("TRN_OUTPUTS", "outputs.json"))
"""File with the stack's outputs."""

LOSS = 0.251
"""Highest loss that a model may have."""


class TrainOperator(BaseOperator):
    """One job of a team, from its submission to its last metrics."""

    template_fields = ("options", "arguments")

    def __init__(self, *, options: Mapping[str, Any], arguments: Sequence[Any], outputs: Path, **common: Any) -> None:
        super().__init__(**common)
        self.options = options
        self.arguments = arguments
        self.outputs = outputs
        self.job_name = ""

    def execute(self, context: Context) -> dict[str, Any]:
        """Find or submit the run's job, await it and return its last metrics."""
        from trainium_eks.client.team import TrainOptions, connect

        run = context["ti"]
        place = f"{run.dag_id}/{run.task_id}/{run.run_id}"
        self.job_name = f"airflow-{hashlib.sha256(place.encode()).hexdigest()[:12]}"
        with connect(outputs=self.outputs) as team:
            job = team.find(self.job_name)
            if job is not None and job.state().state in ("Failed", "Aborted", "Terminated"):
                job.cancel()  # the next one of that name resumes from its checkpoints
                job = None
            self.log.info("%s the job %s", "Found" if job else "Submits", self.job_name)
            job = job or team.submit(
                TrainOptions(**self.options, name=self.job_name, arguments=tuple(map(str, self.arguments)))
            )
            state = job.wait()
            measured = job.metrics(wait_seconds=300) if state == "Completed" else None
            if measured is None:
                raise RuntimeError(f"the job {self.job_name} has ended as {state}: trn status {self.job_name}")
            return measured.to_json()

    def on_kill(self) -> None:
        """Cancel the job of a task that is stopped."""
        from trainium_eks.client.team import connect

        with connect(outputs=self.outputs) as team:
            if self.job_name and (job := team.find(self.job_name)):
                self.log.info("Cancels the job %s", self.job_name)
                job.cancel()


@dag(
    schedule=None,
    catchup=False,
    render_template_as_native_obj=True,  # the number of nodes is a number
    params={"examples": Param(600, type="integer", minimum=10), "nodes": Param(2, type="integer", minimum=1)},
)
def training() -> None:
    """Train on the newest data, and judge the model."""

    @task
    def preprocess(params: Mapping[str, Any]) -> dict[str, Any]:
        """Count the examples; a batch of ten is a step."""
        return {"steps": params["examples"] // 10}

    @task
    def evaluate(metrics: dict[str, Any]) -> str:
        """Refuse a model that is worse than it may be."""
        if metrics["loss"] is None or metrics["loss"] > LOSS:
            raise ValueError(f"the loss is {metrics['loss']}, and may be {LOSS}")
        return f"accepted after step {metrics['step']} with loss {metrics['loss']}"

    prepared = preprocess()
    trained = TrainOperator(
        task_id="train",
        options={"example": "gradient-sum", "nodes": "{{ params.nodes }}", "image": os.environ.get("TRN_IMAGE")},
        arguments=["--steps", prepared["steps"]],
        outputs=OUTPUTS,
        retries=5,  # an Airflow that starts again uses some up before its API server answers
        retry_delay=timedelta(seconds=15),
    )
    evaluate(trained.output)


training()
