// From when on a page counts. The choice is in the URL.

import { useLocation, useSearch } from "wouter-preact";

import { time } from "../pages/filters";

const SPANS: [string, string][] = [
  ["1h", "the last hour"],
  ["24h", "24 hours"],
  ["7d", "7 days"],
  ["30d", "30 days"],
];
const DEFAULT = "24h";

/** The chosen span, and the time at which it begins: a full hour, so that viewers ask for the same. */
export function useSince(): { span: string; since: string } {
  const given = new URLSearchParams(useSearch()).get("since");
  const span = SPANS.some(([name]) => name === given) ? given! : DEFAULT;
  return { span, since: fullHour(span) };
}

/** The full hour in which a span that ends now begins. */
export function fullHour(span: string): string {
  return `${time(span).slice(0, 13)}:00:00Z`;
}

export function SinceChoice({ span }: { span: string }) {
  const [path, navigate] = useLocation();
  const search = useSearch();
  return (
    <label>
      <span>Ended in</span>
      <select
        value={span}
        onChange={(event) => {
          const query = new URLSearchParams(search);
          query.set("since", event.currentTarget.value);
          navigate(`${path}?${query}`, { replace: true });
        }}
      >
        {SPANS.map(([name, title]) => (
          <option key={name} value={name}>
            {title}
          </option>
        ))}
      </select>
    </label>
  );
}
