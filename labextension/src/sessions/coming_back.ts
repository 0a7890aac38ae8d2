// Replays the outputs that the gateway kept to a page that reconnects: which cell gets which
// output, in which order, and when a run is over. Pure: the stage, a notebook in Lab, shows them.

import { IRunningCell, IRunningCells, ISeenMessages } from '../tokens';

/** The used part of an iopub message, which the gateway kept or the websocket delivered. */
export interface IPublished {
  readonly header: { readonly msg_id: string; readonly msg_type: string };
  readonly parent_header: object;
  readonly content: object;
}

/** A code cell of the notebook as it was opened. */
export interface IOpenedCell {
  readonly id: string;
  readonly code: string;
  readonly hasOutput: boolean;
  readonly executionCount: number | null;
}

export interface IOpenedNotebook {
  readonly cells: readonly IOpenedCell[];
  /** The time at which the file was last written, in milliseconds since the epoch. */
  readonly savedAt: number;
  /** Whether the file stores cell ids; otherwise cells get new ids each time the file is opened. */
  readonly hasLastingIds: boolean;
}

/** Notices that the page adds to a cell's output. */
export type Remark = { readonly kind: 'omitted'; readonly messages: number } | { readonly kind: 'other-code' };

/** The stage that shows outputs. Cells are named by their ids in the notebook. */
export interface IStage {
  /**
   * Claim the cell for this run: clear its outputs, show it as running. False if it runs something
   * newer.
   */
  take(cellId: string, run: IRunningCell, isTrusted: boolean): boolean;
  show(cellId: string, message: IPublished): void;
  remark(cellId: string, remark: Remark): void;
  ask(cellId: string, question: NonNullable<IRunningCell['input']>): void;
  settle(cellId: string, executionCount: number | null): void;
}

interface IRun {
  readonly cellId: string;
  readonly code: string;
  executionCount: number | null;
  /** The number of messages that may be missing before the next one. */
  mayLack: number;
  isOpen: boolean;
  isAsking: boolean;
  /** Whether the run's `execute_input` was seen; a waiting cell sends it twice. */
  hasCode: boolean;
  /** The id of the last input request shown. */
  askedId: string | undefined;
  /**
   * The time at which the gateway reported the run's end; earlier messages of the kernel may still
   * arrive.
   */
  overAt: number | undefined;
}

/** The replayed runs of one kernel. Takes each message of the kernel, in order. */
export class ComingBack {
  constructor(private readonly _stage: IStage) {}

  /** Whether a claimed cell still runs. */
  get isWaiting(): boolean {
    return [...this._runs.values()].some(run => run.isOpen);
  }

  /** Whether no cell was claimed, so that there is nothing to follow. */
  get isEmpty(): boolean {
    return this._runs.size === 0;
  }

  /** Take a message of the kernel; before `begin` it is queued. */
  hear(message: IPublished): void {
    if (this._heard !== null) {
      this._heard.push(message);
    } else if (!this._seen.has(message.header.msg_id)) {
      this._route(message);
    }
  }

  /** Show the kept outputs, then the messages that were queued meanwhile. */
  begin(answer: IRunningCells, notebook: IOpenedNotebook): void {
    const taken: [IRunningCell, IRun][] = [];
    for (const [cell, opened] of match(answer.cells, notebook)) {
      if (this._stage.take(opened.id, cell, answer.is_own)) {
        const mayLack = cell.omitted_messages;
        const run = {
          ...{ cellId: opened.id, code: opened.code, executionCount: null, mayLack },
          ...{ isOpen: true, isAsking: false, hasCode: false, askedId: undefined, overAt: undefined }
        };
        this._runs.set(cell.msg_id, run);
        taken.push([cell, run]);
      }
    }
    for (const [cell, run] of taken) {
      this._replay(cell, run);
    }
    const heard = this._heard ?? [];
    this._heard = null;
    this._seen = new Seen(answer.seen);
    heard.forEach(message => this.hear(message));
  }

  /** Changes with each message of a claimed cell. */
  get moment(): number {
    return this._moment;
  }

  /**
   * Update the runs from a later answer of the gateway, for input requests go only to the page that ran the cell, and the
   * end of a run may be lost. The gateway learns of an end before this page: an end counts as lost only if no message of
   * the run arrived between two answers.
   */
  look(cells: readonly IRunningCell[]): void {
    this._runs.forEach((run, msgId) => {
      const now = cells.find(cell => cell.msg_id === msgId);
      if (now !== undefined && now.is_open) {
        this._ask(run, now.input);
      } else if (run.overAt === this._moment) {
        this._settle(run);
      } else {
        run.overAt = this._moment;
      }
    });
  }

  /** Drop a run whose cell runs something newer or was deleted. */
  leave(msgId: string): void {
    this._runs.delete(msgId);
  }

  /** End all runs: the kernel is gone. */
  end(): void {
    [...this._runs.values()].forEach(run => this._settle(run));
    this._runs.clear();
  }

  private _replay(cell: IRunningCell, run: IRun): void {
    cell.messages.forEach(message => this._route(message));
    if (cell.messages.length > 0 || !cell.is_open) {
      this._missed(run);
    }
    if (!cell.is_open) {
      this._settle(run);
    } else {
      this._ask(run, cell.input);
    }
  }

