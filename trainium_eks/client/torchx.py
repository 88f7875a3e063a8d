"""Submission of a job by TorchX's own command."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from trainium_eks.client.failure import CommandError, UsageError
from trainium_eks.client.session import Session
from trainium_eks.jobs.objects import torchx_app, volcano_job
from trainium_eks.jobs.objects.job import TrainingJob

_HANDLE = re.compile(r"kubernetes://[^/\s]*/[^:\s]+:(?P<name>[a-z0-9-]+)")


def command(job: TrainingJob) -> list[str]:
    """Return the command line by which TorchX submits the same job."""
    return torchx_app.run_command(job, str(Path(__file__).with_name("torchx_components.py")))


def submit(job: TrainingJob, session: Session) -> str:
    """Let TorchX submit the job, as the researcher; return the name that TorchX chose."""
    program = shutil.which("torchx")
    refusal = ""
    if job.form != "volcano":
        refusal = f"TorchX submits Volcano jobs alone; leave --torchx out, or --kind {job.form}"
    elif job.options.hf_secret or job.options.track_secret:
        refusal = "TorchX gives a container no Secret; leave --torchx out, or --hf-secret and --track-secret"
    elif program is None:
        refusal = (
            "torchx is not on PATH; without --torchx trn submits the same job itself.\n  Install it in an environment "
            "of its own (it wants an older urllib3): pip install 'torchx[kubernetes]==0.7.0'"
        )
    elif job.topology is not None:
        refusal = "TorchX cannot submit a topology; leave --torchx out"
    elif volcano_job.is_one_task(job):
        refusal = f"TorchX cannot submit a gang of {job.nodes} nodes; leave --torchx out"
    if refusal or program is None:
        raise UsageError(refusal)
    environment = {**os.environ, "KUBECONFIG": str(session.kubeconfig)}
    result = subprocess.run([program, *command(job)[1:]], env=environment, capture_output=True, text=True, check=False)
    handle = _HANDLE.search(result.stdout)
    if result.returncode or handle is None:
        raise CommandError("TorchX did not submit the job", detail=(result.stderr or result.stdout)[-4000:])
    return handle["name"]
