// The last minutes of one figure: the page's own samples, and before them those of the gateway.
// Bounded. Pure.

/** The number of buckets and the seconds of each: ten minutes in all. */
export const BUCKETS = 120;
export const BUCKET_SECONDS = 5;

/**
 * A ring of buckets with the mean of their samples; null if a bucket has none. Times are seconds
 * since the epoch.
 */
export class Recent {
  /**
   * Add a sample that also holds for the time since the last one, for equal answers are not
   * reported again.
   */
  add(at: number, value: number | null): void {
    const bucket = Math.floor(at / BUCKET_SECONDS);
    if (bucket < this._last) {
      return;
    }
    for (let missed = Math.max(this._last + 1, bucket - BUCKETS); missed < bucket; missed++) {
      this._set(missed, this._value);
    }
    const isNew = bucket > this._last;
    this._count = isNew ? 1 : this._count + 1;
    const before = isNew ? null : (this._ring[bucket % BUCKETS] ?? null);
    const mean = before === null || value === null ? value : before + (value - before) / this._count;
    this._set(bucket, mean);
    this._last = bucket;
    this._value = value;
  }

  /** Pause: the time until the next sample is a gap. */
  pause(): void {
    this._value = null;
  }

  /** Fill empty buckets with earlier samples of the gateway; the page's own samples stay. */
  seed(points: readonly { at: number; seconds: number; value: number | null }[]): void {
    for (const { at, seconds, value } of points) {
      const first = Math.floor(at / BUCKET_SECONDS);
      const end = Math.ceil((at + seconds) / BUCKET_SECONDS);
      for (let bucket = Math.max(first, this._last - BUCKETS + 1); bucket < Math.min(end, this._last); bucket++) {
        if (value !== null && this._times[bucket % BUCKETS] !== bucket) {
          this._set(bucket, value);
        } else if (value !== null) {
          this._ring[bucket % BUCKETS] ??= value;
        }
      }
    }
  }

  /** The number of the bucket that is being filled. */
  get last(): number {
    return this._last;
  }

  /** The buckets up to the last one, oldest first. */
  get values(): (number | null)[] {
    return Array.from({ length: BUCKETS }, (_, index) => {
      const bucket = this._last - BUCKETS + 1 + index;
      return bucket >= 0 && this._times[bucket % BUCKETS] === bucket ? (this._ring[bucket % BUCKETS] ?? null) : null;
    });
  }

  private _set(bucket: number, value: number | null): void {
    this._ring[bucket % BUCKETS] = value;
    this._times[bucket % BUCKETS] = bucket;
  }

  private readonly _ring: (number | null)[] = new Array<number | null>(BUCKETS).fill(null);
  private readonly _times: number[] = new Array<number>(BUCKETS).fill(-1);
  private _last = -1;
  private _count = 0;
  private _value: number | null = null;
}

/** The shortest time span of a line, so that a figure that began a moment ago looks like it. */
const LEAST_SHOWN = 12;

/** A line and the area below it, in a box `width` wide and `height` high; gaps stay open. */
export interface IDrawing {
  readonly line: string;
  readonly area: string;
  readonly width: number;
}

/** The line starts at the first known value. */
export function draw(values: readonly (number | null)[], whole: number, height: number): IDrawing {
  const first = values.findIndex(value => value !== null);
  const shown = values.slice(Math.min(first < 0 ? values.length : first, Math.max(0, values.length - LEAST_SHOWN)));
  const width = Math.max(1, shown.length - 1);
  let line = '';
  let area = '';
  let from: number | null = null;
  shown.forEach((value, index) => {
    if (value !== null && whole > 0) {
      const y = Math.round(10 * height * (1 - Math.min(Math.max(value / whole, 0), 1))) / 10;
      line += `${from === null ? 'M' : 'L'}${index} ${y}`;
      area += from === null ? `M${index} ${height}L${index} ${y}` : `L${index} ${y}`;
      from ??= index;
    }
    const isLast = index === shown.length - 1 || shown[index + 1] === null;
    if (from !== null && isLast) {
      area += `L${index} ${height}Z`;
      from = null;
    }
  });
  return { line, area, width };
}

/** The smallest and the largest value; null without samples. */
export function extent(values: readonly (number | null)[]): { least: number; most: number } | null {
  const seen = values.filter((value): value is number => value !== null);
  return seen.length > 0 ? { least: Math.min(...seen), most: Math.max(...seen) } : null;
}
