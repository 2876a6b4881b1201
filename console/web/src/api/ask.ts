// Requests to the console.

import type { Problem } from "./types";

/** An answer that is not a success. */
export class Refused extends Error {
  constructor(
    readonly problem: Problem,
    /** How the console wants to know the viewer: `Bearer`, or nothing if the proxy has to tell. */
    readonly challenge: string | null = null,
  ) {
    super(problem.detail);
  }
}

export async function get<T>(path: string, init?: RequestInit): Promise<T> {
  let response: Response;
  try {
    response = await fetch(path, { cache: "no-store", ...init });
  } catch {
    throw new Refused(unreachable());
  }
  if (response.ok) return (await response.json()) as T;
  throw new Refused(await problemOf(response), response.headers.get("www-authenticate"));
}

export async function post<T>(path: string, body: unknown): Promise<T> {
  return get<T>(path, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
}

export async function problemOf(response: Response): Promise<Problem> {
  try {
    return (await response.json()) as Problem;
  } catch {
    return { ...unreachable(), status: response.status, detail: `it answered with status ${response.status}` };
  }
}

export function problemIn(error: unknown): Problem {
  return error instanceof Refused ? error.problem : { ...unreachable(), detail: String(error) };
}

function unreachable(): Problem {
  return {
    type: "gpufleet:unknown",
    title: "The console does not answer",
    status: 0,
    detail: "no connection could be opened",
    next: "this page tries again by itself; if it lasts, check that gpufleet-console is running",
  };
}
