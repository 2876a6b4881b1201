// A chart over time, up to now. Its latest numbers are also its label, for those who can't see it.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";

import { bytes, count, duration, iso8601, tick } from "../format";
import { isDark } from "./theme";

export interface Line {
  title: string;
  /** The name of a colour of the page's style. */
  colour: string;
  values: (number | null)[];
  /** Filled steps instead of a line. */
  isBars?: boolean;
  dash?: number[];
}

/** How values are written, and the distances that the lines of an axis may have. */
const DECIMAL = [1, 2, 5];
const CLOCK = [10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400];
const UNITS = {
  count: { shown: (value: number) => count(Math.round(value)), steps: powers(10, 9, DECIMAL) },
  // Up to 5 s, and from there on as on a clock.
  time: { shown: duration, steps: [...powers(10, 7, DECIMAL), ...CLOCK.map((seconds) => seconds * 1e6)] },
  bytes: { shown: bytes, steps: powers(2, 50, [1]) },
  percent: { shown: (value: number) => `${Math.round(value)} %`, steps: [1, 2, 5, 10, 20, 50] },
  /** The only one whose axis does not begin at 0. */
  celsius: { shown: (value: number) => `${Math.round(value)} °C`, steps: powers(10, 3, DECIMAL) },
};

/** Reserved below the chart, so that nothing jumps once it is drawn. */
const LEGEND_HEIGHT = 29;
/** Younger data get a chart of this length. */
const MINUTES_MIN = 5;

interface Props {
  title: string;
  /** Seconds since 1970. */
  at: number[];
  lines: Line[];
  unit: keyof typeof UNITS;
  /** The longest time that it shows. If the data are younger, it begins with them. */
  minutes: number;
  /** The end of the scale, where it is known. */
  max?: number;
  height?: number;
}

export function Chart({ title, at, lines, unit, minutes, max, height = 150 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const { shown, steps } = UNITS[unit];
  const shape = lines.map((line) => `${line.title} ${line.colour}`).join();
  const data = [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const dark = isDark();

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const mark = (value: number) => (value === 0 ? "0" : shown(value).replace(/\.0+ | 0 (s|min)$/, " ").trim());
    const grid = { stroke: colour("line"), width: 1 };
    const axis = { stroke: colour("faint"), grid, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width: Math.max(element.clientWidth, 100),
      height,
      cursor: { y: false, points: { size: 6 } },
      legend: { live: true },
      scales: {
        x: { range: (plot) => span(plot.data[0], minutes) },
        y: { range: (_, low, high) => [unit === "celsius" ? (low ?? 0) - 5 : 0, max ?? Math.max((high ?? 0) * 1.08, steps[0] ?? 1)] },
      },
      axes: [
        { ...axis, size: 28, space: 70, values: (_, seconds) => seconds.map(tick) },
        { ...axis, size: 62, space: 32, incrs: steps, values: (_, values) => values.map(mark) },
      ],
      series: [
        { label: "at", value: (_, seconds) => (seconds === null ? "latest" : iso8601(seconds * 1000)) },
        ...lines.map((line, index) => ({
          label: line.title,
          stroke: colour(line.colour),
          width: 1.5,
          ...(line.dash ? { dash: line.dash } : {}),
          ...(line.isBars ? { fill: colour(line.colour), paths: uPlot.paths.bars!({ size: [0.8, 60], align: 1 }) } : {}),
          points: { show: line.values.length < 40 && !line.isBars, size: 4 },
          spanGaps: false,
          value: (plot: uPlot, value: number | null, _: number, at: number | null) => {
            const known = at === null ? latest(plot.data[index + 1] ?? []) : value;
            return known === null || known === undefined ? "–" : shown(known);
          },
        })),
      ],
    };
    const made = new uPlot(options, data, element);
    plot.current = made;
    const resize = new ResizeObserver(() => made.setSize({ width: Math.max(element.clientWidth, 100), height }));
    resize.observe(element);
    return () => {
      resize.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, dark, height, minutes, max]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [at, lines]);

  const last = lines.map((line) => {
    const value = latest(line.values);
    return `${line.title} ${value === null || value === undefined ? "unknown" : shown(value)}`;
  });
  return (
    <figure class="panel chart-box">
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      <div class="chart" ref={box} style={{ minHeight: `${height + LEGEND_HEIGHT}px` }} role="img" aria-label={`${title}. Latest: ${last.join(", ")}`} />
    </figure>
  );
}

/** From the beginning of the data in this time to now. */
function span(at: ArrayLike<number>, minutes: number): [number, number] {
  const now = Date.now() / 1000;
  const begin = now - minutes * 60;
  const first = Array.from(at).find((time) => time >= begin) ?? begin;
  return [Math.min(first, now - MINUTES_MIN * 60), now];
}

function latest(values: ArrayLike<number | null | undefined>): number | null | undefined {
  return Array.from(values).findLast((value) => value !== null && value !== undefined);
}

function powers(base: number, count: number, of: number[]): number[] {
  return Array.from({ length: count }, (_, power) => of.map((step) => step * base ** power)).flat();
}
