"""Panels, variables and links of these dashboards."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

TAG = "trainium-eks"
"""Tag of every dashboard: their links to one another go by it."""

SOURCE = DataSourceRef(type_val="prometheus", uid="prometheus")

WIDTH = 24
"""Columns of a dashboard."""

Steps = Sequence[tuple[float, str]]
"""Colours from a value on, in rising order; below the first it is green."""

FULL: Steps = ((0.8, "yellow"), (0.9, "red"))
"""Steps of a share that should not come to 1."""
ANY: Steps = ((1, "red"),)
"""Steps of a count that should be 0."""
IDLE: Steps = ((0, "red"), (0.3, "yellow"), (0.6, "green"))
"""Steps of a share that should be near 1."""

_SHORT_NAMES = DataTransformerConfig("renameByRegex", options={"regex": r"/\.[\w.-]+\.internal/", "renamePattern": ""})
"""``ip-10-0-1-2`` of ``ip-10-0-1-2.us-west-2.compute.internal``: the rest is the same of all, and fills a legend."""

_WIDTHS = {"node": 165, "key": 180, "volumename": 220}
"""Pixels of columns with values that would be cut, of a node before its domain: Grafana makes all of the same width."""
_LEAST_WIDTH = 90
"""Pixels of the other columns; Grafana's 150 hides the last of five on a small screen."""

_Panel = TypeVar("_Panel", stat.Panel, timeseries.Panel, table.Panel, statetimeline.Panel)


def number(
    title: str, query: str, unit: str, about: str, steps: Steps = (), *, decimals: int | None = None
) -> stat.Panel:
    """Return a panel with one current value.

    Args:
        title: name of the value.
        query: PromQL that gives one series.
        unit: Grafana's name of the unit.
        about: meaning of the value, and the remedy for a bad one.
        steps: its colours.
        decimals: digits behind the point; by default as many as fit.
    """
    panel = _panel(stat.Panel(), title, unit, about, steps, width=4, height=4)
    panel = panel.no_value("none").reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    panel = panel.graph_mode(BigValueGraphMode.NONE).with_target(_target(query, "").instant())
    panel = panel.color_mode(BigValueColorMode.VALUE if steps else BigValueColorMode.NONE)
    return panel if decimals is None else panel.decimals(decimals)


