// Sizes, read and compared: which kernelspec asks for which, which are offered on a base, which is nearest. Pure.
// It builds no names: a preset's is the server's, and a custom size's is its dry run's suffix.

import { formatShare } from '../base/quantities';
import { ISizeDraft } from './resize_wish';
import { ISize, ISizes, IStatus } from '../tokens';

const GIB = 1024 ** 3;
/** Of whole GPUs below a size that does not fit: more than a machine has are not tried one by one. */
const MOST_TRIED = 16;

/** A kernelspec's name that is a request, read. */
export interface ISizedName {
  readonly base: string;
  readonly asked: ISizeDraft;
}

/**
 * What is picked for a base: the kernelspec itself, which is what the server makes of it (no GPU, or its default), no GPU
 * whatever that default is, one of its presets, or a size of one's own.
 */
export type Choice =
  | { readonly kind: 'plain' }
  | { readonly kind: 'none' }
  | { readonly kind: 'preset'; readonly size: ISize }
  | { readonly kind: 'custom'; readonly asked: ISizeDraft };

/** Why a size that a document names cannot be had here. */
export type Refusal =
  | { readonly kind: 'unreadable'; readonly base: string }
  | { readonly kind: 'no-base'; readonly base: string; readonly asked: ISizeDraft | null }
  | { readonly kind: 'too-large'; readonly base: string; readonly asked: ISizeDraft; readonly largest: number }
  | { readonly kind: 'priority'; readonly base: string; readonly asked: ISizeDraft }
  | { readonly kind: 'never'; readonly base: string; readonly asked: ISizeDraft; readonly message: string };

/** The base and the size that a kernelspec's name asks for; null for a name that is none, or where no pattern is told. */
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
  return {
    base: groups.kernelspec,
    asked: {
      gpus,
      memoryGib: groups.memory_gib ? Number(groups.memory_gib) : null,
      priority: groups.low ? 'low' : 'normal'
    }
  };
}

/** The base of a name that asks for no GPU in so many words; null for every other name. */
export function readPlain(name: string): string | null {
  return /^((?:(?!\.gpu-).)+)\.gpu-none$/i.exec(name)?.[1] ?? null;
}

/** What a name stands on: itself, where it asks for nothing. */
export function baseOf(name: string, sizes: ISizes | null): string {
  return readName(name, sizes)?.base ?? readPlain(name) ?? name;
}

/** The size that the user's own server asks for where a name has none; null where that is no GPU. */
export function defaultOf(sizes: ISizes): ISizeDraft | null {
  const suffix = sizes.default_size ?? null;
  return suffix === null ? null : (readName(`base.gpu-${suffix}`, sizes)?.asked ?? null);
}

/** No GPU, where a server's default would give one. */
export function noGpu(sizes: ISizes): Choice {
  return { kind: defaultOf(sizes) === null ? 'plain' : 'none' };
}

/** Whether a name looks like a size's though it may not be a valid one: it then stands for nothing else. */
export function looksSized(name: string): boolean {
  return /.\.gpu-/i.test(name);
}

/** What comes after the base and a dot in a preset's name: `gpu-0.25-4g-low`. */
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

/** `0.37 GPU · 6 GiB · low`: what the server writes behind the base's name. */
export function label(asked: ISizeDraft): string {
  const parts = [`${formatShare(asked.gpus)} ${asked.gpus > 1 ? 'GPUs' : 'GPU'}`];
  if (asked.memoryGib !== null) {
    parts.push(`${asked.memoryGib} GiB`);
  }
  if (asked.priority === 'low') {
    parts.push('low');
  }
  return parts.join(' · ');
}

/** The presets on a base, in the server's order; of two that ask for the same the first. */
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

/** What is picked at first on a base for a document that names this kernelspec; null where it names none. */
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

/** What a choice asks for; null for no GPU. */
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

/** A share as it may be asked for: in whole steps, within what is allowed. */
export function snapShare(gpus: number, sizes: ISizes): number {
  const steps = Math.round(gpus / sizes.step);
  const last = Math.floor(sizes.largest_gpus / sizes.step + 1e-6);
  return Math.round(Math.min(Math.max(steps, 1), last) * sizes.step * 100) / 100;
}

/** Where a hand ends that looks for a share: at what there is, and one may have. Rules alone often allow far more. */
export function mostAtHand(sizes: ISizes, status: IStatus | null): number {
  const devices = status?.devices.length ?? 0;
  const mine = status?.user.gpu_limit?.gpus ?? Infinity;
  return snapShare(Math.min(sizes.largest_gpus, devices || Infinity, mine), sizes);
}

/** The most whole GiB that a size of this share can be limited to; null while no device is known. */
export function mostGib(gpus: number, sizes: ISizes): number | null {
  const device = sizes.device_memory_bytes ?? null;
  return device === null ? null : Math.max(Math.floor((Math.ceil(gpus) * device) / GIB), 1);
}

/** The share's part of its devices' memory in bytes; null while no device is known. */
export function partBytes(gpus: number, sizes: ISizes): number | null {
  const device = sizes.device_memory_bytes ?? null;
  return device === null ? null : gpus * device;
}

/** The size nearest to this one that the rules allow here. */
export function nearest(asked: ISizeDraft, sizes: ISizes): ISizeDraft {
  const gpus = snapShare(asked.gpus, sizes);
  const most = mostGib(gpus, sizes);
  const memoryGib = asked.memoryGib === null || most === null ? asked.memoryGib : Math.min(asked.memoryGib, most);
  const priority = sizes.may_use_normal_priority ? asked.priority : 'low';
  return { gpus, memoryGib, priority };
}

/** Sizes to try in the place of one, nearest first: its share as is, then whole GPUs, then the shares of presets. */
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

/** Why the rules of this server refuse a name; null for one that they do not, and for a kernelspec that is no size. */
export function refusalOf(name: string, sizes: ISizes, hasBase: (base: string) => boolean): Refusal | null {
  const named = readName(name, sizes);
  const plain = readPlain(name);
  if (plain !== null) {
    return hasBase(plain) ? null : { kind: 'no-base', base: plain, asked: null };
  }
  if (named === null) {
    // Without the pattern nothing is known to be unreadable.
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

/** A name against the server's pattern; null also where that is not one that this browser reads. */
function match(name: string, pattern: string): RegExpExecArray | null {
  try {
    // Python writes a named group with a P.
    return new RegExp(`^(?:${pattern.replace(/\(\?P</g, '(?<')})$`, 'i').exec(name);
  } catch {
    return null;
  }
}
