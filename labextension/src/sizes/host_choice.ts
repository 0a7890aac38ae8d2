// CPUs, memory and folders of the host that are chosen beside a size, with what the server offers of
// them. State and a signal, no DOM. The server names a choice and corrects it.

import { ISignal, Signal } from '@lumino/signaling';

import { LatestAnswer } from '../base/latest_answer';
import { NO_HOST_PART } from './sizes';
import { IHostDraft, ISessionOptions } from '../tokens';

const GIB = 1024 ** 3;
const PAUSE_MS = 150;

interface IQuestion {
  readonly kernelspec: string;
  readonly chosen: IHostDraft;
}

export class HostChoice {
  constructor(
    private readonly _ask: (kernelspec: string, chosen: IHostDraft) => Promise<ISessionOptions>,
    pauseMs: number = PAUSE_MS
  ) {
    this._latest = new LatestAnswer<IQuestion, ISessionOptions>(
      ({ kernelspec, chosen }) => _ask(kernelspec, chosen),
      ({ chosen }, answer, error) => this._tell(chosen, answer, error),
      pauseMs
    );
  }

  /** The server's offer for the size; null until the answer, and without server support. */
  get options(): ISessionOptions | null {
    return this._options;
  }

  /** Why the server did not answer; null if it did, or was not asked. */
  get failure(): unknown {
    return this._failure;
  }

  get chosen(): IHostDraft {
    return this._chosen;
  }

  get changed(): ISignal<this, void> {
    return this._changed;
  }

  /** Take the choice of a document's name. */
  begin(chosen: IHostDraft): void {
    this._chosen = chosen;
  }

  /**
   * Ask what goes with this size, named without a choice; null for what has none. A size whose
   * request failed is asked for again.
   */
  follow(kernelspec: string | null): void {
    if (kernelspec === this._kernelspec && this._failure === null) {
      return;
    }
    this._kernelspec = kernelspec;
    if (kernelspec === null) {
      this._latest.forget();
      this._tell(this._chosen, null, null);
    } else {
      this._latest.want({ kernelspec, chosen: this._chosen });
    }
  }

  choose(part: Partial<IHostDraft>): void {
    this._chosen = { ...this._chosen, ...part };
    this._changed.emit();
  }

  /** Return the name of a size together with the choice. */
  async named(kernelspec: string): Promise<string> {
    const { cpus, ramGib, folders } = this._chosen;
    const isNothing = cpus === null && ramGib === null && folders === null;
    return isNothing || this._kernelspec === null ? kernelspec : (await this._ask(kernelspec, this._chosen)).name;
  }

  dispose(): void {
    this._latest.forget();
    Signal.clearData(this);
  }

  /**
   * The server returns the nearest choice that the size may have. It says nothing about a choice
   * that was made meanwhile, so that one is asked for, too.
   */
  private _tell(asked: IHostDraft, answer: ISessionOptions | null, error: unknown): void {
    this._options = answer;
    this._failure = error;
    if (answer !== null && asked !== this._chosen && this._kernelspec !== null) {
      this._latest.want({ kernelspec: this._kernelspec, chosen: this._chosen });
    } else if (answer !== null) {
      const { cpus, ram_bytes: ram, folders } = answer.chosen;
      this._chosen = { cpus, ramGib: ram === null ? null : Math.round(ram / GIB), folders };
    }
    this._changed.emit();
  }

  private _options: ISessionOptions | null = null;
  private _failure: unknown = null;
  private _chosen: IHostDraft = NO_HOST_PART;
  private _kernelspec: string | null = null;
  private readonly _latest: LatestAnswer<IQuestion, ISessionOptions>;
  private readonly _changed = new Signal<this, void>(this);
}
