// Numbers and times as people read them.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A number of microseconds, with about three digits. */
export function duration(us: number | null | undefined): string {
  if (us === null || us === undefined) return "–";
  if (us < 1000) return `${Math.round(us)} µs`;
  if (us < 1e6) return `${digits(us / 1e3)} ms`;
  if (us < 60e6) return `${digits(us / 1e6)} s`;
  const seconds = Math.round(us / 1e6);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

/** How long something has taken so far, in whole seconds. */
export function elapsed(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  return seconds < 60 ? `${seconds} s` : duration(seconds * 1e6);
}

/** An estimate of how long something will take, as roughly as it is known. */
export function left(ms: number): string {
  const seconds = Math.ceil(ms / 1000);
  const step = seconds < 60 ? 1 : seconds < 600 ? 10 : 60;
  const rounded = Math.ceil(seconds / step) * step;
  if (rounded < 60) return `${rounded} s`;
  if (rounded >= 3600) return duration(rounded * 1e6);
  return rounded % 60 === 0 ? `${rounded / 60} min` : duration(rounded * 1e6);
}

export function bytes(count: number | null | undefined): string {
  if (count === null || count === undefined) return "–";
  let value = count;
  let unit = 0;
  while (value >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : digits(value)} ${UNITS[unit]}`;
}

/** A part of a number of bytes. The unit is there once if both have it: `12.0 of 40.0 GiB`. */
export function bytesOf(part: number, whole: number): string {
  const [shown, total] = [bytes(part), bytes(whole)];
  const unit = total.slice(total.indexOf(" "));
  return `${shown.endsWith(unit) ? shown.slice(0, -unit.length) : shown} of ${total}`;
}

export function count(value: number | null | undefined): string {
  return value === null || value === undefined ? "–" : value.toLocaleString("en-US");
}

export function percent(share: number | null | undefined): string {
  if (share === null || share === undefined || Number.isNaN(share)) return "–";
  return `${share > 0 && share < 0.1 ? digits(share * 100) : Math.round(share * 100)} %`;
}

/** How long ago a time was. */
export function age(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** A time in the viewer's zone as ISO 8601 writes it: `2026-11-20T08:30:00+01:00`. */
export function iso8601(time: string | number): string {
  const date = new Date(time);
  const offset = -date.getTimezoneOffset();
  const two = (value: number) => String(Math.floor(value)).padStart(2, "0");
  const zone = offset === 0 ? "Z" : `${offset < 0 ? "-" : "+"}${two(Math.abs(offset) / 60)}:${two(Math.abs(offset) % 60)}`;
  return new Date(date.getTime() + offset * 60_000).toISOString().slice(0, 19) + zone;
}

/** A time on an axis: the time of day, or the date at midnight. As `iso8601`, without the zone. */
export function tick(seconds: number): string {
  const time = new Date(seconds * 1000);
  const isMidnight = time.getHours() === 0 && time.getMinutes() === 0;
  return isMidnight ? time.toLocaleDateString("en-CA").slice(5) : time.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}

/** The end of an id, which is the random part. */
export function shortId(id: string): string {
  return id.slice(-8);
}

export function labels(of: Record<string, string>): string[] {
  return Object.entries(of).map(([key, value]) => `${key}=${value}`);
}

/** A text as one word of a shell. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** Characters that a reader does not see, or that reorder others, become visible. */
export function visible(text: string): string {
  return text.replace(
    // eslint-disable-next-line no-control-regex
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

function digits(value: number): string {
  if (value >= 100) return value.toFixed(0);
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
