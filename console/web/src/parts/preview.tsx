// A look at a kept output: an image where the shape is one, else the first elements and a summary.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { problemOf, Refused, problemIn } from "../api/ask";
import type { Output, Problem } from "../api/types";
import { bytes, count } from "../format";
import { ProblemNote, Skeleton } from "./messages";

const BYTES_MAX = 64 * 2 ** 20;
const SIDE_MAX = 4096;
const SHOWN = 256;

type Elements = (index: number) => number;

export function Preview({ path, output }: { path: string; output: Output }) {
  const [data, setData] = useState<ArrayBuffer | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const size = output.shape.reduce((product, extent) => product * extent, 1);
  const isLarge = size * width(output.dtype) > BYTES_MAX;
  useEffect(() => {
    if (isLarge) return;
    const abort = new AbortController();
    fetch(path, { signal: abort.signal })
      .then(async (response) => {
        if (!response.ok) throw new Refused(await problemOf(response));
        setData(await response.arrayBuffer());
      })
      .catch((error: unknown) => {
        if (!abort.signal.aborted) setProblem(problemIn(error));
      });
    return () => abort.abort();
  }, [path]);
  const at = useMemo(() => data && elements(output.dtype, data), [data]);
  if (isLarge) return <p class="empty">The output has {bytes(size * width(output.dtype))}, too much for a preview.</p>;
  if (problem) return <ProblemNote problem={problem} />;
  if (!at) return <Skeleton rows={2} />;
  const image = imageShape(output);
  return (
    <div class="preview">
      {image && <Picture at={at} {...image} dtype={output.dtype} name={output.name} />}
      <Numbers at={at} size={size} />
    </div>
  );
}

interface ImageShape {
  height: number;
  width: number;
  channels: number;
}

function imageShape(output: Output): ImageShape | undefined {
  const [height, width, channels = 1, ...more] = output.shape;
  if (!height || !width || more.length > 0 || height < 8 || width < 8) return undefined;
  if (height > SIDE_MAX || width > SIDE_MAX || ![1, 3, 4].includes(channels)) return undefined;
  return { height, width, channels };
}

/** Grey or colours. Bytes are shown as they are, other numbers from their least to their greatest. */
function Picture({ at, height, width, channels, dtype, name }: ImageShape & { at: Elements; dtype: string; name: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context) return;
    const image = context.createImageData(width, height);
    let [low, high] = dtype === "u8" ? [0, 255] : summary(at, width * height * channels);
    if (high <= low) high = low + 1;
    const tone = (index: number) => (255 * (at(index) - low)) / (high - low);
    for (let pixel = 0; pixel < width * height; pixel += 1) {
      for (let channel = 0; channel < 4; channel += 1) {
        const isOpaque = channel === 3 && channels !== 4;
        image.data[pixel * 4 + channel] = isOpaque ? 255 : tone(pixel * channels + (channels === 1 ? 0 : channel));
      }
    }
    context.putImageData(image, 0, 0);
  }, [at]);
  return <canvas ref={canvas} width={width} height={height} role="img" aria-label={`${name} as an image of ${width} by ${height}`} />;
}

function Numbers({ at, size }: { at: Elements; size: number }) {
  const [low, high, mean, odd] = useMemo(() => summary(at, size), [at]);
  return (
    <>
      <p>
        {count(size)} elements, from {number(low)} to {number(high)}, mean {number(mean)}
        {odd > 0 && <span class="is-bad">, {count(odd)} not finite</span>}
      </p>
      <pre class="log" tabIndex={0} aria-label="First elements">
        {Array.from({ length: Math.min(size, SHOWN) }, (_, index) => number(at(index))).join("  ")}
        {size > SHOWN ? " …" : ""}
      </pre>
    </>
  );
}

function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  return Number.isInteger(value) ? String(value) : value.toPrecision(6).replace(/\.?0+$/, "");
}

function summary(at: Elements, size: number): [number, number, number, number] {
  let low = Infinity;
  let high = -Infinity;
  let sum = 0;
  let odd = 0;
  for (let index = 0; index < size; index += 1) {
    const value = at(index);
    if (!Number.isFinite(value)) {
      odd += 1;
      continue;
    }
    if (value < low) low = value;
    if (value > high) high = value;
    sum += value;
  }
  return [low, high, sum / Math.max(size - odd, 1), odd];
}

function width(dtype: string): number {
  return { bool: 1, i8: 1, u8: 1, i16: 2, u16: 2, f16: 2, bf16: 2, i64: 8, u64: 8, f64: 8 }[dtype] ?? 4;
}

function elements(dtype: string, data: ArrayBuffer): Elements {
  const view = new DataView(data);
  switch (dtype) {
    case "bool":
    case "u8":
      return (index) => view.getUint8(index);
    case "i8":
      return (index) => view.getInt8(index);
    case "u16":
      return (index) => view.getUint16(index * 2, true);
    case "i16":
      return (index) => view.getInt16(index * 2, true);
    case "f16":
      return (index) => half(view.getUint16(index * 2, true));
    case "bf16":
      return (index) => brain(view.getUint16(index * 2, true));
    case "u32":
      return (index) => view.getUint32(index * 4, true);
    case "i32":
      return (index) => view.getInt32(index * 4, true);
    case "u64":
      return (index) => Number(view.getBigUint64(index * 8, true));
    case "i64":
      return (index) => Number(view.getBigInt64(index * 8, true));
    case "f64":
      return (index) => view.getFloat64(index * 8, true);
    default:
      return (index) => view.getFloat32(index * 4, true);
  }
}

function half(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return exponent === 0 ? sign * 2 ** -24 * fraction : sign * 2 ** (exponent - 25) * (1024 + fraction);
}

function brain(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits << 16);
  return view.getFloat32(0);
}
