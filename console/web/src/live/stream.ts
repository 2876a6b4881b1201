// The stream of a browser: one EventSource for all visible tabs of the console, and none while all of them are hidden.
//
// Visible tabs compete for a lock. Its owner opens the EventSource for the topics of all visible tabs, and passes events on over a
// BroadcastChannel. Without locks (plain HTTP to another machine), each visible tab has a stream of its own.

export interface Snapshot {
  topic: string;
  at_ms: number;
  problem: import("../api/types").Problem | null;
  body: unknown;
}

/** When each topic was last known to be true. */
export interface Beat {
  now_ms: number;
  at: Record<string, number>;
}

export type StreamState = "idle" | "connecting" | "live" | "lost" | "refused";

export interface Listener {
  snapshot(snapshot: Snapshot): void;
  beat(beat: Beat): void;
  state(state: StreamState): void;
}

type Message =
  | { kind: "wants"; tab: string; topics: string[] }
  | { kind: "leaves"; tab: string }
  | { kind: "who" }
  | { kind: "snapshot"; snapshot: Snapshot }
  | { kind: "beat"; beat: Beat }
  | { kind: "state"; state: StreamState };

const NAME = "gpufleet-console";
/** Tabs repeat what they want this often; the owner forgets a tab after three times. */
const REPEAT_MS = 2000;
/** Several topics of one page arrive together. */
const GATHER_MS = 30;

export class Stream {
  private readonly tab = crypto.randomUUID?.() ?? String(Math.random());
  private readonly channel = new BroadcastChannel(NAME);
  private wanted: string[] = [];
  private readonly others = new Map<string, { topics: string[]; at: number }>();
  private source: EventSource | undefined;
  private open: string[] = [];
  private release: (() => void) | undefined;
  private competing: AbortController | undefined;
  private isOwner = false;
  private gathering: number | undefined;

  constructor(private readonly listener: Listener) {
    this.channel.onmessage = (event: MessageEvent<Message>) => this.hear(event.data);
    document.addEventListener("visibilitychange", () => this.look());
    addEventListener("pagehide", () => this.hide());
    setInterval(() => this.repeat(), REPEAT_MS);
    this.look();
  }

  /** Sets the topics of this tab. */
  want(topics: string[]): void {
    this.wanted = topics;
    if (!document.hidden) this.say({ kind: "wants", tab: this.tab, topics });
    this.gather();
  }

  /** Opens the stream anew, such as after signing in. */
  reopen(): void {
    this.open = [];
    this.gather();
  }

  private look(): void {
    if (document.hidden) this.hide();
    else this.show();
  }

  private show(): void {
    this.say({ kind: "wants", tab: this.tab, topics: this.wanted });
    if (!navigator.locks) {
      this.own();
      return;
    }
    if (this.competing) return;
    const competing = new AbortController();
    this.competing = competing;
    navigator.locks
      .request(NAME, { signal: competing.signal }, () => {
        this.own();
        return new Promise<void>((resolve) => (this.release = resolve));
      })
      .catch(() => undefined);
  }

  private hide(): void {
    this.say({ kind: "leaves", tab: this.tab });
    this.competing?.abort();
    this.competing = undefined;
    this.release?.();
    this.release = undefined;
    this.isOwner = false;
    this.close();
    this.listener.state("idle");
  }

  private own(): void {
    this.isOwner = true;
    this.say({ kind: "who" });
    this.gather();
  }

  private repeat(): void {
    if (document.hidden) return;
    this.say({ kind: "wants", tab: this.tab, topics: this.wanted });
    const old = Date.now() - 3 * REPEAT_MS;
    for (const [tab, { at }] of this.others) if (at < old) this.others.delete(tab);
    if (this.isOwner) this.gather();
  }

  private hear(message: Message): void {
    switch (message.kind) {
      case "wants":
        this.others.set(message.tab, { topics: message.topics, at: Date.now() });
        if (this.isOwner) this.gather();
        break;
      case "leaves":
        this.others.delete(message.tab);
        break;
      case "who":
        if (!document.hidden) this.say({ kind: "wants", tab: this.tab, topics: this.wanted });
        break;
      case "snapshot":
        this.listener.snapshot(message.snapshot);
        break;
      case "beat":
        this.listener.beat(message.beat);
        // A tab that wants what the owner already has hears of no other change.
        if (!document.hidden) this.listener.state("live");
        break;
      case "state":
        if (!document.hidden) this.listener.state(message.state);
        break;
    }
  }

  private say(message: Message): void {
    this.channel.postMessage(message);
  }

  private gather(): void {
    if (!this.isOwner || this.gathering !== undefined) return;
    this.gathering = setTimeout(() => {
      this.gathering = undefined;
      if (this.isOwner) this.connect();
    }, GATHER_MS) as unknown as number;
  }

  private connect(): void {
    const all = new Set(this.wanted);
    for (const { topics } of this.others.values()) for (const topic of topics) all.add(topic);
    const topics = [...all].sort();
    if (topics.join("\n") === this.open.join("\n") && this.source?.readyState !== EventSource.CLOSED) return;
    this.close();
    this.open = topics;
    if (topics.length === 0) return;
    const query = topics.map((topic) => `topic=${encodeURIComponent(topic)}`).join("&");
    const source = new EventSource(`/live?${query}`);
    this.source = source;
    this.tell("connecting");
    source.onopen = () => this.tell("live");
    source.onerror = () => this.tell(source.readyState === EventSource.CLOSED ? "refused" : "lost");
    source.addEventListener("snapshot", (event) => {
      const snapshot = JSON.parse((event as MessageEvent<string>).data) as Snapshot;
      this.listener.snapshot(snapshot);
      this.say({ kind: "snapshot", snapshot });
    });
    source.addEventListener("beat", (event) => {
      const { now_ms, at_ms } = JSON.parse((event as MessageEvent<string>).data) as { now_ms: number; at_ms: number[] };
      const beat = { now_ms, at: Object.fromEntries(topics.map((topic, index) => [topic, at_ms[index] ?? 0])) };
      this.listener.beat(beat);
      this.say({ kind: "beat", beat });
    });
  }

  private tell(state: StreamState): void {
    this.listener.state(state);
    this.say({ kind: "state", state });
  }

  private close(): void {
    this.source?.close();
    this.source = undefined;
    this.open = [];
  }
}
