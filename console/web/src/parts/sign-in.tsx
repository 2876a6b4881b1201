// Asks for a token, where the console has tokens.

import { useState } from "preact/hooks";

import type { Problem } from "../api/types";
import { locked, signIn } from "../session";

export function SignIn() {
  const [token, setToken] = useState("");
  const [problem, setProblem] = useState<Problem | null>(null);
  const submit = async (event: Event) => {
    event.preventDefault();
    setProblem(await signIn(token.trim()));
  };
  return (
    <main class="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <h1>gpufleet</h1>
        {locked.value?.takesToken ? (
          <>
            <label for="token">Token</label>
            <input
              id="token"
              type="password"
              autocomplete="current-password"
              required
              value={token}
              onInput={(event) => setToken(event.currentTarget.value)}
            />
            <button type="submit" class="is-main">
              Sign in
            </button>
          </>
        ) : (
          <p>
            The console does not know you: {locked.value?.problem.detail}; {locked.value?.problem.next}.
          </p>
        )}
        {problem && (
          <p role="alert" class="is-bad">
            Not signed in: {problem.detail}.
          </p>
        )}
      </form>
    </main>
  );
}