def lines(
    title: str,
    queries: Mapping[str, str],
    unit: str,
    about: str,
    steps: Steps = (),
    *,
    width: int = 12,
    top: float | None = None,
    stacked: bool = False,
) -> timeseries.Panel:
    """Return a panel with values over time.

    Args:
        title: name of the values.
        queries: legend (``{{label}}``) to PromQL.
        unit: Grafana's name of the unit.
        about: as for :func:`number`.
        steps: colours of the threshold lines.
        width: in columns.
        top: upper end of the axis.
        stacked: on top of one another.
    """
    panel = _panel(timeseries.Panel(), title, unit, about, steps, width=width, height=8).min(0)
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    panel = panel.legend(legend.show_legend(True)).fill_opacity(25 if stacked else 0).line_width(1)
    panel = panel.tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING))
    panel = panel.with_transformation(_SHORT_NAMES)
    if steps:
        panel = panel.thresholds_style(common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
    if top is not None:
        panel = panel.max(top)
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    for number_, (shown, query) in enumerate(queries.items()):
        panel = panel.with_target(_target(query, shown).ref_id(chr(ord("A") + number_)))
    return panel


def states(title: str, query: str, shown: str, about: str, steps: Steps, *, width: int = 12) -> statetimeline.Panel:
    """Return a panel with the states of resources over time, as coloured bars. ``shown`` is the legend."""
    panel = _panel(statetimeline.Panel(), title, "short", about, steps, width=width, height=8)
    # A state timeline is coloured from green to red by default, whatever its thresholds say.
    panel = panel.color_scheme(dashboard.FieldColor().mode(FieldColorModeId.THRESHOLDS))
    panel = panel.show_value(VisibilityMode.NEVER).with_transformation(_SHORT_NAMES)
    return panel.with_target(_target(query, shown)).fill_opacity(80).line_width(0)


def rows(title: str, query: str, columns: Mapping[str, str], unit: str, about: str, *, width: int = 12) -> table.Panel:
    """Return a table of the current series.

    Args:
        title: name of the series.
        query: PromQL.
        columns: label to heading, in this order; ``Value`` is the value's. No other is shown.
        unit: of the value.
        about: as for :func:`number`.
        width: in columns of the dashboard.
    """
    panel = _panel(table.Panel(), title, unit, about, (), width=width, height=8)
    panel = panel.with_target(_target(query, "").instant().format(PromQueryFormat.TABLE))
    panel = panel.min_width(_LEAST_WIDTH)
    for label, heading in columns.items():
        if label in _WIDTHS:
            panel = panel.override_by_name(heading, [DynamicConfigValue("custom.width", _WIDTHS[label])])
    order = {name: place for place, name in enumerate(columns)}
    shown = {"include": {"names": list(columns)}}
    return panel.with_transformation(DataTransformerConfig("filterFieldsByName", options=shown)).with_transformation(
        DataTransformerConfig("organize", options={"indexByName": order, "renameByName": dict(columns)})
    )


def to_job(panel: _Panel) -> _Panel:
    """Return the panel with links from its values to the dashboard of their training (labels ``namespace`` and
    ``job_name``)."""
    labels = "var-namespace=${__field.labels.namespace}&var-job_name=${__field.labels.job_name}"
    return panel.data_links([dashboard.DashboardLink("Training").url(f"/d/trn-job?{labels}&${{__url_time_range}}")])


def to_node(panel: _Panel) -> _Panel:
    """Return the panel with links from its values to the dashboard of their node (label ``node``)."""
    url = "/d/trn-nodes?var-node=${__field.labels.node}&${__url_time_range}"
    return panel.data_links([dashboard.DashboardLink("Node").url(url)])


def choice(name: str, label: str, values: str, *, several: bool = True) -> dashboard.QueryVariable:
    """Return a variable with values from Prometheus.

    Args:
        name: in queries, ``$name``.
        label: shown.
        values: ``label_values(<selector>, <label>)``.
        several: whether several may be chosen, and all, which also matches a series without the label.
    """
    variable = dashboard.QueryVariable(name).label(label).query(values).datasource(SOURCE)
    variable = variable.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    return variable.multi(True).include_all(True).all_value(".*") if several else variable


def page(uid: str, title: str, about: str, variables: Sequence[dashboard.QueryVariable]) -> dashboard.Dashboard:
    """Return an empty dashboard with links to the others.

    Args:
        uid: in its address.
        title: of it.
        about: question that it answers.
        variables: chosen at its top.
    """
    made = dashboard.Dashboard(title).uid(uid).description(about).tags([TAG]).readonly().refresh("1m")
    made = made.time("now-6h", "now").timezone("browser").tooltip(DashboardCursorSync.CROSSHAIR)
    links = dashboard.DashboardLink("Dashboards").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    made = made.link(links.as_dropdown(False).keep_time(True).include_vars(True))
    for variable in variables:
        made = made.with_variable(variable)
    return made


def section(title: str) -> dashboard.Row:
    """Return a heading."""
    return dashboard.Row(title)


def _panel(panel: _Panel, title: str, unit: str, about: str, steps: Steps, *, width: int, height: int) -> _Panel:
    first: list[Threshold] = [] if steps and steps[0][0] == 0 else [Threshold(value=None, color="green")]
    thresholds = [*first, *(Threshold(value=value or None, color=color) for value, color in steps)]
    scale = dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(thresholds)
    panel = panel.title(title).description(about).unit(unit).datasource(SOURCE)
    return panel.thresholds(scale).span(width).height(height)


def _target(query: str, legend: str) -> prometheus.Dataquery:
    return prometheus.Dataquery().expr(query).legend_format(legend).ref_id("A").datasource(SOURCE)
