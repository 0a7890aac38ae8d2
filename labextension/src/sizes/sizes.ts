// Parses and compares sizes: the size in a kernelspec's name, the presets of a kernelspec, the
// nearest size. Pure. It builds no names: the server names presets, and custom sizes by the suffix
// of their dry run.

import { formatShare } from '../base/quantities';
import { ISizeDraft } from './resize_request';
import { IHostDraft, ISize, ISizes, IStatus } from '../tokens';

const GIB = 1024 ** 3;
/** The most whole-GPU sizes to try below one that does not fit. */
const MOST_TRIED = 16;

export const NO_HOST_PART: IHostDraft = { cpus: null, ramGib: null, folders: null };

/** A parsed kernelspec name with a size. */
export interface ISizedName {
  readonly base: string;
  readonly asked: ISizeDraft;
  /** Present if the name has a choice beside the size. */
  readonly host?: IHostDraft;
}

/**
 * The choice for a kernelspec: the kernelspec itself (no GPU, or the server's default size), explicitly no GPU, a
 * preset, or a custom size.
 */
export type Choice =
  | { readonly kind: 'plain' }
  | { readonly kind: 'none' }
  | { readonly kind: 'preset'; readonly size: ISize }
  | { readonly kind: 'custom'; readonly asked: ISizeDraft };

/** The reason why a document's size is not available here. */
export type Refusal =
  | { readonly kind: 'unreadable'; readonly base: string }
  | { readonly kind: 'no-base'; readonly base: string; readonly asked: ISizeDraft | null }
  | { readonly kind: 'too-large'; readonly base: string; readonly asked: ISizeDraft; readonly largest: number }
  | { readonly kind: 'priority'; readonly base: string; readonly asked: ISizeDraft }
  | { readonly kind: 'never'; readonly base: string; readonly asked: ISizeDraft; readonly message: string };

/** Return kernelspec and size of a name; null if it has no size, or the server sent no pattern. */
export function readName(name: string, sizes: ISizes | null): ISizedName | null {
  const preset = sizes?.sizes.find(size => size.name.toLowerCase() === name.toLowerCase());
  if (preset !== undefined) {
    return { base: preset.kernelspec, asked: askedOf(preset) };
  }
  const groups = sizes?.pattern === undefined ? undefined : match(name, sizes.pattern)?.groups;
  const gpus = Number(groups?.gpus);
  if (groups?.kernelspec === undefined || !(gpus > 0)) {
    return null;
  }
  const host = hostOf(groups);
  return {
    base: groups.kernelspec,
    asked: {
      gpus,
      memoryGib: groups.memory_gib ? Number(groups.memory_gib) : null,
      priority: groups.low ? 'low' : 'normal'
    },
    ...(host && { host })
  };
}

function hostOf({ cpus, ram_gib: ram, folders }: Readonly<Record<string, string>>): IHostDraft | null {
  if (!cpus && !ram && !folders) {
    return null;
  }
  const names = folders ? folders.toLowerCase().split('.with-').slice(1) : null;
  return {
    cpus: cpus ? Number(cpus) : null,
    ramGib: ram ? Number(ram) : null,
    folders: names?.[0] === 'none' ? [] : names
  };
}

/** Return the kernelspec of a name that explicitly requests no GPU; null for other names. */
export function readPlain(name: string): string | null {
  return /^((?:(?!\.gpu-).)+)\.gpu-none$/i.exec(name)?.[1] ?? null;
}

/** Return the kernelspec of a name; the name itself if it has no size. */
export function baseOf(name: string, sizes: ISizes | null): string {
  return readName(name, sizes)?.base ?? readPlain(name) ?? name;
}

/** The server's default size for names without one; null if the default is no GPU. */
export function defaultOf(sizes: ISizes): ISizeDraft | null {
  const suffix = sizes.default_size ?? null;
  return suffix === null ? null : (readName(`base.gpu-${suffix}`, sizes)?.asked ?? null);
}

