// The shapes of the read API, from its OpenAPI document, and those of the console itself.

import type { components, paths } from "./schema";

type Schemas = components["schemas"];

export type Page = Schemas["Page"];
export type Job = Schemas["JobRow"];
export type JobDetail = Schemas["JobDetail"];
export type JobState = Schemas["JobState"];
export type Attempt = Schemas["AttemptRow"];
export type AttemptState = Schemas["AttemptState"];
export type Failure = Schemas["FailureRow"];
export type Timings = Schemas["Timings"];
export type SessionUse = Schemas["SessionUse"];
export type Output = Schemas["OutputRow"];
export type Workers = paths["/v1/workers"]["get"]["responses"]["200"]["content"]["application/json"];
export type Worker = Schemas["ListedWorker"];
export type Device = Schemas["DeviceRow"];
export type Problem = Schemas["Problem"];
export type Times = Schemas["Times"];
export type Statistics = Schemas["Statistics"];
export type StatisticsRow = Schemas["StatisticsRow"];
export type Series = Schemas["Series"];
export type Overview = Schemas["Overview"];
export type Samples = Schemas["DeviceSamples"];
export type Pools = Schemas["Pools"];
export type Explanation = Schemas["Explanation"];
export type Report = Schemas["Report"];

/** Answer of `/api/me`. */
export interface Me {
  viewer: string;
  version: string;
  identity: "none" | "token" | "proxy";
  actions: boolean;
  has_broker: boolean;
  has_blobs: boolean;
}

/** The topic `broker`. */
export interface Broker {
  state: "absent" | "away" | "up";
  reason: string | null;
  pools: { pool: string; messages: number; consumers: number }[];
  dead: number | null;
}

export interface DeadLetter {
  /** Names the letter in an action. */
  key: string;
  id: string | null;
  jobs: string[];
  reason: string;
  origin: string;
  user: string | null;
  kind: string | null;
  bytes: number;
  is_cut: boolean;
  timestamp: number | null;
}

/** Answer of `/api/dead`. */
export interface DeadList {
  letters: DeadLetter[];
  unseen: number;
  has_other_consumers: boolean;
}

/** Answer of a cancellation. */
export interface Cancelled {
  only_own: boolean;
}

/** Answer of the actions on dead letters. */
export interface Acted {
  done: number;
  jobs: string[];
  failed: [string, string][];
  /** Why the other letters were left alone. */
  stopped: string | null;
}

export const STATES: JobState[] = ["queued", "running", "succeeded", "failed", "cancelled", "expired", "dead"];
