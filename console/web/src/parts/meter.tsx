// A share as a bar, beside its number. A mark shows what was due.

export function Meter({ share, mark }: { share: number; mark?: number | undefined }) {
  const at = (value: number) => `${100 * Math.min(Math.max(value, 0), 1)}%`;
  return (
    <span class="meter" aria-hidden="true">
      <span style={{ width: at(share) }} />
      {mark !== undefined && <span class="mark" style={{ left: at(mark) }} />}
    </span>
  );
}
