// Draws a dashboard of Grafana from answers that were kept: with the components of Grafana's own panels, which its
// npm packages publish. State timelines are not published: `Timeline` draws them on the same chart.
// `../dashboard_pictures.py` bundles this, gives it `window.dashboard`, and waits for `window.drawn`.

import '@fontsource/inter/latin-400.css';
import '@fontsource/inter/latin-500.css';

import {
  createDataFrame,
  createTheme,
  dateTime,
  FieldColorModeId,
  FieldType,
  getDisplayProcessor,
  getFieldDisplayName,
  getFieldDisplayValues,
  standardTransformers,
  standardTransformersRegistry,
  ThemeContext,
  transformDataFrame,
  type DataFrame,
  type FieldConfig,
  type TimeRange,
} from '@grafana/data';
import { AxisPlacement, ScaleDirection, ScaleDistribution, ScaleOrientation, VisibilityMode } from '@grafana/schema';
import {
  BigValue,
  GlobalStyles,
  GraphNG,
  measureText,
  PanelChrome,
  Table,
  TimeSeries,
  UPLOT_AXIS_FONT_SIZE,
  UPlotConfigBuilder,
} from '@grafana/ui';
import type { ReactNode } from 'react';
import { createRoot } from 'react-dom/client';
import type uPlot from 'uplot';
import UPNG from 'upng-js';

interface Series {
  metric: Record<string, string>;
  value?: [number, string];
  values?: Array<[number, string]>;
}
interface Answer {
  legend: string;
  result: Series[];
}
// Only widths of columns, by their headings.
interface Override {
  matcher: { options: string };
  properties: Array<{ value: number }>;
}
interface Panel {
  type: string;
  title: string;
  gridPos: { x: number; y: number; w: number; h: number };
  fieldConfig: { defaults: FieldConfig; overrides: Override[] };
  options: any;
  transformations?: any[];
  answers: Answer[];
}
interface Dashboard {
  title: string;
  variables: string[];
  panels: Panel[];
  from: number;
  to: number;
  step: number;
  width: number;
}
declare global {
  interface Window {
    dashboard: Dashboard;
    drawn: boolean;
    smaller: (png: string) => Promise<string>;
  }
}

const { dashboard } = window;
const theme = createTheme({ colors: { mode: 'light' } });
const timeRange: TimeRange = rangeOf(dateTime(milliseconds(dashboard.from)), dateTime(milliseconds(dashboard.to)));

// Of Grafana's grid (public/app/core/constants.ts).
const COLUMNS = 24;
const CELL = 30;
const GAP = 8;
const HEADING = 48;

// What the panels' plugins choose where a dashboard is silent (their module.tsx).
const COLORS: Record<string, FieldColorModeId> = {
  timeseries: FieldColorModeId.PaletteClassic,
  'state-timeline': FieldColorModeId.ContinuousGrYlRd,
};

const { filterFieldsByNameTransformer, organizeFieldsTransformer, renameByRegexTransformer } = standardTransformers;
standardTransformersRegistry.setInit(() =>
  [filterFieldsByNameTransformer, organizeFieldsTransformer, renameByRegexTransformer].map(
    (transformation) => ({ id: transformation.id, name: transformation.name, transformation }) as any
  )
);

function milliseconds(seconds: number): number {
  return Math.round(seconds * 1000);
}

function rangeOf(from: TimeRange['from'], to: TimeRange['to']): TimeRange {
  return { from, to, raw: { from, to } };
}

function configOf(panel: Panel): FieldConfig {
  const mode = COLORS[panel.type] ?? FieldColorModeId.Thresholds;
  const config = { color: { mode }, ...structuredClone(panel.fieldConfig.defaults), links: [] };
  // JSON has no infinity; the first step is below everything.
  config.thresholds?.steps.forEach((step, at) => (step.value = at ? step.value : -Infinity));
  return config;
}

function legendOf(format: string, labels: Record<string, string>): string {
  if (format) {
    return format.replace(/{{\s*(\w+)\s*}}/g, (_, label) => labels[label] ?? '');
  }
  const { __name__: name = '', ...rest } = labels;
  return `${name}{${Object.entries(rest).map(([label, value]) => `${label}="${value}"`).join(', ')}}`;
}

