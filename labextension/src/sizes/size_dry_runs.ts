// The dry runs of all presets, in one request. State and a signal, no DOM.

import { ISignal, Signal } from '@lumino/signaling';

import { LatestAnswer } from '../base/latest_answer';
import { ITarget } from './size_choice';
import { presetsOf, suffixOf } from './sizes';
import { IDryRun, ISizes, StatusError } from '../tokens';

const PAUSE_MS = 50;
/** The most sizes that the server accepts in one request. */
const MOST_SIZES = 64;

interface IQuestion {
  readonly suffixes: readonly string[];
  readonly kernelId: string | undefined;
}

/**
 * The dry runs of all cards that a target has. Cards are shown without them, and get their words
 * with the answer.
 */
export class SizeDryRuns {
  constructor(
    private readonly _sizes: ISizes,
    ask: (suffixes: readonly string[], kernelId?: string) => Promise<readonly IDryRun[]>,
    pauseMs: number = PAUSE_MS
  ) {
    this._latest = new LatestAnswer<IQuestion, readonly IDryRun[]>(
      question => ask(question.suffixes, question.kernelId),
      (question, answer, error) => this._tell(question, answer, error),
      pauseMs
    );
  }

  /** The dry run of the size with this suffix; null while it is not known. */
  of(suffix: string): IDryRun | null {
    return this._found.get(suffix) ?? null;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Ask for the cards of this target; null has none. The same target again asks nothing. */
  follow(target: ITarget | null): void {
    const key = target === null ? '' : `${target.base} ${target.running?.id ?? ''}`;
    if (key === this._key) {
      return;
    }
    this._key = key;
    this._found = new Map();
    const suffixes = target === null ? [] : this._suffixesOf(target);
    this._wanted = suffixes.length === 0 ? null : { suffixes, kernelId: target?.running?.id };
    this._ask();
    this._changed.emit();
  }

  /** Ask the same question again, for others come and go; known words stay until the answer. */
  askAgain(): void {
    if (this._isAnswered) {
      this._ask();
    }
  }

  dispose(): void {
    this._latest.forget();
    Signal.clearData(this);
  }

  private _suffixesOf(target: ITarget): string[] {
    const { default_size: byDefault } = this._sizes;
    const names = presetsOf(target.base, this._sizes).map(suffixOf);
    const all = byDefault && target.running === null ? [...names, `gpu-${byDefault}`] : names;
    return [...new Set(all)].filter(name => /^gpu-/i.test(name)).slice(0, MOST_SIZES);
  }

  private _ask(): void {
    this._isAnswered = false;
    if (this._wanted === null || this._hasNone) {
      this._latest.forget();
    } else {
      this._latest.want(this._wanted);
    }
  }

  private _tell(question: IQuestion, answer: readonly IDryRun[] | null, error: unknown): void {
    this._isAnswered = true;
    this._hasNone = error instanceof StatusError && error.kind === 'not-installed';
    this._found = new Map((answer ?? []).map((dryRun, place) => [question.suffixes[place]!, dryRun]));
    this._changed.emit();
  }

  private _key = '';
  private _wanted: IQuestion | null = null;
  private _found: ReadonlyMap<string, IDryRun> = new Map();
  private _isAnswered = false;
  /** Whether the server is an older gateway without this request. */
  private _hasNone = false;
  private readonly _latest: LatestAnswer<IQuestion, readonly IDryRun[]>;
  private readonly _changed = new Signal<this, void>(this);
}
