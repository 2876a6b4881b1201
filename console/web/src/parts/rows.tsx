// A table of any length: only the rows in sight are in the document. Arrow keys move between rows, Enter opens one.

import type { ComponentChildren } from "preact";
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Column<T> {
  title: string;
  /** A CSS track, such as `8rem` or `1fr`. */
  width: string;
  align?: "end";
  /** Left out in a narrow window. */
  isExtra?: boolean;
  cell: (row: T) => ComponentChildren;
}

interface Props<T> {
  label: string;
  columns: Column<T>[];
  rows: T[];
  rowKey: (row: T) => string;
  /** Where a row leads. */
  href?: (row: T) => string;
  open?: (href: string) => void;
  /** Called when the end comes into sight. */
  onEnd?: () => void;
  rowHeight?: number;
  /** There are more rows than are loaded. */
  isOpenEnded?: boolean;
}

/** Rows above and below what is in sight. */
const BEYOND = 12;
const ROW_HEIGHT = 28;

const narrow = matchMedia("(max-width: 860px)");
const isNarrow = signal(narrow.matches);
narrow.addEventListener("change", (event) => (isNarrow.value = event.matches));

export function Rows<T>(props: Props<T>) {
  const { label, rows, rowKey, href, open, onEnd, rowHeight = ROW_HEIGHT, isOpenEnded } = props;
  const body = useRef<HTMLDivElement>(null);
  const [range, setRange] = useState({ from: 0, to: 60 });
  const [focus, setFocus] = useState(0);
  const columns = props.columns.filter((column) => !isNarrow.value || !column.isExtra);
  const tracks = columns.map((column) => column.width).join(" ");

  useLayoutEffect(() => {
    const measure = () => {
      const element = body.current;
      if (!element) return;
      const top = element.getBoundingClientRect().top;
      const from = Math.max(0, Math.floor(-top / rowHeight) - BEYOND);
      const to = Math.ceil((innerHeight - top) / rowHeight) + BEYOND;
      setRange((range) => (range.from === from && range.to === to ? range : { from, to }));
      if (to >= rows.length) onEnd?.();
    };
    measure();
    addEventListener("scroll", measure, { passive: true, capture: true });
    addEventListener("resize", measure);
    return () => {
      removeEventListener("scroll", measure, { capture: true });
      removeEventListener("resize", measure);
    };
  }, [rows.length, rowHeight, onEnd]);

  const go = (index: number) => {
    const next = Math.min(Math.max(index, 0), rows.length - 1);
    setFocus(next);
    const element = body.current;
    if (!element) return;
    const y = element.getBoundingClientRect().top + next * rowHeight;
    if (y < 60) scrollBy(0, y - 60);
    else if (y + rowHeight > innerHeight - 8) scrollBy(0, y + rowHeight - innerHeight + 8);
    requestAnimationFrame(() => element.querySelector<HTMLElement>(`[data-index="${next}"]`)?.focus());
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const index = Number((event.target as HTMLElement).closest<HTMLElement>("[data-index]")?.dataset["index"]);
    if (Number.isNaN(index) || event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.floor(innerHeight / rowHeight) - 4;
    const steps: Record<string, number> = {
      ArrowDown: index + 1,
      j: index + 1,
      ArrowUp: index - 1,
      k: index - 1,
      PageDown: index + page,
      PageUp: index - page,
      Home: 0,
      End: rows.length - 1,
    };
    const next = steps[event.key];
    if (next === undefined) return;
    event.preventDefault();
    go(next);
  };

  const shown = rows.slice(range.from, range.to);
  return (
    <div class="rows" role="table" aria-label={label} aria-rowcount={isOpenEnded ? -1 : rows.length + 1} aria-colcount={columns.length}>
      <div role="rowgroup">
        <div class="row is-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: tracks }}>
          {columns.map((column) => (
            <div key={column.title} role="columnheader" class={column.align ? "is-end" : ""}>
              {column.title}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" ref={body} style={{ height: `${rows.length * rowHeight}px` }} class="rows-body" onKeyDown={onKeyDown}>
        {shown.map((row, offset) => {
          const index = range.from + offset;
          const place = { gridTemplateColumns: tracks, top: `${index * rowHeight}px`, height: `${rowHeight}px` };
          const target = href?.(row);
          return (
            <div
              key={rowKey(row)}
              class={`row${target ? " is-link" : ""}`}
              role="row"
              aria-rowindex={index + 2}
              data-index={index}
              tabIndex={index === Math.min(focus, rows.length - 1) ? 0 : -1}
              style={place}
              onFocus={() => setFocus(index)}
              onClick={(event) => {
                if (target && !(event.target as HTMLElement).closest("a, button, input")) open?.(target);
              }}
              onKeyDown={(event) => {
                if (target && event.key === "Enter" && event.target === event.currentTarget) open?.(target);
              }}
            >
              {columns.map((column) => (
                <div key={column.title} role="cell" class={column.align ? "is-end" : ""}>
                  {column.cell(row)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