  private _ask(run: IRun, question: IRunningCell['input']): void {
    if (question !== null && (question.id === undefined ? !run.isAsking : question.id !== run.askedId)) {
      this._stage.ask(run.cellId, question);
    }
    run.isAsking = question !== null;
    run.askedId = question?.id ?? run.askedId;
  }

  private _missed(run: IRun): void {
    if (run.mayLack > 0) {
      this._stage.remark(run.cellId, { kind: 'omitted', messages: run.mayLack });
      run.mayLack = 0;
    }
  }

  private _route(message: IPublished): void {
    const run = this._runs.get(String(field(message.parent_header, 'msg_id')));
    const type = message.header.msg_type;
    const displays = type === 'update_display_data' || (type === 'display_data' && displayId(message) !== undefined);
    if (displays) {
      // An update of a display changes it in each cell that shows it, as in Lab.
      const update = { ...message, header: { ...message.header, msg_type: 'update_display_data' } };
      this._runs.forEach(other => other !== run && this._stage.show(other.cellId, update));
    }
    if (run === undefined) {
      return;
    }
    this._moment += 1;
    run.isAsking = false;
    if (type === 'execute_input') {
      this._begun(run, message);
    } else if (type === 'status') {
      if (field(message.content, 'execution_state') === 'idle') {
        this._settle(run);
      }
    } else {
      this._missed(run);
      this._stage.show(run.cellId, message);
    }
  }

  private _begun(run: IRun, message: IPublished): void {
    const count = field(message.content, 'execution_count');
    const code = field(message.content, 'code');
    if (!run.hasCode && typeof code === 'string' && code !== run.code) {
      this._stage.remark(run.cellId, { kind: 'other-code' });
    }
    run.hasCode ||= typeof code === 'string';
    run.executionCount = typeof count === 'number' ? count : null;
    if (this._heard === null) {
      run.mayLack = 0; // it is the first of all: nothing came before
    }
  }

  private _settle(run: IRun): void {
    if (run.isOpen) {
      run.isOpen = false;
      this._stage.settle(run.cellId, run.executionCount);
    }
  }

  private readonly _runs = new Map<string, IRun>();
  private _heard: IPublished[] | null = [];
  private _moment = 0;
  private _seen = new Seen({ ranges: {}, ids: [] });
}

/** The messages that an answer of the gateway covers. */
export class Seen {
  constructor(told: ISeenMessages) {
    this._ranges = told.ranges;
    this._ids = new Set(told.ids);
  }

  has(msgId: string): boolean {
    const end = msgId.lastIndexOf('_') + 1;
    const number = Number(msgId.slice(end));
    const ranges = this._ranges[msgId.slice(0, end)] ?? [];
    return this._ids.has(msgId) || ranges.some(([first = 0, last = -1]) => first <= number && number <= last);
  }

  private readonly _ranges: ISeenMessages['ranges'];
  private readonly _ids: ReadonlySet<string>;
}

/** Match each run that the notebook does not show yet with its cell, in the order of the runs. */
export function match(
  runs: readonly IRunningCell[],
  notebook: IOpenedNotebook
): readonly (readonly [IRunningCell, IOpenedCell])[] {
  const byId = new Map(notebook.cells.map(cell => [cell.id, cell]));
  const pairs: [IRunningCell, IOpenedCell][] = [];
  for (const run of runs) {
    const cell = byId.get(run.cell_id ?? '') ?? (notebook.hasLastingIds ? undefined : byCode(run, notebook.cells));
    if (cell !== undefined && !isShown(run, cell, notebook.savedAt)) {
      pairs.push([run, cell]);
    }
  }
  // A cell shows its last run.
  return pairs.filter(([, cell], place) => !pairs.slice(place + 1).some(([, later]) => later.id === cell.id));
}

/** The only cell with the code of this run; null if there are several. */
function byCode(run: IRunningCell, cells: readonly IOpenedCell[]): IOpenedCell | undefined {
  const code = run.cell_id === null ? undefined : codeOf(run);
  const found = cells.filter(cell => cell.code === code);
  return found.length === 1 ? found[0] : undefined;
}

/** Whether the notebook was saved with the end of this run, or has more of it than was kept. */
function isShown(run: IRunningCell, cell: IOpenedCell, savedAt: number): boolean {
  if (run.is_open) {
    return false;
  }
  const count = countOf(run);
  const isSaved = run.ended !== null && Date.parse(run.ended) < savedAt;
  const isLost = run.omitted_messages > 0 && cell.hasOutput && run.messages.every(isInput);
  return isSaved || isLost || (count !== null && count === cell.executionCount);
}

function isInput(message: IPublished): boolean {
  return message.header.msg_type === 'execute_input';
}

function codeOf(run: IRunningCell): unknown {
  const input = run.messages.find(isInput);
  return input === undefined ? undefined : field(input.content, 'code');
}

function countOf(run: IRunningCell): number | null {
  const input = run.messages.find(isInput);
  const count = input === undefined ? null : field(input.content, 'execution_count');
  return typeof count === 'number' ? count : null;
}

function displayId(message: IPublished): unknown {
  const transient = field(message.content, 'transient');
  return typeof transient === 'object' && transient !== null ? field(transient, 'display_id') : undefined;
}

function field(value: object, name: string): unknown {
  return (value as Record<string, unknown>)[name];
}
