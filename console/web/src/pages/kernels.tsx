// Kernels: how long each stage takes, and how often they fail.

import { useState } from "preact/hooks";
import { Link } from "wouter-preact";

import type { Statistics, StatisticsRow, Times } from "../api/types";
import { count, duration, percent } from "../format";
import { isOutage, useTopic } from "../live/store";
import { Command } from "../parts/command";
import { Empty, ProblemNote, Skeleton } from "../parts/messages";
import { Rows, type Column } from "../parts/rows";
import { SinceChoice, useSince } from "../parts/since";
import { Text } from "../parts/text";

type Stage = "queue" | "compile" | "copy" | "kernel" | "total";
const STAGES: [Stage, string][] = [
  ["queue", "wait"],
  ["compile", "compile"],
  ["copy", "copy"],
  ["kernel", "kernel"],
  ["total", "whole run"],
];

export function KernelsPage() {
  const { span, since } = useSince();
  const [stage, setStage] = useState<Stage>("kernel");
  const { body, problem } = useTopic<Statistics>(`/v1/statistics?by=kernel&since=${encodeURIComponent(since)}`);
  const rows = body?.rows ?? [];
  const time = (key: keyof Times) => (row: StatisticsRow) => duration(row[stage]?.[key]);
  const columns: Column<StatisticsRow>[] = [
    {
      title: "Kernel",
      width: "minmax(5.5rem, 2fr)",
      cell: (row) =>
        row.value ? (
          <Link href={`/jobs?kernel=${encodeURIComponent(row.value)}`} tabIndex={-1}>
            <Text cut={80}>{row.value}</Text>
          </Link>
        ) : (
          <span class="faint">without a kernel</span>
        ),
    },
    { title: "Jobs", width: "6rem", isExtra: true, align: "end", cell: (row) => count(row.jobs) },
    {
      title: "Did not succeed",
      width: "7rem",
      align: "end",
      cell: (row) => (
        <span class={row.succeeded < row.jobs ? "is-bad" : "faint"}>{row.jobs ? percent((row.jobs - row.succeeded) / row.jobs) : "–"}</span>
      ),
    },
    { title: "Lost attempts", width: "7rem", isExtra: true, align: "end", cell: (row) => count(row.attempts_lost) },
    { title: "Median (p50)", width: "6.5rem", align: "end", cell: time("p50_us") },
    { title: "p95", width: "5rem", align: "end", cell: time("p95_us") },
    { title: "p99", width: "6rem", isExtra: true, align: "end", cell: time("p99_us") },
    { title: "Longest", width: "6rem", isExtra: true, align: "end", cell: time("max_us") },
    { title: "Device time", width: "8rem", isExtra: true, align: "end", cell: (row) => duration(row.device_us) },
  ];
  return (
    <>
      <header class="page-head">
        <h1>Kernels</h1>
        <p class="faint">
          Most device time first. p95 is the 95th percentile: 95 % of the jobs took no longer.
        </p>
      </header>
      <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        <div class="fields">
          <SinceChoice span={span} />
          <label>
            <span>Times of</span>
            <select value={stage} onChange={(event) => setStage(event.currentTarget.value as Stage)}>
              {STAGES.map(([name, title]) => (
                <option key={name} value={name}>
                  {title}
                </option>
              ))}
            </select>
          </label>
        </div>
      </form>
      {problem && !isOutage(problem) && <ProblemNote problem={problem} />}
      {!body && !problem && <Skeleton />}
      {body && rows.length === 0 && <Empty>No job has ended in this time.</Empty>}
      {rows.length > 0 && <Rows label="Kernels" columns={columns} rows={rows} rowKey={(row) => row.value} />}
      {(body?.rows_left_out ?? 0) > 0 && <p class="faint">{count(body?.rows_left_out)} kernels with less time are left out.</p>}
      {body && <Command text={`gpufleet stats --by kernel --since ${span}`} />}
    </>
  );
}
