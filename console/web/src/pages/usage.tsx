// Who used the devices: by pool, user or label, to look at or as CSV.

import { Link, useLocation, useSearch } from "wouter-preact";

import type { Statistics, StatisticsRow } from "../api/types";
import { bytes, count, duration, percent, quoted } from "../format";
import { isOutage, useTopic } from "../live/store";
import { Command } from "../parts/command";
import { Empty, ProblemNote, Skeleton } from "../parts/messages";
import { Meter } from "../parts/meter";
import { Rows, type Column } from "../parts/rows";
import { SinceChoice, useSince } from "../parts/since";
import { Text } from "../parts/text";

const CSV: [string, (row: StatisticsRow) => string | number][] = [
  ["value", (row) => row.value],
  ["jobs", (row) => row.jobs],
  ["succeeded", (row) => row.succeeded],
  ["failed", (row) => row.failed],
  ["cancelled", (row) => row.cancelled],
  ["expired", (row) => row.expired],
  ["dead", (row) => row.dead],
  ["attempts_lost", (row) => row.attempts_lost],
  ["device_seconds", (row) => row.device_us / 1e6],
  ["queue_seconds", (row) => row.queue_us / 1e6],
  ["input_bytes", (row) => row.input_bytes],
  ["output_bytes", (row) => row.output_bytes],
];

export function UsagePage() {
  const { span, since } = useSince();
  const search = useSearch();
  const [, navigate] = useLocation();
  const by = new URLSearchParams(search).get("by") ?? "pool";
  const { body: labels } = useTopic<{ keys: string[] }>("/v1/labels");
  const { body, problem } = useTopic<Statistics>(`/v1/statistics?by=${encodeURIComponent(by)}&since=${encodeURIComponent(since)}&limit=10000`);
  const undeclared = labels && by.startsWith("label:") && !labels.keys.includes(by.slice(6)) ? by.slice(6) : undefined;
  const rows = body?.rows ?? [];
  const total = rows.reduce((sum, row) => sum + row.device_us, 0);
  const choices = ["pool", "user", "kernel", "worker", "device", ...(labels?.keys ?? []).map((key) => `label:${key}`)];
  const columns: Column<StatisticsRow>[] = [
    { title: by.charAt(0).toUpperCase() + by.slice(1), width: "minmax(6rem, 2fr)", cell: (row) => <Value by={by} value={row.value} /> },
    { title: "Device time", width: "7rem", align: "end", cell: (row) => duration(row.device_us) },
    { title: "Share", width: "11rem", cell: (row) => <ShareOf share={total ? row.device_us / total : 0} /> },
    { title: "Jobs", width: "6rem", isExtra: true, align: "end", cell: (row) => count(row.jobs) },
    { title: "Succeeded", width: "6rem", isExtra: true, align: "end", cell: (row) => count(row.succeeded) },
    { title: "Lost attempts", width: "7rem", isExtra: true, align: "end", cell: (row) => count(row.attempts_lost) },
    { title: "In", width: "6rem", isExtra: true, align: "end", cell: (row) => bytes(row.input_bytes) },
    { title: "Out", width: "6rem", isExtra: true, align: "end", cell: (row) => bytes(row.output_bytes) },
  ];
  return (
    <>
      <header class="page-head">
        <h1>Usage</h1>
        <p class="faint">{body && `${duration(total)} on devices`}</p>
      </header>
      <form class="filters" aria-label="Filters" onSubmit={(event) => event.preventDefault()}>
        <div class="fields">
          <SinceChoice span={span} />
          <label>
            <span>By</span>
            <select
              value={by}
              onChange={(event) => {
                const query = new URLSearchParams(search);
                query.set("by", event.currentTarget.value);
                navigate(`/usage?${query}`, { replace: true });
              }}
            >
              {[...new Set([...choices, by])].map((choice) => (
                <option key={choice} value={choice}>
                  {choice.replace(":", " ")}
                </option>
              ))}
            </select>
          </label>
          <button type="button" disabled={rows.length === 0} onClick={() => save(`usage-${by.replace(":", "-")}.csv`, csv(rows))}>
            Save as CSV
          </button>
        </div>
      </form>
      {problem && !isOutage(problem) && <ProblemNote problem={problem} />}
      {!body && !problem && <Skeleton />}
      {undeclared !== undefined && (
        <>
          <Empty>
            The ledger does not count by label <Text cut={80}>{undeclared}</Text>. This command declares it, for jobs that end from then on:
          </Empty>
          <Command text={`gpufleet-ledger labels add ${quoted(undeclared)}`} />
        </>
      )}
      {body && rows.length === 0 && undeclared === undefined && <Empty>No job has ended in this time.</Empty>}
      {rows.length > 0 && <Rows label="Usage" columns={columns} rows={rows} rowKey={(row) => row.value} />}
      {body && <Command text={`gpufleet usage --by ${quoted(by)} --since ${span}`} />}
    </>
  );
}

function Value({ by, value }: { by: string; value: string }) {
  if (!value) return <span class="faint">none</span>;
  const [kind, key] = by.split(":");
  const filter = kind === "label" ? `label=${encodeURIComponent(`${key}=${value}`)}` : `${kind}=${encodeURIComponent(value)}`;
  if (kind === "device") return <Text cut={80}>{value}</Text>;
  return (
    <Link href={`/jobs?${filter}`} tabIndex={-1}>
      <Text cut={80}>{value}</Text>
    </Link>
  );
}

function ShareOf({ share }: { share: number }) {
  return (
    <>
      <Meter share={share} /> {percent(share)}
    </>
  );
}

function csv(rows: StatisticsRow[]): string {
  const lines = [CSV.map(([name]) => name), ...rows.map((row) => CSV.map(([, of]) => field(of(row))))];
  return lines.map((line) => `${line.join(",")}\r\n`).join("");
}

/** A spreadsheet would execute a text that begins like a formula. */
function field(value: string | number): string {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function save(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
