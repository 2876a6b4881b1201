// Lines of a program, with their numbers. The line that failed is marked, and carets point at its text.

import { Fragment } from "preact";

import type { components } from "../api/schema";
import { visible } from "../format";

const TOKENS = /(\/\/.*|\/\*.*?\*\/)|("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\b(\d[\w.]*)\b|\b([A-Za-z_]\w*)\b/g;
const WORDS = new Set(
  (
    "__device__ __global__ __host__ __launch_bounds__ __restrict__ __shared__ auto bool break case char const continue default do double else " +
    "extern float for half if inline int long return short signed size_t static struct switch template typename unsigned void volatile while"
  ).split(" "),
);
/** As many carets point at a line. */
const CARETS_MAX = 80;

export function Code({ source, line }: { source: components["schemas"]["Excerpt"]; line: number }) {
  const lines = source.text.replace(/\n$/, "").split("\n");
  const width = String(source.first_line + lines.length - 1).length;
  return (
    <pre class="source" tabIndex={0} aria-label={`Source around line ${line}`}>
      {lines.map((text, index) => {
        const number = source.first_line + index;
        const gutter = (content: string | number) => <span class="gutter">{String(content).padStart(width)} │ </span>;
        if (number !== line) {
          return (
            <span key={number} class="line">
              {gutter(number)}
              {coloured(text)}
            </span>
          );
        }
        const indent = /^\s*/.exec(text)![0];
        return (
          <Fragment key={number}>
            <mark class="line is-here">
              {gutter(number)}
              {coloured(text)}
            </mark>
            <span class="line caret">
              {gutter("")}
              {indent}
              {"^".repeat(Math.max(1, Math.min(text.trim().length, CARETS_MAX)))}
            </span>
          </Fragment>
        );
      })}
    </pre>
  );
}

/** Comments, texts, numbers and the words of the language look different. */
function coloured(text: string) {
  const parts = [];
  let at = 0;
  for (const match of text.matchAll(TOKENS)) {
    const [token, comment, literal, number, word] = match;
    const kind = comment ? "comment" : literal || number ? "literal" : word && WORDS.has(word) ? "word" : undefined;
    if (!kind) continue;
    const shown = (
      <span key={match.index} class={`is-${kind}`}>
        {visible(token)}
      </span>
    );
    parts.push(visible(text.slice(at, match.index)), shown);
    at = match.index + token.length;
  }
  return [...parts, visible(text.slice(at))];
}
