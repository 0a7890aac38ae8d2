// Debounces requests that follow each other fast, such as a slider's: sends them after a pause, one
// at a time, and reports only the answer to the last one. No DOM.

/** The pause before a request is sent. */
const PAUSE_MS = 250;

export class LatestAnswer<Q, A> {
  /** `tell` gets the last request with its answer or error, never an earlier one's. */
  constructor(
    private readonly _ask: (question: Q) => Promise<A>,
    private readonly _tell: (question: Q, answer: A | null, error: unknown) => void,
    private readonly _pauseMs = PAUSE_MS
  ) {}

  /** Send this request soon, in the place of one that was not sent yet. */
  want(question: Q): void {
    this.forget();
    this._wanted = { question };
    this._timer = setTimeout(() => void this._next(), this._pauseMs);
  }

  /** Drop the pending request and its answer. */
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