/** The explicit request for no GPU, for servers with a default size. */
export function noGpu(sizes: ISizes): Choice {
  return { kind: defaultOf(sizes) === null ? 'plain' : 'none' };
}

/** Whether a name looks like a size, valid or not; then it is no kernelspec of its own. */
export function looksSized(name: string): boolean {
  return /.\.gpu-/i.test(name);
}

/** The part of a preset's name after the kernelspec and a dot: `gpu-0.25-4g-low`. */
export function suffixOf(size: ISize): string {
  return size.name.slice(size.kernelspec.length + 1);
}

export function askedOf(size: ISize): ISizeDraft {
  const { gpus, requested_memory_bytes: limit, priority } = size;
  return { gpus, memoryGib: limit === null ? null : Math.round(limit / GIB), priority };
}

export function isSame(one: ISizeDraft, other: ISizeDraft): boolean {
  return (
    Math.round(one.gpus * 100) === Math.round(other.gpus * 100) &&
    one.memoryGib === other.memoryGib &&
    one.priority === other.priority
  );
}

/**
 * `0.37 GPU · 6 GiB · 4 CPUs · 16 GiB RAM · low`, as the server adds it to the kernelspec's display
 * name.
 */
export function label(asked: ISizeDraft, host: IHostDraft = NO_HOST_PART): string {
  const parts = [`${formatShare(asked.gpus)} ${asked.gpus > 1 ? 'GPUs' : 'GPU'}`];
  if (asked.memoryGib !== null) {
    parts.push(`${asked.memoryGib} GiB`);
  }
  if (host.cpus !== null) {
    parts.push(`${host.cpus} ${host.cpus > 1 ? 'CPUs' : 'CPU'}`);
  }
  if (host.ramGib !== null) {
    parts.push(`${host.ramGib} GiB RAM`);
  }
  if (asked.priority === 'low') {
    parts.push('low');
  }
  if (host.folders !== null) {
    parts.push(host.folders.length > 0 ? `with ${host.folders.join(', ')}` : 'no folders');
  }
  return parts.join(' · ');
}

/** The presets of a kernelspec, in the server's order, without duplicates. */
export function presetsOf(base: string, sizes: ISizes): ISize[] {
  const presets: ISize[] = [];
  for (const size of sizes.sizes) {
    const isNew = !presets.some(one => isSame(askedOf(one), askedOf(size)));
    if (size.kernelspec.toLowerCase() === base.toLowerCase() && isNew) {
      presets.push(size);
    }
  }
  return presets;
}

/** The initial choice for a document that names this kernelspec; null if it names none. */
export function choiceFor(name: string | null, base: string, sizes: ISizes): Choice {
  const presets = presetsOf(base, sizes);
  if (name === null) {
    const proposed = presets.find(size => size.is_default);
    return proposed === undefined ? { kind: 'plain' } : { kind: 'preset', size: proposed };
  }
  const named = readName(name, sizes);
  if (named !== null) {
    return choiceOf(named.asked, presets);
  }
  return readPlain(name) === null ? { kind: 'plain' } : noGpu(sizes);
}

/** This size as a choice: a preset where one asks for the same. */
export function choiceOf(asked: ISizeDraft, presets: readonly ISize[]): Choice {
  const preset = presets.find(size => isSame(askedOf(size), asked));
  return preset === undefined ? { kind: 'custom', asked } : { kind: 'preset', size: preset };
}

/** The same choice on another base. */
export function onBase(choice: Choice, base: string, sizes: ISizes): Choice {
  const isSize = choice.kind === 'preset' || choice.kind === 'custom';
  return isSize ? choiceOf(sizeOf(choice, sizes)!, presetsOf(base, sizes)) : choice;
}

/** The size of a choice; null for no GPU. */
export function sizeOf(choice: Choice, sizes: ISizes): ISizeDraft | null {
  switch (choice.kind) {
    case 'plain':
      return defaultOf(sizes);
    case 'none':
      return null;
    case 'preset':
      return askedOf(choice.size);
    case 'custom':
      return choice.asked;
  }
}

