"""Dashboard of the fleet with the number of accelerators, their users, and the cost of unused ones."""

from grafana_foundation_sdk.builders.dashboard import Dashboard

from trainium_eks.observe.dashboards.source.parts import ANY, IDLE, choice, lines, number, page, rows, section, to_node

_GROUP = 'node_group=~"$node_group"'
_READY = 'kube_node_status_condition{condition="Ready", status="true"}'
_INFO = f"trn:node_info{{{_GROUP}}}"


def dashboard() -> Dashboard:
    """Return the dashboard Fleet."""
    made = page(
        "trn-fleet",
        "Fleet",
        "Accelerators by node group: how many there are, who asks for them, how busy they are, what idle ones cost.",
        [choice("node_group", "Node group", "label_values(trn:devices:total, node_group)")],
    )
    return _cores(_over_time(_now(made)))


def _now(made: Dashboard) -> Dashboard:
    total, busy = f"trn:devices:total{{{_GROUP}}}", f"trn:devices:busy_ratio{{{_GROUP}}}"
    return (
        made.with_row(section("Now"))
        .with_panel(
            number(
                "Accelerators",
                f"sum({total})",
                "short",
                "Devices of all nodes that have joined. Fewer than the groups' sizes: nodes are missing, see Nodes.",
            )
        )
        .with_panel(
            number(
                "Requested",
                f"sum(trn:devices:requested{{{_GROUP}}})",
                "short",
                "Devices that pods ask for and have. The rest stands idle: submit work, or `trn scale` the group down.",
            )
        )
        .with_panel(
            number(
                "Busy",
                f"sum({busy} * {total}) / sum({total} and {busy})",
                "percentunit",
                "Share of time in which devices compute. Low while requested: look at the trainings' step times (Job), "
                "at data loading and at compilation.",
                IDLE,
            )
        )
        .with_panel(
            number(
                "Cost an hour",
                f"sum(trn:usd_per_hour{{{_GROUP}}})",
                "currencyUSD",
                "On-Demand list prices of the nodes; a Capacity Block was paid in advance.",
                decimals=2,
            )
        )
        .with_panel(
            number(
                "Idle cost an hour",
                f"sum(trn:idle_usd_per_hour{{{_GROUP}}})",
                "currencyUSD",
                "The nodes' price, by the share of devices that no pod asks for. Scale down what is not needed: "
                "`trn scale`.",
                ((10, "yellow"), (50, "red")),
                decimals=2,
            )
        )
        .with_panel(
            number(
                "Nodes not ready",
                f"sum(({_READY} == bool 0) and on (node) {_INFO})",
                "short",
                "Nodes that take no pods. EKS repairs them after 30 minutes; Nodes says which they are.",
                ANY,
            )
        )
    )


def _over_time(made: Dashboard) -> Dashboard:
    return (
        made.with_row(section("Over time"))
        .with_panel(
            lines(
                "Devices",
                {
                    "{{node_group}} there": f"sum by (node_group) (trn:devices:total{{{_GROUP}}})",
                    "{{node_group}} requested": f"sum by (node_group) (trn:devices:requested{{{_GROUP}}})",
                },
                "short",
                "The distance between there and requested is what you pay for and do not use.",
            )
        )
        .with_panel(
            lines(
                "Busy",
                {"{{node_group}} {{instance_type}}": f"trn:devices:busy_ratio{{{_GROUP}}}"},
                "percentunit",
                "Share of time in which devices compute. A fall to 0 while devices are requested: a training hangs or "
                "compiles.",
                top=1,
            )
        )
        .with_panel(
            lines(
                "Cost an hour",
                {"{{node_group}}": f"trn:usd_per_hour{{{_GROUP}}}"},
                "currencyUSD",
                "On-Demand list prices of the nodes that have joined.",
                stacked=True,
            )
        )
        .with_panel(
            lines(
                "Idle cost an hour",
                {"{{node_group}}": f"trn:idle_usd_per_hour{{{_GROUP}}}"},
                "currencyUSD",
                "A plateau through the night: let the group rest at 0 nodes (`minSize: 0`, `trn scale`).",
                stacked=True,
            )
        )
    )


def _cores(made: Dashboard) -> Dashboard:
    busy = f"trn:cores:busy_ratio * on (node) group_left (node_group) {_INFO}"
    columns = {"node": "Node", "node_group": "Group", "instance_type": "Type", "zone": "Zone", "Value": "USD an hour"}
    return (
        made.with_row(section("Nodes"))
        .with_panel(
            to_node(
                lines(
                    "Cores busy, by node",
                    {"{{node}}": busy},
                    "percentunit",
                    "Nodes of one gang should move together. One that stays behind holds all others up: cordon it and "
                    "let the training restart.",
                    top=1,
                )
            )
        )
        .with_panel(
            to_node(
                rows(
                    "Nodes",
                    f"trn:node:usd_per_hour{{{_GROUP}}}",
                    columns,
                    "currencyUSD",
                    "Every node with its price. A type without a known price is not listed; its price can be set in "
                    "`instanceTypes`.",
                )
            )
        )
    )
