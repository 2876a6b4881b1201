// The filters of the list of jobs: in the page's URL, in the search box, as the read API takes them, and as options of the command.

import { quoted } from "../format";

export interface Filters {
  /** Any text, because the API names a state that it does not know. */
  state: string[];
  kernel: string;
  pool: string;
  user: string;
  worker: string;
  name: string;
  /** The environment or image of a host program. */
  env: string;
  /** A time, or how long ago, such as 2h. */
  since: string;
  until: string;
  label: string[];
  /** The key of a page. */
  before: string;
}

type TextFilter = "name" | "kernel" | "env" | "pool" | "user" | "worker" | "since" | "until";

const TEXT_FILTERS: TextFilter[] = ["name", "kernel", "env", "pool", "user", "worker", "since", "until"];

const UNITS: Record<string, number> = { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 };

export function readFilters(search: string): Filters {
  const given = new URLSearchParams(search);
  const text = (name: string) => given.get(name) ?? "";
  return {
    state: given.getAll("state"),
    kernel: text("kernel"),
    pool: text("pool"),
    user: text("user"),
    worker: text("worker"),
    name: text("name"),
    env: text("env"),
    since: text("since"),
    until: text("until"),
    label: given.getAll("label"),
    before: text("before"),
  };
}

/** The query of the page's URL, with its question mark; empty without filters. */
export function writeFilters(filters: Filters): string {
  const query = new URLSearchParams();
  for (const state of filters.state) query.append("state", state);
  for (const name of TEXT_FILTERS) if (filters[name]) query.append(name, filters[name]);
  for (const label of filters.label) query.append("label", label);
  if (filters.before) query.append("before", filters.before);
  const text = query.toString();
  return text ? `?${text}` : "";
}

/** A word of the search box: what is between quotes is one word, also with spaces. */
const WORD = /(?:"(?:\\.|[^"\\])*"?|[^\s"])+/g;

/** What was typed: filters, such as `kernel:saxpy` and `run=1`, and the other words, which may be an id, a name or a kernel. */
export function readSearch(text: string): { filters: Filters; words: string } {
  const filters = readFilters("");
  const words: string[] = [];
  for (const [quoted] of text.matchAll(WORD)) {
    const word = quoted.replace(/"((?:\\.|[^"\\])*)"?/g, (_, inner: string) => inner.replace(/\\(.)/g, "$1"));
    const [, field, value = ""] = /^([a-z]+):(.+)$/s.exec(word) ?? [];
    if (TEXT_FILTERS.includes(field as TextFilter)) filters[field as TextFilter] = value;
    else if (field === "state" || field === "label") filters[field].push(value);
    else if (/^[^=]+=/.test(word)) filters.label.push(word);
    else words.push(word);
  }
  return { filters, words: words.join(" ") };
}

/** The filters as they can be typed, without the states, which have boxes of their own. */
export function writeSearch(filters: Filters): string {
  const word = (text: string) => (/[\s"]/.test(text) ? `"${text.replace(/["\\]/g, "\\$&")}"` : text);
  const texts = TEXT_FILTERS.filter((name) => filters[name]).map((name) => `${name}:${word(filters[name])}`);
  return [...texts, ...filters.label.map((label) => (/^[a-z]+:/.test(label) ? `label:${word(label)}` : word(label)))].join(" ");
}

/** The filters in words. */
export function described(filters: Filters): string[] {
  const texts = TEXT_FILTERS.filter((name) => filters[name]).map((name) => `${name} ${filters[name]}`);
  return [...texts, ...filters.label.map((label) => `label ${label}`)];
}

/** The query for the read API. Times that count from now are rounded to minutes, so that viewers of one page ask for the same. */
export function apiQuery(filters: Filters): string {
  const query = new URLSearchParams(writeFilters(filters));
  for (const name of ["since", "until"] as const) if (filters[name]) query.set(name, time(filters[name]));
  return query.toString();
}

/** The command that lists the same. */
export function cliCommand(filters: Filters): string {
  const words = ["gpufleet", "history"];
  for (const state of filters.state) words.push("--state", state);
  for (const name of TEXT_FILTERS) if (filters[name]) words.push(`--${name}`, filters[name]);
  for (const label of filters.label) words.push("--label", label);
  if (filters.before) words.push("--before", filters.before);
  return words.map(quoted).join(" ");
}

/** A time for the API. What is none is passed on, and refused by name. */
export function time(text: string): string {
  const [, amount, unit] = /^(\d+)\s*([smhd])$/.exec(text) ?? [];
  if (amount && unit) {
    const ms = Date.now() - Number(amount) * (UNITS[unit] ?? 0);
    const at = new Date(Math.floor(ms / 60e3) * 60e3);
    return Number.isNaN(at.getTime()) ? text : at.toISOString();
  }
  const parsed = /^\d{4}-\d\d-\d\d/.test(text) ? new Date(text) : undefined;
  return parsed && !Number.isNaN(parsed.getTime()) ? parsed.toISOString() : text;
}
