// What is picked for a kernel that is to start, and what it would mean now. State and a signal, no DOM.

import { ISignal, Signal } from '@lumino/signaling';

import { LatestAnswer } from './latest_answer';
import { ISizeDraft, wishOf } from './resize_wish';
import { Choice, choiceFor, choiceOf, nearest, onBase, presetsOf, sizeOf, snapShare } from './sizes';
import { IOutlook, ISize, ISizes, IWish } from './tokens';

const PAUSE_MS = 150;

export class SizeChoice {
  constructor(
    readonly sizes: ISizes,
    private readonly _ask: (wish: IWish) => Promise<IOutlook>,
    pauseMs: number = PAUSE_MS
  ) {
    this._custom = { gpus: snapShare(0.25, sizes), memoryGib: null, workloadClass: firstClass(sizes) };
    this._asker = new LatestAnswer<IWish, IOutlook>(_ask, (wish, answer) => this._tell(wish, answer), pauseMs);
  }

  /** The kernelspec that the size is of; null where none can be sized. */
  get base(): string | null {
    return this._base;
  }

  get presets(): readonly ISize[] {
    return this._base === null ? [] : presetsOf(this._base, this.sizes);
  }

  get choice(): Choice {
    return this._choice;
  }

  /** What "Custom" asks for, or would. */
  get custom(): ISizeDraft {
    return this._custom;
  }

  /** What the chosen size would mean; null while nobody has answered, and where the server does not tell. */
  get outlook(): IOutlook | null {
    return this._outlook;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Another base; null for what has no sizes. What somebody chose stays chosen. */
  moveTo(base: string | null): void {
    if (base !== null) {
      const { sizes, _choice: choice, _isTouched: isTouched } = this;
      this._choice = isTouched ? onBase(choice, base, sizes) : choiceFor(null, base, sizes);
    }
    this._base = base;
    this._look();
  }

  /** As a document has it that names this kernelspec. */
  begin(base: string, name: string | null): void {
    this._base = base;
    this._isTouched = name !== null;
    this._take(choiceFor(name, base, this.sizes));
  }

  /** The nearest to a size that cannot be had. */
  propose(base: string, asked: ISizeDraft): void {
    this._base = base;
    this._isTouched = true;
    this._take(choiceOf(nearest(asked, this.sizes), presetsOf(base, this.sizes)));
  }

  choose(choice: Choice): void {
    this._isTouched = true;
    this._take(choice);
  }

  /** A part of the custom size. */
  draft(part: Partial<ISizeDraft>): void {
    this.choose({ kind: 'custom', asked: { ...this._custom, ...part } });
  }

  /** The kernelspec to start. A custom size is named by the server, which may have to be asked first. */
  async kernelName(): Promise<string> {
    const base = this._base ?? '';
    const { _choice: choice } = this;
    if (choice.kind === 'plain') {
      return base;
    }
    if (choice.kind === 'preset') {
      return choice.size.name;
    }
    const outlook = this._outlook ?? (await this._ask(wishOf(choice.asked)));
    return `${base}.${outlook.suffix}`;
  }

  dispose(): void {
    this._asker.forget();
    Signal.clearData(this);
  }

  private _take(choice: Choice): void {
    this._choice = choice;
    const asked = sizeOf(choice);
    if (asked !== null) {
      this._custom = asked; // "Custom" begins where the hand was.
    }
    this._look();
  }

  private _look(): void {
    const asked = this._base === null ? null : sizeOf(this._choice);
    this._wanted = asked && wishOf(asked);
    this._outlook = null;
    if (this._wanted === null) {
      this._asker.forget();
    } else {
      this._asker.want(this._wanted);
    }
    this._changed.emit();
  }

  private _tell(wish: IWish, answer: IOutlook | null): void {
    if (wish === this._wanted) {
      this._outlook = answer;
      this._changed.emit();
    }
  }

  private _base: string | null = null;
  private _choice: Choice = { kind: 'plain' };
  private _custom: ISizeDraft;
  private _isTouched = false;
  private _wanted: IWish | null = null;
  private _outlook: IOutlook | null = null;
  private readonly _asker: LatestAnswer<IWish, IOutlook>;
  private readonly _changed = new Signal<this, void>(this);
}

function firstClass(sizes: ISizes): ISizeDraft['workloadClass'] {
  return sizes.may_have_production ? 'production' : 'opportunistic';
}
