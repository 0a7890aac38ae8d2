// The chosen size of a new or running kernel, with its dry run. State and a signal,
// no DOM.

import { ISignal, Signal } from '@lumino/signaling';

import { LatestAnswer } from '../base/latest_answer';
import { ISizeDraft, requestOf } from './resize_request';
import { Choice, choiceFor, choiceOf, isSame, noGpu, onBase, presetsOf, sizeOf, snapShare } from './sizes';
import { IDryRun, ISize, ISizes, ISizeRequest } from '../tokens';

const PAUSE_MS = 150;

/** The target of the choice: a kernelspec to start, or a running kernel with a size. */
export interface ITarget {
  readonly base: string;
  readonly running: { readonly id: string; readonly has: ISizeDraft } | null;
}

export class SizeChoice {
  constructor(
    readonly sizes: ISizes,
    private readonly _ask: (request: ISizeRequest, kernelId?: string) => Promise<IDryRun>,
    pauseMs: number = PAUSE_MS
  ) {
    this._custom = { gpus: snapShare(0.25, sizes), memoryGib: null, priority: firstPriority(sizes) };
    this._latest = new LatestAnswer<IQuestion, IDryRun>(
      question => _ask(question.request, question.kernelId),
      (question, answer, error) => this._tell(question, answer, error),
      pauseMs
    );
  }

  /** The target; null if it has no sizes. */
  get target(): ITarget | null {
    return this._target;
  }

  get presets(): readonly ISize[] {
    return this._target === null ? [] : presetsOf(this._target.base, this.sizes);
  }

  get choice(): Choice {
    return this._choice;
  }

  /** The custom size, chosen or not. */
  get custom(): ISizeDraft {
    return this._custom;
  }

  /** The dry run of the chosen size; null until the answer, and without server support. */
  get dryRun(): IDryRun | null {
    return this._dryRun;
  }

  /** The error of the dry run; null if it succeeded or was not requested yet. */
  get failure(): unknown {
    return this._failure;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Change the target, or null if it has no sizes. The user's choice stays. */
  moveTo(target: ITarget | null): void {
    this._target = target;
    if (target === null) {
      this._take(this._choice);
    } else if (target.running !== null) {
      this._take(choiceOf(target.running.has, presetsOf(target.base, this.sizes)));
    } else {
      const { sizes, _choice: choice, _isTouched: isTouched } = this;
      this._take(isTouched ? onBase(choice, target.base, sizes) : choiceFor(null, target.base, sizes));
    }
  }

  /** Choose the size of a document that names this kernelspec. */
  begin(base: string, name: string | null): void {
    this._target = { base, running: null };
    this._isTouched = name !== null;
    this._take(choiceFor(name, base, this.sizes));
  }

  /** Choose this size, or none, in the place of one that is not available. */
  propose(base: string, asked: ISizeDraft | null): void {
    this._target = { base, running: null };
    this._isTouched = true;
    this._take(asked === null ? noGpu(this.sizes) : choiceOf(asked, presetsOf(base, this.sizes)));
  }

  choose(choice: Choice): void {
    this._isTouched = true;
    this._take(choice);
  }

  /** Change a part of the custom size. */
  draft(part: Partial<ISizeDraft>): void {
    this.choose({ kind: 'custom', asked: { ...this._custom, ...part } });
  }

  /** Repeat the dry run, for the queue changes; the last answer stays until the next. */
  askAgain(): void {
    if (this._wanted !== null && this._isAnswered) {
      this._latest.want(this._wanted);
    }
  }

  /**
   * Return the name of the kernelspec to start. The server names a custom size, which may need a
   * request.
   */
  async kernelName(): Promise<string> {
    const base = this._target?.base ?? '';
    const { _choice: choice } = this;
    if (choice.kind === 'plain') {
      return base;
    }
    if (choice.kind === 'none') {
      return `${base}.gpu-none`;
    }
    if (choice.kind === 'preset') {
      return choice.size.name;
    }
    const dryRun = this._dryRun ?? (await this._ask(requestOf(choice.asked)));
    return `${base}.${dryRun.suffix}`;
  }

  /** The name of the chosen size, as far as it is known; null for none, and for a running kernel. */
  get sizedName(): string | null {
    const { _choice: choice, _target: target } = this;
    if (target === null || target.running !== null) {
      return null;
    }
    if (choice.kind === 'preset') {
      return choice.size.name;
    }
    const suffix = choice.kind === 'custom' ? this._dryRun?.suffix : undefined;
    return suffix === undefined ? null : `${target.base}.${suffix}`;
  }

  /** Return the request for the running kernel; null if its size does not change. */
  get change(): ISizeRequest | null {
    const asked = sizeOf(this._choice, this.sizes);
    const running = this._target?.running ?? null;
    return asked === null || running === null || isSame(asked, running.has) ? null : requestOf(asked);
  }

  dispose(): void {
    this._latest.forget();
    Signal.clearData(this);
  }

  private _take(choice: Choice): void {
    this._choice = choice;
    const asked = sizeOf(choice, this.sizes);
    if (asked !== null) {
      this._custom = asked; // the custom form starts at the last choice
    }
    this._look();
  }

  private _look(): void {
    const asked = this._target === null ? null : sizeOf(this._choice, this.sizes);
    this._wanted = asked && { request: requestOf(asked), kernelId: this._target?.running?.id };
    this._dryRun = null;
    this._failure = null;
    this._isAnswered = false;
    if (this._wanted === null) {
      this._latest.forget();
    } else {
      this._latest.want(this._wanted);
    }
    this._changed.emit();
  }

  private _tell(question: IQuestion, answer: IDryRun | null, error: unknown): void {
    if (question === this._wanted) {
      this._isAnswered = true;
      this._dryRun = answer;
      this._failure = answer === null ? error : null;
      this._changed.emit();
    }
  }

  private _target: ITarget | null = null;
  private _choice: Choice = { kind: 'plain' };
  private _custom: ISizeDraft;
  private _isTouched = false;
  private _wanted: IQuestion | null = null;
  private _dryRun: IDryRun | null = null;
  private _failure: unknown = null;
  /** Whether the dry run has an answer or an error. */
  private _isAnswered = false;
  private readonly _latest: LatestAnswer<IQuestion, IDryRun>;
  private readonly _changed = new Signal<this, void>(this);
}

interface IQuestion {
  readonly request: ISizeRequest;
  readonly kernelId: string | undefined;
}

function firstPriority(sizes: ISizes): ISizeDraft['priority'] {
  return sizes.may_use_normal_priority ? 'normal' : 'low';
}
