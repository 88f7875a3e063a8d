"""``trn train --torchx``: submission of the job by TorchX's own command."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import trainium_eks
from trainium_eks.client.failure import FAILED, WRONG_USAGE, Failure
from trainium_eks.client.session import Session
from trainium_eks.jobs.objects import torchx_app, volcano_job
from trainium_eks.jobs.objects.job import TrainingJob

_HANDLE = re.compile(r"kubernetes://[^/\s]*/[^:\s]+:(?P<name>[a-z0-9-]+)")


def component() -> str:
    """Return the path of the component's file: in the wheel inside the package, in a checkout beside it."""
    package = Path(trainium_eks.__file__).parent
    places = (package / "workloads", package.parent / "workloads")
    found = next((place for place in places if place.is_dir()), places[-1])
    return str(found / "torchx_components.py")


def submit_by_torchx(job: TrainingJob, session: Session) -> str:
    """Let TorchX submit the job, as the researcher; return the name that TorchX chose.

    Raises:
        Failure: there is no TorchX, it cannot express this job, or it was refused.
    """
    if job.form != "volcano":
        raise Failure(WRONG_USAGE, f"TorchX submits Volcano jobs alone; leave --torchx out, or --kind {job.form}")
    if job.options.hf_secret:
        raise Failure(WRONG_USAGE, "TorchX gives a container no Secret; leave --torchx out, or --hf-secret")
    program = shutil.which("torchx")
    if program is None:
        title = (
            "torchx is not on PATH; without --torchx trn submits the same job itself.\n  Install it in an environment "
        )
        raise Failure(
            WRONG_USAGE, f"{title}of its own (it wants an older urllib3): pip install 'torchx[kubernetes]==0.7.0'"
        )
    if volcano_job.is_one_task(job) or job.topology is not None:
        what = "a topology" if job.topology is not None else f"a gang of {job.nodes} nodes"
        raise Failure(WRONG_USAGE, f"TorchX cannot submit {what}; leave --torchx out")
    words = [program, *torchx_app.run_command(job, component())[1:]]
    environment = {**os.environ, "KUBECONFIG": str(session.kubeconfig)}
    result = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    handle = _HANDLE.search(result.stdout)
    if result.returncode or handle is None:
        raise Failure(FAILED, "TorchX did not submit the job", detail=(result.stderr or result.stdout)[-4000:])
    return handle["name"]