// A frame a series, as Grafana's data source makes them.
function framesOf(panel: Panel): DataFrame[] {
  let seriesIndex = 0;
  const frames = panel.answers.flatMap(({ legend, result }) =>
    result.map(({ metric, value, values }) => {
      const points = values ?? [value!];
      const frame = createDataFrame({
        fields: [
          {
            name: 'Time',
            type: FieldType.time,
            config: { interval: milliseconds(dashboard.step) },
            values: points.map(([time]) => milliseconds(time)),
          },
          {
            name: 'Value',
            type: FieldType.number,
            labels: metric,
            config: { ...configOf(panel), displayNameFromDS: legendOf(legend, metric) },
            values: points.map(([, text]) => Number(text)),
          },
        ],
      });
      frame.fields[1].state = { seriesIndex: seriesIndex++ };
      return frame;
    })
  );
  return transformed(panel, frames);
}

// One frame with a column a label, as the data source makes it of the format `table`.
function tableOf(panel: Panel): DataFrame {
  const rows = panel.answers.flatMap(({ result }) => result);
  const labels = [...new Set(rows.flatMap(({ metric }) => Object.keys(metric)))];
  const frame = createDataFrame({
    fields: [
      { name: 'Time', type: FieldType.time, config: {}, values: rows.map(({ value }) => milliseconds(value![0])) },
      ...labels.map((name) => ({
        name,
        type: FieldType.string,
        config: { ...configOf(panel), unit: undefined },
        values: rows.map(({ metric }) => metric[name] ?? ''),
      })),
      { name: 'Value', type: FieldType.number, config: configOf(panel), values: rows.map((row) => Number(row.value![1])) },
    ],
  });
  const [table] = transformed(panel, [frame]);
  for (const { matcher, properties } of panel.fieldConfig.overrides) {
    const field = table.fields.find((each) => getFieldDisplayName(each, table) === matcher.options);
    field!.config.custom = { ...field!.config.custom, width: properties[0].value };
  }
  return table;
}

function transformed(panel: Panel, frames: DataFrame[]): DataFrame[] {
  let found: DataFrame[] = [];
  transformDataFrame(panel.transformations ?? [], frames, { interpolate: (text) => text }).subscribe((to) => (found = to));
  for (const field of found.flatMap((frame) => frame.fields)) {
    field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
  }
  return found;
}

interface Sized {
  panel: Panel;
  width: number;
  height: number;
}

function Stat({ panel, width, height }: Sized) {
  const [{ display }] = getFieldDisplayValues({
    fieldConfig: { defaults: configOf(panel), overrides: [] },
    reduceOptions: panel.options.reduceOptions,
    replaceVariables: (text) => text,
    theme,
    data: framesOf(panel),
    timeZone: 'utc',
  });
  const { colorMode, graphMode, justifyMode, textMode } = panel.options;
  // A stat of one value does not repeat its name, which is the panel's (`auto` of its text mode).
  const value = textMode === 'auto' ? { ...display, title: undefined } : display;
  return <BigValue {...{ value, width, height, theme, colorMode, graphMode, justifyMode, textMode }} />;
}

function Graph({ panel, width, height }: Sized) {
  const { legend } = panel.options;
  return <TimeSeries {...{ frames: framesOf(panel), width, height, legend, timeRange, timeZone: 'utc' }} />;
}

function Rows({ panel, width, height }: Sized) {
  return <Table {...{ data: tableOf(panel), width, height, timeZone: 'utc' }} />;
}

function Timeline({ panel, width, height }: Sized) {
  const frames = framesOf(panel);
  const prepConfig = (aligned: DataFrame) => {
    const builder = new UPlotConfigBuilder('utc');
    builder.setPrepData(([frame]) => frame.fields.map((field) => field.values) as any);
    const lanes = aligned.fields.slice(1);
    const names = lanes.map((field) => getFieldDisplayName(field, aligned, frames));
    const middle = (lane: number) => 1 - (lane + 0.5) / lanes.length;
    builder.addScale({
      scaleKey: 'x',
      isTime: true,
      orientation: ScaleOrientation.Horizontal,
      direction: ScaleDirection.Right,
      range: () => [timeRange.from.valueOf(), timeRange.to.valueOf()],
    });
    builder.addScale({
      scaleKey: 'lanes',
      orientation: ScaleOrientation.Vertical,
      direction: ScaleDirection.Up,
      distribution: ScaleDistribution.Linear,
      range: () => [0, 1],
    });
    builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone: 'utc', theme });
    builder.addAxis({
      scaleKey: 'lanes',
      placement: AxisPlacement.Left,
      splits: lanes.map((_, lane) => middle(lane)),
      values: names,
      size: Math.max(...names.map((name) => measureText(name, UPLOT_AXIS_FONT_SIZE).width)) + 3 * GAP,
      grid: { show: false },
      theme,
    });
    lanes.forEach((field, lane) => {
      builder.addSeries({
        scaleKey: 'lanes',
        theme,
        pxAlign: false,
        showPoints: VisibilityMode.Never,
        pathBuilder: (plot) => fillLane(plot, lanes, lane, aligned.fields[0].values, middle(lane)),
      });
    });
    return builder;
  };
  return (
    <GraphNG
      {...{ frames, width, height, timeRange, theme, prepConfig }}
      timeZone="utc"
      legend={{ showLegend: false } as any}
      renderLegend={() => null}
    />
  );
}

