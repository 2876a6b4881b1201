// How much time the charts of a page show. The choice is in the URL.

import { useId } from "preact/hooks";
import { useLocation, useSearch } from "wouter-preact";

const TITLES = { "15m": "15 min", "1h": "1 h", "24h": "24 h", "48h": "48 h" };
const MINUTES = { "15m": 15, "1h": 60, "24h": 1440, "48h": 2880 };

export type Range = keyof typeof MINUTES;

/** The chosen range, else the one that fits the data. */
export function useRange(fitted: Range): { range: Range; minutes: number } {
  const given = new URLSearchParams(useSearch()).get("range") as Range;
  const range = Object.hasOwn(MINUTES, given) ? given : fitted;
  return { range, minutes: MINUTES[range] };
}

export function RangeChoice({ range, of }: { range: Range; of: Range[] }) {
  const [path, navigate] = useLocation();
  const search = useSearch();
  const group = useId();
  const choose = (name: Range) => {
    const query = new URLSearchParams(search);
    query.set("range", name);
    navigate(`${path}?${query}`, { replace: true });
  };
  return (
    <fieldset class="chips">
      <legend class="visually-hidden">Range</legend>
      {of.map((name) => (
        <label key={name} class={`chip${range === name ? " is-on" : ""}`}>
          <input type="radio" name={group} checked={range === name} onChange={() => choose(name)} />
          {TITLES[name]}
        </label>
      ))}
    </fieldset>
  );
}
