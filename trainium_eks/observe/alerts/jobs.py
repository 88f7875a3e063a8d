"""Gangs that do not start, trainings that do not move, and blocks of capacity that end under them."""

from collections.abc import Sequence

from trainium_eks.model.alerts import AlertSettings
from trainium_eks.observe.alerts.alert import JOB, STATUS, Alert
from trainium_eks.observe.series.recording import WINDOW

STALL_FACTOR = 10
"""Times of the distance between two step lines that a training is quiet, as in `trn status`."""


def alerts(settings: AlertSettings) -> Sequence[Alert]:
    """Return the alerts of single jobs, each with its namespace and name."""
    return [*_gangs(settings), *_trainings(settings)]


def _gangs(settings: AlertSettings) -> list[Alert]:
    ends = "max by (namespace, job_name) (trn_gang_capacity_block_ends_timestamp_seconds)"
    return [
        Alert(
            "GangStuck",
            "warning",
            f"""
            trn:gang_wait_seconds > {60 * settings.gang_waits_minutes}
            and on (namespace, job_name, queue) (
              trn:gang:devices <= on (resource) group_left () trn:devices:free
            )
            """,
            f"{JOB} waits while nodes are idle that would hold it",
            "It has waited for {{ $value | humanizeDuration }} in the queue {{ $labels.queue }}, and the idle nodes"
            " have as many devices as it asks for. The queue's limit, the topology it asks for, a taint or a claim may"
            " hold it.",
            STATUS,
            # A gang that has just got its nodes is on its way.
            5,
        ),
        Alert(
            "GangPartlyPlaced",
            "critical",
            'max by (namespace, job_name, queue) (trn_gang_phase{phase="Unknown"} == 1)',
            f"{JOB} runs with pods missing",
            f"For {settings.gang_partial_minutes} minutes some of its pods have run and others have had no place:"
            " the nodes that it has do nothing.",
            STATUS,
            settings.gang_partial_minutes,
        ),
        Alert(
            "CapacityBlockEnding",
            "critical",
            f"""
            {ends} - time() < {3600 * settings.capacity_block_hours}
            and on (namespace, job_name) max by (namespace, job_name) (trn_gang_phase{{phase!="Completed"}} == 1)
            """,
            f"The Capacity Block under {JOB} ends soon",
            "It ends in {{ $value | humanizeDuration }}. EC2 begins to end its instances 30 minutes earlier (60 for"
            " UltraServers); what was not saved by then is lost.",
            STATUS,
        ),
    ]


def _trainings(settings: AlertSettings) -> list[Alert]:
    job = "namespace, job_name"
    began = f"max by ({job}) (trn_training_started_timestamp_seconds)"
    # Between two step lines there may be many steps, and as many are made in the minute in which one comes.
    line_seconds = f"trn:training:step_seconds * max_over_time(trn:training:steps_per_minute[{WINDOW}])"
    return [
        Alert(
            "TrainingStalled",
            "critical",
            f"""
            time() - trn:training:stepped_timestamp_seconds
              > clamp_min({STALL_FACTOR} * {line_seconds}, {60 * settings.stalled_minutes})
            """,
            f"{JOB} makes no steps",
            "Its last step was {{ $value | humanizeDuration }} ago, which is more than ten times its own pace. All its"
            " nodes are paid for and wait, mostly for one rank.",
            STATUS,
        ),
        Alert(
            "TrainingWithoutFirstStep",
            "warning",
            f"""
            time() - {began} > {60 * settings.first_step_minutes}
            unless on ({job}) trn:training:stepped_timestamp_seconds
            """,
            f"{JOB} has not made its first step",
            "It began {{ $value | humanizeDuration }} ago. It compiles, or waits for data or for another rank.",
            STATUS,
        ),
        Alert(
            "CheckpointTooOld",
            "warning",
            f"""
            time() - max by ({job}) (
              trn_training_checkpoint_timestamp_seconds or trn_training_started_timestamp_seconds
            ) > {3600 * settings.checkpoint_hours}
            """,
            f"{JOB} has not saved for {{{{ $value | humanizeDuration }}}}",
            "A fault now would cost all that was computed since.",
            STATUS,
        ),
    ]
