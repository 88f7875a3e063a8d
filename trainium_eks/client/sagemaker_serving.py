"""Endpoints of SageMaker, their answers, and batch transform, for one namespace of a stack. They need the stack's
outputs and rights of AWS, and no cluster."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trainium_eks.client import sagemaker, train_facts
from trainium_eks.client.cluster_options import ClusterOptions
from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.sagemaker_target import stack_of
from trainium_eks.client.serving import ModelRequest, meaning
from trainium_eks.jobs.sagemaker import serving as requests
from trainium_eks.jobs.sagemaker.service import ENDPOINT, SageMakerJobs, SageMakerWork
from trainium_eks.jobs.sagemaker.serving import SageMakerServing, ServedModel
from trainium_eks.jobs.serve import serving
from trainium_eks.kube.pod_text import printable
from trainium_eks.model.validation.problems import Problem, nearest

_ONLY_ON_EKS = {"group": "--group", "devices": "--devices", "queue": "--queue"}


class SageMakerModels:
    """Models of a namespace at SageMaker."""

    def __init__(self, cluster: ClusterOptions) -> None:
        self.outputs, self.namespace = stack_of(cluster)
        self.catalogue = self.outputs.catalogue
        where = self.outputs.sage_maker
        if where is None or not where.serving_types:
            found = requests.admitted(where, "", self.catalogue, batch=False)
            raise UsageError("SageMaker does not serve here", found, spell=str)  # type: ignore[arg-type]
        self.where = where
        self.jobs = SageMakerJobs(self.outputs.region, where, self.namespace.name)
        self.serving = SageMakerServing(self.outputs.region, where)

    def full(self, name: str) -> str:
        """Return the name of an endpoint, which begins with the namespace's."""
        before = f"{self.namespace.name}-"
        return name if name.startswith(before) else f"{before}{name}"

    def endpoint(self, name: str) -> SageMakerWork:
        """Return an endpoint of the namespace."""
        found = self.jobs.find(self.full(name))
        if found is not None and found.kind == ENDPOINT:
            return found
        meant = meaning(self.full(name), [each.name for each in self.jobs.endpoints()])
        raise UsageError(f"no endpoint of the name {name!r} in {self.namespace.name}: {meant}")

    def planned(
        self, wanted: ModelRequest, kind: str, more: Sequence[Problem] = (), *, field: str = "", instances: int = 1
    ) -> tuple[ServedModel, bool]:
        """Return the validated request, and whether its endpoint exists; ``more`` are other problems of the command."""
        found = [
            Problem(option, "it is for models on EKS", "leave it out, or take --on eks")
            for name, option in _ONLY_ON_EKS.items()
            if getattr(wanted, name) is not None
        ]
        is_batch = kind == serving.PREDICT
        instance = requests.admitted(self.where, wanted.instance_type or "", self.catalogue, batch=is_batch)
        image, no_image, _ = train_facts.registry_image(wanted.image, self.outputs)
        data, missing = self._model(wanted.model)
        found += [*filter(None, (no_image, missing)), *more]
        words = wanted.model.removeprefix(f"{self.namespace.name}-") if "/" not in wanted.model else ""
        made = ServedModel(
            name=self.full(wanted.name or serving.default_name(kind, words)),
            unique=train_facts.unique(),
            namespace=self.namespace.name,
            where=self.where,
            data=data,
            image=image,
            instance=next(iter(self.catalogue.values())) if isinstance(instance, list) else instance,
            engine=wanted.engine,
            field=field,
        )
        found += [*(instance if isinstance(instance, list) else ()), *requests.problems(made)]
        if found:
            raise wanted.refusal(kind, found)
        there = self.jobs.find(made.name) if kind == serving.SERVE else None
        if there is not None and there.state == "Failed":
            fix = f"trn serve --on sagemaker --stop {made.name} removes it"
            raise UsageError(f"the endpoint {made.name} has failed, and takes no other model: {fix}")
        return replace(made, instances=instances), there is not None and there.kind == ENDPOINT

    def _model(self, model: str) -> tuple[str, Problem | None]:
        """Return the S3 URI of a model, and its problem."""
        if model.startswith("s3://") and model.endswith(".tar.gz"):
            return model, None
        if not model or "/" in model:
            fix = "give a SageMaker training job's name, or s3://…/model.tar.gz"
            return "", Problem("MODEL", "SageMaker reads no model of the team's volume", fix, value=model or None)
        job = self.jobs.find(model)
        if job is None or not job.model:
            near = nearest(model, [each.name for each in self.jobs.jobs(None)])
            fix = "trn jobs --all lists them; a job on EKS leaves its model on the volume, so leave --on sagemaker out"
            return "", Problem("MODEL", "this account has no training job of the name", fix, value=model, good=near)
        if job.state != "Completed":
            reason = f"the job is {job.state}, and a job writes its model when it is Completed"
            return "", Problem("MODEL", reason, f"wait for its end: trn logs {model} -f", value=model)
        return job.model, None

    def await_ready(self, name: str) -> None:
        """Wait until an endpoint answers with its newest model; then remove its earlier models."""
        while True:
            found = self.endpoint(name)
            if found.state == "Failed":
                log = f"trn logs {name} shows its log, trn serve --on sagemaker --stop {name} ends it"
                raise CommandError(f"{name} does not answer{sagemaker.why(found)}; {log}")
            if found.status == "InService":
                break
            time.sleep(sagemaker.LOOK_SECONDS)
        if found.reason:  # the update was rolled back
            raise CommandError(f"{name} answers with its earlier model: {printable(found.reason)}")
        self.serving.tidy(name)

    def ask(self, name: str, texts: Sequence[str]) -> tuple[str, Any]:
        """Return the name of an endpoint, the namespace's or the stack's, and its answer about texts."""
        found = self.jobs.find(self.full(name))
        name = found.name if found is not None and found.kind == ENDPOINT else name
        return name, self.serving.ask(name, texts)