/** Round a share to whole steps within the allowed range. */
export function snapShare(gpus: number, sizes: ISizes): number {
  const steps = Math.round(gpus / sizes.step);
  const last = Math.floor(sizes.largest_gpus / sizes.step + 1e-6);
  return Math.round(Math.min(Math.max(steps, 1), last) * sizes.step * 100) / 100;
}

/**
 * The end of the slider: the least of the devices' capacity and the user's limit. Rules often allow
 * far more.
 */
export function mostAtHand(sizes: ISizes, status: IStatus | null): number {
  const devices = status?.devices.length ?? 0;
  const mine = status?.user.gpu_limit?.gpus ?? Infinity;
  return snapShare(Math.min(sizes.largest_gpus, devices || Infinity, mine), sizes);
}

/**
 * The most whole GiB that a size of this share can be limited to; null while no device is known.
 */
export function mostGib(gpus: number, sizes: ISizes): number | null {
  const device = sizes.device_memory_bytes ?? null;
  return device === null ? null : Math.max(Math.floor((Math.ceil(gpus) * device) / GIB), 1);
}

/** The share's part of its devices' memory in bytes; null while no device is known. */
export function partBytes(gpus: number, sizes: ISizes): number | null {
  const device = sizes.device_memory_bytes ?? null;
  return device === null ? null : gpus * device;
}

/** Return the nearest size that the rules of this server allow. */
export function nearest(asked: ISizeDraft, sizes: ISizes): ISizeDraft {
  const gpus = snapShare(asked.gpus, sizes);
  const most = mostGib(gpus, sizes);
  const memoryGib = asked.memoryGib === null || most === null ? asked.memoryGib : Math.min(asked.memoryGib, most);
  const priority = sizes.may_use_normal_priority ? asked.priority : 'low';
  return { gpus, memoryGib, priority };
}

/**
 * Sizes to try in the place of one, nearest first: its share as is, then whole GPUs, then the
 * shares of presets.
 */
export function candidates(asked: ISizeDraft, sizes: ISizes): ISizeDraft[] {
  const first = nearest(asked, sizes);
  const shares = new Set(sizes.sizes.map(size => size.gpus));
  for (let gpus = Math.min(Math.ceil(first.gpus) - 1, MOST_TRIED); gpus >= 1; gpus -= 1) {
    shares.add(gpus);
  }
  const smaller = [...shares].filter(gpus => gpus < first.gpus).sort((a, b) => b - a);
  const plain = first.memoryGib === null ? [first] : [first, { ...first, memoryGib: null }];
  return [...plain, ...smaller.map(gpus => ({ ...first, gpus, memoryGib: null }))];
}

/** Return the rule that refuses a name; null if none does, or the name has no size. */
export function refusalOf(name: string, sizes: ISizes, hasBase: (base: string) => boolean): Refusal | null {
  const named = readName(name, sizes);
  const plain = readPlain(name);
  if (plain !== null) {
    return hasBase(plain) ? null : { kind: 'no-base', base: plain, asked: null };
  }
  if (named === null) {
    // Without the pattern no name can be called invalid.
    const isUnreadable = sizes.pattern !== undefined && looksSized(name);
    return isUnreadable ? { kind: 'unreadable', base: name.slice(0, name.toLowerCase().indexOf('.gpu-')) } : null;
  }
  if (!hasBase(named.base)) {
    return { kind: 'no-base', ...named };
  }
  if (named.asked.gpus > sizes.largest_gpus + 1e-6) {
    return { kind: 'too-large', ...named, largest: sizes.largest_gpus };
  }
  if (named.asked.priority === 'normal' && !sizes.may_use_normal_priority) {
    return { kind: 'priority', ...named };
  }
  return null;
}

/** Match a name with the server's pattern; null also if the browser cannot compile the pattern. */
function match(name: string, pattern: string): RegExpExecArray | null {
  try {
    // Python writes a named group with a P.
    return new RegExp(`^(?:${pattern.replace(/\(\?P</g, '(?<')})$`, 'i').exec(name);
  } catch {
    return null;
  }
}
