// Dark and light: as the system says, or as the viewer chose.

import { effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const KEY = "gpufleet-theme";

function stored(): Theme {
  const value = localStorage.getItem(KEY);
  return value === "light" || value === "dark" ? value : "system";
}

const system = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(system.matches);
system.addEventListener("change", (event) => (systemIsDark.value = event.matches));

export const theme = signal<Theme>(stored());

export function isDark(): boolean {
  return theme.value === "dark" || (theme.value === "system" && systemIsDark.value);
}

effect(() => {
  document.documentElement.dataset["theme"] = isDark() ? "dark" : "light";
});

export function nextTheme(): void {
  const next: Record<Theme, Theme> = { system: "light", light: "dark", dark: "system" };
  theme.value = next[theme.value];
  if (theme.value === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, theme.value);
}
