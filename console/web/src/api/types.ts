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
export type HostProgram = Schemas["HostProgramInfo"];
export type Output = Schemas["OutputRow"];
export type Workers = paths["/v1/workers"]["get"]["responses"]["200"]["content"]["application/json"];
export type Worker = Schemas["ListedWorker"];
export type Device = Schemas["DeviceRow"];
export type Neighbour = Schemas["Neighbour"];
export type Problem = Schemas["Problem"];
export type Times = Schemas["Times"];
export type Statistics = Schemas["Statistics"];
export type StatisticsRow = Schemas["StatisticsRow"];
export type Series = Schemas["Series"];
export type Overview = Schemas["Overview"];
export type Samples = Schemas["DeviceSamples"];
export type Pool = Schemas["Pool"];
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

/** How far a running job is. */
export interface JobProgress {
  attempt: number;
  started_ms: number;
  /** `fetching`, `running` or `storing`; later releases may add others. */
  stage: string;
  /** None if there is nothing to count. */
  count: { done: number; total: number } | null;
  unit: "launches" | "steps" | "bytes";
  /** How long the rest of the stage may take. */
  left_ms: number | null;
  /** The end of what its kernels have printed; only for the page of the job. */
  printed: { text: string; is_cut: boolean } | null;
}

/** The topic `progress` of a page of jobs. */
export interface PageProgress {
  /** Why nothing is known of some jobs. */
  problem: string | null;
  /** By job id. */
  jobs: Record<string, JobProgress>;
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
