// A chart over time. Its numbers are also a table, for those who can't see it.

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useEffect, useRef } from "preact/hooks";

import { clock, tick } from "../format";
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

const SPANS = [1, 3, 6, 12, 24, 48];

/** The shortest span that shows all of the points, up to a longest one. A young fleet has an hour and not an empty day. */
export function hoursOf(at: number[], most: number): number {
  const first = at[0];
  const age = first === undefined ? most : (Date.now() / 1000 - first) / 3600;
  return SPANS.find((span) => span >= age && span <= most) ?? most;
}

interface Props {
  title: string;
  /** Seconds since 1970. */
  at: number[];
  lines: Line[];
  shown: (value: number) => string;
  /** The time that it shows, up to now. */
  hours: number;
  /** The end of the scale, where it is known. */
  max?: number;
  height?: number;
}

export function Chart({ title, at, lines, shown, hours, max, height = 150 }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const format = useRef(shown);
  format.current = shown;
  const shape = lines.map((line) => `${line.title} ${line.colour}`).join() + isDark();
  const data = [at, ...lines.map((line) => line.values)] as uPlot.AlignedData;
  const dark = isDark();

  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options: uPlot.Options = {
      width: Math.max(element.clientWidth, 100),
      height,
      cursor: { y: false, points: { size: 6 } },
      legend: { live: true },
      scales: {
        x: { range: () => [Date.now() / 1000 - hours * 3600, Date.now() / 1000] },
        y: { range: (_, low, high) => [Math.min(low ?? 0, 0), max ?? Math.max((high ?? 0) * 1.08, 1e-9)] },
      },
      axes: [
        { ...axis, space: 70, values: (_, seconds) => seconds.map(tick) },
        { ...axis, size: 62, space: 32, values: (_, values) => values.map((value) => format.current(value)) },
      ],
      series: [
        { value: (_, seconds) => (seconds === null ? "" : clock(new Date(seconds * 1000).toISOString(), Date.now())) },
        ...lines.map((line) => ({
          label: line.title,
          stroke: colour(line.colour),
          width: 1.5,
          ...(line.dash ? { dash: line.dash } : {}),
          ...(line.isBars ? { fill: colour(line.colour), paths: uPlot.paths.bars!({ size: [0.8, 12] }) } : {}),
          points: { show: line.values.length < 40 && !line.isBars, size: 4 },
          spanGaps: false,
          value: (_: uPlot, value: number | null) => (value === null ? "–" : format.current(value)),
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
  }, [shape, dark, height, hours, max]);

  useEffect(() => {
    plot.current?.setData(data);
  }, [at, lines]);

  const last = lines.map((line) => `${line.title} ${lastOf(line, shown)}`).join(", ");
  return (
    <figure class="panel chart-box">
      <figcaption>
        <h2>{title}</h2>
      </figcaption>
      <div class="chart" ref={box} role="img" aria-label={`${title}. Latest: ${last}`} />
    </figure>
  );
}

function lastOf(line: Line, shown: (value: number) => string): string {
  const value = line.values.findLast((value) => value !== null);
  return value === undefined || value === null ? "unknown" : shown(value);
}
