"""Dashboard of queues with waiting gangs, their waiting times, and each queue's share beside its deserved one."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from trainium_eks.observe.dashboards.source.parts import Steps, choice, lines, number, page, rows, section, to_job

_QUEUE = 'queue=~"$queue"'
_NAMED = 'queue_name=~"$queue"'
_DEVICES = f'{{{_NAMED}, resource=~"aws.amazon.com/neuron|nvidia.com/gpu"}} / 1000'
"""Volcano counts devices in thousandths."""
_WANTED = (
    'kube_pod_container_resource_requests{resource=~"aws_amazon_com_neuron|nvidia_com_gpu", node=""}'
    ' and on (namespace, pod) kube_pod_labels{label_volcano_sh_queue_name=~"$queue"}'
)
_RATE = "[$__rate_interval]"
_LONG: Steps = ((900, "yellow"), (3600, "red"))


def dashboard() -> Dashboard:
    """Return the dashboard Queues and gangs."""
    made = page(
        "trn-queues",
        "Queues and gangs",
        "Gangs that wait and run, by queue; what queues have, ask for and deserve; what the scheduler does.",
        [choice("queue", "Queue", "label_values(volcano_queue_share, queue_name)")],
    )
    return _scheduler(_shares(_gangs(_now(made))))


def _now(made: Dashboard) -> Dashboard:
    return (
        made.with_row(section("Now"))
        .with_panel(
            number(
                "Gangs waiting",
                f"count(trn:gang:waits{{{_QUEUE}}})",
                "short",
                "Gangs that have no place for all their pods. `trn status` says of each what it waits for.",
            )
        )
        .with_panel(
            number(
                "Longest wait",
                f"max(trn:gang_wait_seconds{{{_QUEUE}}})",
                "s",
                "Longer than nodes take to join (about 10 minutes): is the group's maximum below the gang's size, is "
                "there capacity in the zone, is the queue at its limit?",
                _LONG,
            )
        )
        .with_panel(
            number(
                "Gangs running",
                f"sum(volcano_queue_pod_group_running_count{{{_NAMED}}})",
                "short",
                "Gangs with all their pods running, as Volcano's controllers count them.",
            )
        )
        .with_panel(
            number(
                "Devices free",
                "sum(trn:devices:free)",
                "short",
                "Of nodes that are ready and on which no pod asks for a device. Enough for a gang that waits: its "
                "queue is at its limit, or its topology asks for nodes that are closer together.",
            )
        )
        .with_panel(
            number(
                "Devices asked for in vain",
                f"sum({_WANTED})",
                "short",
                "Devices of pods that have no node. Gangs that a queue holds back have no pods yet, and are left out.",
            )
        )
        .with_panel(
            number(
                "Queues over their share",
                f"sum(volcano_queue_overused{{{_NAMED}}})",
                "short",
                "Queues with more than they deserve, which is lent: others get it back by reclaim when they ask.",
            )
        )
    )


def _gangs(made: Dashboard) -> Dashboard:
    by_state = {
        f"{{{{queue_name}}}} {state}": f"volcano_queue_pod_group_{state}_count{{{_NAMED}}}"
        for state in ("pending", "inqueue", "running", "unknown")
    }
    columns = {"namespace": "Namespace", "job_name": "Job", "queue": "Queue", "Value": "Waits"}
    return (
        made.with_row(section("Gangs"))
        .with_panel(
            to_job(
                lines(
                    "Wait of each gang",
                    {"{{namespace}}/{{job_name}}": f"trn:gang_wait_seconds{{{_QUEUE}}}"},
                    "s",
                    "Since it was made, or since it last ran. A line that goes on rising: `trn status` of that job.",
                    _LONG,
                )
            )
        )
        .with_panel(
            lines(
                "Gangs by state",
                by_state,
                "short",
                "Pending: not admitted by the queue. Inqueue: admitted, and nodes lack. Unknown: some pods of a gang "
                "run and others do not, which only a lost node explains.",
                stacked=True,
            )
        )
        .with_panel(
            to_job(
                rows(
                    "Gangs that wait",
                    f"sort_desc(trn:gang_wait_seconds{{{_QUEUE}}})",
                    columns,
                    "s",
                    "The longest first; a click leads to the training.",
                )
            )
        )
        .with_panel(
            lines(
                "Time to place a gang",
                {"{{queue}} {{job_name}}": f"volcano_e2e_job_scheduling_duration{{{_QUEUE}}}"},
                "ms",
                "From the gang's creation to its last pod's node, at the last try. Minutes: nodes had to join first.",
            )
        )
    )


def _shares(made: Dashboard) -> Dashboard:
    devices = {
        f"{{{{queue_name}}}} {word}": f"sum by (queue_name) (volcano_queue_{state}_scalar_resources{_DEVICES})"
        for word, state in {"has": "allocated", "asks for": "request", "deserves": "deserved"}.items()
    }
    return (
        made.with_row(section("Shares"))
        .with_panel(
            lines(
                "Devices of each queue",
                devices,
                "short",
                "Has less than it asks for and deserves: others hold its share; `volcano.reclaim` takes it back. Has "
                "more than it deserves: it borrows.",
                width=16,
            )
        )
        .with_panel(
            lines(
                "Share",
                {"{{queue_name}}": f"volcano_queue_share{{{_NAMED}}}"},
                "percentunit",
                "Allocated by deserved, of the scarcest resource. Above 1 the queue borrows, and gives back first.",
                width=8,
            )
        )
    )


def _scheduler(made: Dashboard) -> Dashboard:
    cycle = "volcano_e2e_scheduling_latency_milliseconds"
    return (
        made.with_row(section("Scheduler"))
        .with_panel(
            lines(
                "Pods that did not fit",
                {"pods": "sum(volcano_unschedule_task_count)"},
                "short",
                "Of all gangs that wait, at the last cycle.",
                width=8,
            )
        )
        .with_panel(
            lines(
                "Scheduling cycle",
                {"mean": f"sum(rate({cycle}_sum{_RATE})) / sum(rate({cycle}_count{_RATE}))"},
                "ms",
                "Above a second gangs start late: give the scheduler more CPU (`volcano.values`), or its queues fewer "
                "pending pods.",
                width=8,
            )
        )
        .with_panel(
            lines(
                "Gangs that did not fit",
                {"gangs": "volcano_unschedule_job_count"},
                "short",
                "At the last cycle.",
                width=8,
            )
        )
    )