// Boxes from each change of the value to the next.
function fillLane(plot: uPlot, lanes: DataFrame['fields'], lane: number, times: number[], middle: number): null {
  const { values, display, config } = lanes[lane];
  const half = (plot.valToPos(0, 'lanes', true) - plot.valToPos(0.9 / lanes.length, 'lanes', true)) / 2;
  const y = plot.valToPos(middle, 'lanes', true);
  const right = plot.bbox.left + plot.bbox.width;
  for (let start = 0, end; start < values.length; start = end) {
    for (end = start + 1; end < values.length && values[end] === values[start]; end++);
    if (values[start] == null) {
      continue;
    }
    const left = Math.max(plot.bbox.left, plot.valToPos(times[start], 'x', true));
    const until = end < values.length ? plot.valToPos(times[end], 'x', true) : right;
    plot.ctx.fillStyle = display!(values[start]).color!;
    plot.ctx.globalAlpha = (config.custom?.fillOpacity ?? 70) / 100;
    plot.ctx.fillRect(left, y - half, until - left, 2 * half);
    plot.ctx.globalAlpha = 1;
  }
  return null;
}

const KINDS: Record<string, (sized: Sized) => ReactNode> = {
  stat: Stat,
  timeseries: Graph,
  table: Rows,
  'state-timeline': Timeline,
};

function Framed({ panel }: { panel: Panel }) {
  const { x, y, w, h } = panel.gridPos;
  const column = (dashboard.width - GAP) / COLUMNS;
  const width = w * column - GAP;
  const height = h * CELL + (h - 1) * GAP;
  const place = { position: 'absolute', left: GAP + x * column, top: HEADING + y * (CELL + GAP), width, height } as const;
  if (panel.type === 'row') {
    return <div style={{ ...place, font: '500 16px/30px Inter' }}>{panel.title}</div>;
  }
  const Kind = KINDS[panel.type];
  return (
    <div style={place}>
      <PanelChrome title={panel.title} width={width} height={height}>
        {(innerWidth, innerHeight) => <Kind panel={panel} width={innerWidth} height={innerHeight} />}
      </PanelChrome>
    </div>
  );
}

function Page() {
  return (
    <ThemeContext.Provider value={theme}>
      <GlobalStyles />
      <div style={{ position: 'absolute', left: GAP, top: 8, display: 'flex', gap: 24, alignItems: 'baseline' }}>
        <h1 style={{ font: '500 20px/32px Inter', margin: 0 }}>{dashboard.title}</h1>
        {dashboard.variables.map((text) => (
          <span key={text} style={{ color: theme.colors.text.secondary }}>
            {text}
          </span>
        ))}
      </div>
      {dashboard.panels.map((panel, at) => (
        <Framed key={at} panel={panel} />
      ))}
    </ThemeContext.Provider>
  );
}

// The same picture of 256 colours, a third of the bytes; both are base64.
window.smaller = async (png) => {
  const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
  const { width, height } = bitmap;
  const context = new OffscreenCanvas(width, height).getContext('2d')!;
  context.drawImage(bitmap, 0, 0);
  const bytes = new Uint8Array(UPNG.encode([context.getImageData(0, 0, width, height).data.buffer], width, height, 256));
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
};

async function main() {
  // A canvas does not wait for its font.
  await Promise.all(['400', '500'].map((weight) => document.fonts.load(`${weight} 12px Inter`)));
  createRoot(document.getElementById('dashboard')!).render(<Page />);
  setTimeout(() => (window.drawn = true), 1500);
}

main();
