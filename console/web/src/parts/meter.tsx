// A share as a bar, beside its number. A mark shows what was due.

export function Meter({ share, mark, isBad }: { share: number; mark?: number | undefined; isBad?: boolean }) {
  const at = (value: number) => `${100 * Math.min(Math.max(value, 0), 1)}%`;
  return (
    <span class={`meter${isBad ? " is-bad" : ""}`} aria-hidden="true">
      <span style={{ width: at(share) }} />
      {mark !== undefined && <span class="mark" style={{ left: at(mark) }} />}
    </span>
  );
}
