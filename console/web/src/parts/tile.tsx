import type { ComponentChildren } from "preact";

export function Tile({ title, value, note, isBad }: { title: string; value: string; note?: ComponentChildren; isBad?: boolean }) {
  return (
    <div class="tile">
      <dt>{title}</dt>
      <dd class={isBad ? "is-bad" : ""}>{value}</dd>
      <dd class="is-note">{note}</dd>
    </div>
  );
}
