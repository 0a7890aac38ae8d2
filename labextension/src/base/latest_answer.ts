// Questions that follow each other fast, such as those of a slider: asked after a pause, one at a time, and only the
// answer to the last one counts. No DOM.

/** How long a hand rests before its question is asked. */
const PAUSE_MS = 250;

export class LatestAnswer<Q, A> {
  /** `tell` gets the question and its answer, or the error; never that of a question before the last. */
  constructor(
    private readonly _ask: (question: Q) => Promise<A>,
    private readonly _tell: (question: Q, answer: A | null, error: unknown) => void,
    private readonly _pauseMs = PAUSE_MS
  ) {}

  /** Asks soon; a question that has not been asked yet is forgotten. */
  want(question: Q): void {
    this.forget();
    this._wanted = { question };
    this._timer = setTimeout(() => void this._next(), this._pauseMs);
  }

  /** Nothing is wanted any more, and nothing will be told. */
  forget(): void {
    clearTimeout(this._timer);
    this._timer = undefined;
    this._wanted = null;
    this._round += 1;
  }

  private async _next(): Promise<void> {
    this._timer = undefined;
    if (this._isAsking || this._wanted === null) {
      return;
    }
    const { question } = this._wanted;
    const round = this._round;
    this._wanted = null;
    this._isAsking = true;
    let answer: A | null = null;
    let failure: unknown = null;
    try {
      answer = await this._ask(question);
    } catch (error) {
      failure = error ?? new Error('no reason given');
    }
    this._isAsking = false;
    if (round === this._round) {
      this._tell(question, answer, failure);
    } else if (this._timer === undefined) {
      await this._next();
    }
  }

  private _timer: ReturnType<typeof setTimeout> | undefined = undefined;
  private _wanted: { question: Q } | null = null;
  private _isAsking = false;
  private _round = 0;
}
