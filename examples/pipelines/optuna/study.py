"""An Optuna study of gangs on a team's queue: ``python study.py --outputs outputs.json``.

Each trial is a job named after the study and the trial's number. A trial reports the losses of its job while that runs,
and cancels the job where the pruner gives it up. Study and jobs outlive this process: the same command goes on with
the trials that were running, each with its job.
"""

import argparse
import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import optuna
from optuna.trial import Trial, TrialState

from trainium_eks.client.team import Job, Team, TrainOptions, connect

Submit = Callable[[str, float], Job]
"""Submit a job of that name with that learning rate."""

PRUNED = "pruned-at-step"
"""Attribute of a trial that was given up. It is set before its job is cancelled: a kill in between makes no new job."""


class JobFailedError(Exception):
    """A job that did not complete: its trial has no value, and the study goes on."""


def main() -> int:
    """Run the study to its last trial and print the best one."""
    asked = _parser().parse_args()
    with Path(f"{asked.study}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another process runs the study {asked.study}: its trials are not to be taken over")
        study = optuna.create_study(
            study_name=asked.study,
            storage=asked.storage or f"sqlite:///{asked.study}.db",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=1, n_warmup_steps=5),
            load_if_exists=True,
        )
        study.enqueue_trial({"rate": 0.1}, skip_if_exists=True)  # today's rate, which others have to beat
        with connect(outputs=asked.outputs, namespace=asked.namespace) as team:
            _run(study, team, _submitter(team, asked), asked)
    pruned = len(study.get_trials(states=(TrialState.PRUNED,)))
    best = study.best_trial
    rate = f"rate {best.params['rate']:.4f}, loss {best.value:.6f}"
    print(f"{len(study.trials)} trials, {pruned} pruned; best: trial {best.number}, {rate}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--study", default="rates", help="name of the study, and begin of its jobs' names")
    parser.add_argument("--storage", help="URL of Optuna's storage; default: a file of SQLite beside you")
    parser.add_argument("--trials", type=int, default=8, help="trials of the whole study")
    parser.add_argument("--at-once", type=int, default=2, help="gangs at once; the queue holds those above its quota")
    parser.add_argument("--steps", type=int, default=40, help="steps of a training")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of a gang")
    parser.add_argument("--by", choices=("python", "command"), default="python", help="way to submit")
    parser.add_argument("--outputs", type=Path, required=True, help="file with the stack's outputs")
    parser.add_argument("--namespace", help="the team's; default: the stack's first")
    parser.add_argument("--image", help="default: the one pushed last")
    return parser


def _submitter(team: Team, asked: argparse.Namespace) -> Submit:
    def by_python(name: str, rate: float) -> Job:
        options = TrainOptions(example="gradient-sum", name=name, nodes=asked.nodes, image=asked.image, scale=False)
        return team.submit(replace(options, arguments=("--steps", str(asked.steps), "--rate", str(rate))))

    def by_command(name: str, rate: float) -> Job:
        command = ["trn", "train", "--detach", "--json", "--outputs", str(asked.outputs), "--namespace", team.namespace]
        command += ["--example", "gradient-sum", "--name", name, "--nodes", str(asked.nodes), "--no-scale"]
        command += ["--image", asked.image] if asked.image else []
        command += ["--", "--steps", str(asked.steps), "--rate", str(rate)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        if (job := team.find(name)) is None:
            raise JobFailedError(f"{name} was removed at once")
        return job

    return by_python if asked.by == "python" else by_command


def _run(study: optuna.Study, team: Team, submit: Submit, asked: argparse.Namespace) -> None:
    """Go on with the running trials, then begin new ones."""

    def run(begun: Trial | None) -> None:
        trial = begun or study.ask()
        try:
            study.tell(trial, _loss(trial, team, submit, asked.study))
        except optuna.TrialPruned:
            study.tell(trial, state=TrialState.PRUNED)
        except JobFailedError as failed:
            print(f"trial {trial.number}: {failed}", file=sys.stderr)
            study.tell(trial, state=TrialState.FAIL)

    # A trial that a killed process left behind; the constructor takes it up where `ask` would begin another.
    running = [Trial(study, each._trial_id) for each in study.get_trials(states=(TrialState.RUNNING,))]
    begun = sum(each.state is not TrialState.WAITING for each in study.trials)
    with ThreadPoolExecutor(asked.at_once) as pool:
        try:
            for _ in pool.map(run, [*running, *[None] * (asked.trials - begun)]):
                pass
        except KeyboardInterrupt:
            print("The jobs and their trials go on; the same command waits for them again.", file=sys.stderr)
            os._exit(130)


def _loss(trial: Trial, team: Team, submit: Submit, study: str) -> float:
    """Return the last loss of the trial's job.

    Raises:
        TrialPruned: the pruner gave the trial up, and its job is cancelled.
        JobFailedError: the job ended otherwise.
    """
    rate = trial.suggest_float("rate", 1e-3, 0.3, log=True)
    name = f"{study}-{trial.number}"
    job = team.find(name)
    if PRUNED not in trial.user_attrs:
        print(f"trial {trial.number}: {'found' if job else 'submits'} {name}, rate {rate:.4f}", file=sys.stderr)
        job = job or submit(name, rate)
        known = max(trial.study.trials[trial.number].intermediate_values, default=0)
        for step in job.follow_steps():
            if step.loss is None or step.number <= known:
                continue
            known = step.number
            trial.report(step.loss, step.number)
            if trial.should_prune():
                trial.set_user_attr(PRUNED, step.number)
                break
        else:
            measured = job.metrics(wait_seconds=300) if job.wait() == "Completed" else None
            if measured is None or measured.last.loss is None:
                raise JobFailedError(f"{name} has ended as {job.state().state}; trn logs {name}")
            return measured.last.loss
    if job is not None:
        job.cancel()
    raise optuna.TrialPruned


if __name__ == "__main__":
    sys.exit(main())
