// Who the viewer is, and what they may do.

import { effect, signal } from "@preact/signals";

import { get, problemIn, Refused } from "./api/ask";
import type { Me, Problem } from "./api/types";
import { refresh, streamState } from "./live/store";

export const me = signal<Me | undefined>(undefined);
/** Why the console does not know the viewer, and whether a token would help. */
export const locked = signal<{ problem: Problem; takesToken: boolean } | null>(null);

const TOKEN = /^#token=([\x21-\x7e]+)$/;

/** Signs in with the token in the page's address, if there is one. The fragment of an address is not sent, and is removed at once. */
export async function enter(): Promise<void> {
  const token = TOKEN.exec(location.hash)?.[1];
  if (token) {
    history.replaceState(null, "", location.pathname + location.search);
    await signIn(token);
  } else {
    await identify();
  }
}

export async function identify(): Promise<void> {
  try {
    me.value = await get<Me>("/api/me");
    locked.value = null;
  } catch (error) {
    const problem = problemIn(error);
    if (problem.status === 401) locked.value = { problem, takesToken: error instanceof Refused && error.challenge === "Bearer" };
    else setTimeout(() => void identify(), 2000);
  }
}

// A stream is refused when the session has ended, such as after a night.
effect(() => {
  if (streamState.value === "refused") void identify();
});

/** Exchanges a token for a cookie. Returns why it was refused. */
export async function signIn(token: string): Promise<Problem | null> {
  try {
    await get("/session", { headers: { authorization: `Bearer ${token}` } });
  } catch (error) {
    await identify();
    return problemIn(error);
  }
  await identify();
  refresh();
  return null;
}

export async function signOut(): Promise<void> {
  await get("/session/end").catch(() => undefined);
  me.value = undefined;
  await identify();
}
