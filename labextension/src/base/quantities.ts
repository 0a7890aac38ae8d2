// Formats quantities: bytes in binary units, shares of GPUs, durations, times. Pure.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'] as const;

function unitOf(bytes: number): number {
  let unit = 0;
  // 1023.95 would print as 1024.0 of the smaller unit.
  for (let value = Math.abs(bytes); value >= 1023.95 && unit < UNITS.length - 1; value /= 1024) {
    unit += 1;
  }
  return unit;
}

function digits(bytes: number, unit: number): string {
  return (bytes / 1024 ** unit).toFixed(unit === 0 ? 0 : 1);
}

/** `3.1 GiB` */
export function formatBytes(bytes: number): string {
  const unit = unitOf(bytes);
  return `${digits(bytes, unit)} ${UNITS[unit]}`;
}

/**
 * Part and whole, `3.1` and `16.0 GiB`: in the whole's unit, unless a part above zero would read as
 * 0.0.
 */
export function formatPart(part: number, whole: number): [string, string] {
  const unit = unitOf(whole);
  const inUnit = digits(part, unit);
  const vanishes = part > 0 && Number(inUnit) === 0;
  return [vanishes ? formatBytes(part) : inUnit, formatBytes(whole)];
}

/** A part in the unit of its whole: `0.5 GiB` beside `16.0 GiB`, not `512.0 MiB`. */
export function formatLike(part: number, whole: number): string {
  const [figure, all] = formatPart(part, whole);
  return figure.includes(' ') ? figure : `${figure} ${all.split(' ')[1]}`;
}

/** `0.25`, `1`, `2.5`: shares come in steps of 0.01. */
export function formatShare(gpus: number): string {
  return String(Math.round(gpus * 100) / 100);
}

/** `0.4 s`, `12 s`, `3 min 20 s`, `2 h 5 min` */
export function formatSeconds(seconds: number): string {
  if (seconds < 10) {
    return `${seconds.toFixed(1)} s`;
  }
  const whole = Math.round(seconds);
  if (whole < 60) {
    return `${whole} s`;
  }
  if (whole < 3600) {
    return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  }
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

/** `12:03` today, `Nov 21, 12:03` on other days, with the year if it is another; as the reader's language has it. */
export function formatTime(iso: string, now: Date): string {
  const at = new Date(iso);
  if (isNaN(at.getTime())) {
    return '';
  }
  const time: Intl.DateTimeFormatOptions = { hour: '2-digit', minute: '2-digit' };
  const isToday = at.toDateString() === now.toDateString();
  const day: Intl.DateTimeFormatOptions = { month: 'short', day: 'numeric', ...time };
  const year: Intl.DateTimeFormatOptions = at.getFullYear() === now.getFullYear() ? {} : { year: 'numeric' };
  return at.toLocaleString([], isToday ? time : { ...day, ...year });
}

/** `3–8 min`, `1–3 h`: between which times from now, in whole minutes or hours. */
export function formatFromNow(earliest: string, latest: string, now: Date): string {
  const minutes = (iso: string) => Math.max(0, (Date.parse(iso) - now.getTime()) / 60000);
  const most = Math.max(1, Math.ceil(minutes(latest)));
  const [unit, size] = most > 90 ? ['h', 60] : ['min', 1];
  const [low, high] = [Math.floor(minutes(earliest) / size), Math.ceil(most / size)];
  return low < high ? `${low}–${high} ${unit}` : `${high} ${unit}`;
}

/** A part of a whole as a width for the style sheet. */
export function percent(part: number, whole: number): string {
  return whole > 0 ? `${Math.min(Math.max((100 * part) / whole, 0), 100)}%` : '0%';
}
