// What this tab knows: the latest snapshot of each topic that its page shows.

import { signal, type Signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { get, problemIn } from "../api/ask";
import type { Problem } from "../api/types";
import { Stream, type Beat, type Snapshot, type StreamState } from "./stream";

export interface Known<T> {
  body: T | undefined;
  problem: Problem | null;
}

interface Topic {
  known: Signal<Known<unknown>>;
  /** When the body was last known to be true, by the console's clock; 0 if never. No page is drawn again because of it. */
  at: number;
  uses: number;
}

const topics = new Map<string, Topic>();
const NOTHING: Known<unknown> = { body: undefined, problem: null };

/** The console's clock. It moves with each beat, and each second without one. */
export const now = signal(Date.now());
export const streamState = signal<StreamState>("idle");
/** When the last beat came. */
export const heardAt = signal(0);
/** The problem that hides newer data, and since when. */
export const trouble = signal<{ problem: Problem; since: number } | null>(null);

let offset = 0;

const stream = new Stream({
  snapshot: (snapshot: Snapshot) => learn(snapshot.topic, snapshot),
  beat: (beat: Beat) => {
    offset = beat.now_ms - Date.now();
    heardAt.value = Date.now();
    now.value = beat.now_ms;
    for (const [name, at] of Object.entries(beat.at)) {
      const topic = topics.get(name);
      if (topic && at > 0) topic.at = at;
    }
    judge();
  },
  state: (state) => {
    streamState.value = state;
  },
});

setInterval(() => {
  if (!document.hidden) now.value = Date.now() + offset;
}, 1000);

/** The topic's latest snapshot, for as long as the component is there. `undefined` asks for nothing. */
export function useTopic<T>(name: string | undefined): Known<T> {
  const topic = useMemo(() => (name === undefined ? undefined : find(name)), [name]);
  useEffect(() => {
    if (name === undefined || !topic) return;
    topic.uses += 1;
    topics.set(name, topic);
    announce();
    // The stream brings the same, but may have to be opened first.
    if (topic.at === 0) void fetchOnce(name);
    return () => {
      topic.uses -= 1;
      if (topic.uses === 0) {
        topics.delete(name);
        announce();
      }
    };
  }, [name, topic]);
  return (topic?.known.value ?? NOTHING) as Known<T>;
}

/** Opens the stream anew, and asks for everything on the page again. */
export function refresh(): void {
  stream.reopen();
  for (const name of topics.keys()) void fetchOnce(name);
}

/** Components that mount at the same time get the same topic. */
function find(name: string): Topic {
  const topic = topics.get(name) ?? { known: signal(NOTHING), at: 0, uses: 0 };
  topics.set(name, topic);
  return topic;
}

async function fetchOnce(name: string): Promise<void> {
  if (!name.startsWith("/v1/")) return;
  try {
    const body = await get<unknown>(`/api${name}`);
    if (topics.get(name)?.at === 0) learn(name, { body, at_ms: Date.now() + offset, problem: null });
  } catch (error) {
    learn(name, { body: undefined, at_ms: 0, problem: problemIn(error) });
  }
}

function learn(name: string, snapshot: { body: unknown; at_ms: number; problem: Problem | null }): void {
  const topic = topics.get(name);
  if (topic) {
    const earlier = topic.known.peek();
    topic.known.value = { body: snapshot.body ?? earlier.body, problem: snapshot.problem };
    topic.at = snapshot.at_ms || topic.at;
  }
  judge();
}

/** Whether newer data can't be had. A wrong filter or id is a matter of its page alone. */
function judge(): void {
  for (const topic of topics.values()) {
    const { problem } = topic.known.peek();
    if (!problem || !isOutage(problem)) continue;
    const known = trouble.peek();
    if (known?.problem !== problem || known.since !== topic.at) trouble.value = { problem, since: topic.at };
    return;
  }
  trouble.value = null;
}

export function isOutage(problem: Problem): boolean {
  return problem.status >= 500 || problem.status === 0;
}

let announced = false;

/** Tells the stream once for all changes of this moment. */
function announce(): void {
  if (announced) return;
  announced = true;
  queueMicrotask(() => {
    announced = false;
    stream.want([...topics].filter(([, { uses }]) => uses > 0).map(([name]) => name));
    judge();
  });
}
