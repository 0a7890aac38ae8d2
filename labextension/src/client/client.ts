// The only door to the server: asks it, and turns every failure into a StatusError. Keeps nothing.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import {
  IHistory,
  IKernel,
  IDryRun,
  IRunningCell,
  IRunningCells,
  IShare,
  ISizes,
  IStatusSource,
  ITranslation,
  IWish,
  StatusError
} from '../tokens';

/** An unanswered request is given up after this long, so that a hung server shows as one. */
const PATIENCE_MS = 15000;
/** One that has begun to come may be long, and the link slow; but it may also never end, as after a sleep. */
const BODY_PATIENCE_MS = 60000;

/** Every request under /aliquot/api/v1, with the credentials that Lab itself uses. Each rejects with a StatusError. */
export class AliquotClient implements IStatusSource {
  /** `_trans`: for what a failure is called where the server has no words for it. */
  constructor(
    readonly settings: ServerConnection.ISettings,
    private readonly _trans: ITranslation
  ) {}

  /** The status, as it is written: who keeps the last one need not read an equal one again. */
  fetchText(): Promise<string> {
    return this._ask('GET', ['status']);
  }

  /** The sizes that are offered, and the grammar of all others. */
  async sizes(): Promise<ISizes> {
    const found = await this._json('GET', ['sizes']);
    if (!Private.isRecord(found) || !Array.isArray(found.sizes)) {
      throw Private.unreadable(this._trans);
    }
    return found as unknown as ISizes;
  }

  /**
   * What would happen if this size were asked for now; with a kernel's id, if it were that kernel's.
   * `replacedId`: of a new kernel, the one that ends for it.
   */
  async dryRun(wish: IWish, kernelId?: string, replacedId?: string): Promise<IDryRun> {
    const query = new URLSearchParams({ gpus: String(wish.gpus) });
    if (wish.memory !== undefined) {
      query.set('memory', String(wish.memory));
    }
    if (wish.priority !== undefined) {
      query.set('priority', wish.priority);
    }
    if (kernelId !== undefined) {
      query.set('kernel', kernelId);
    } else if (replacedId !== undefined) {
      query.set('replaces', replacedId);
    }
    return (await this._json('GET', ['dry-run'], undefined, `?${query}`)) as IDryRun;
  }

  /** The same of several sizes, each by itself and named as `gpu-0.25`: one answer, in the order of the question. */
  async dryRuns(suffixes: readonly string[], kernelId?: string, replacedId?: string): Promise<readonly IDryRun[]> {
    const query = new URLSearchParams(suffixes.map(suffix => ['size', suffix]));
    if (kernelId !== undefined) {
      query.set('kernel', kernelId);
    } else if (replacedId !== undefined) {
      query.set('replaces', replacedId);
    }
    const found = await this._json('GET', ['dry-runs'], undefined, `?${query}`);
    if (!Private.isRecord(found) || !Array.isArray(found.dry_runs) || found.dry_runs.length !== suffixes.length) {
      throw Private.unreadable(this._trans);
    }
    return found.dry_runs as IDryRun[];
  }

  /** Another size or priority for a kernel that runs. The answer's `resize` is not null where it waits for room. */
  async resize(kernelId: string, wish: Partial<IWish>): Promise<IKernel> {
    return (await this._json('PATCH', ['kernels', kernelId], wish)) as IKernel;
  }

  /** Gives up a change of size that waits for room. */
  async withdrawResize(kernelId: string): Promise<void> {
    await this._ask('DELETE', ['kernels', kernelId, 'resize']);
  }

  /** Its memory is to leave its devices now. */
  async swapOut(kernelId: string): Promise<IKernel> {
    return (await this._json('POST', ['kernels', kernelId, 'swap-out'])) as IKernel;
  }

  /** Its memory is to come back as soon as there is room. */
  async restore(kernelId: string): Promise<IKernel> {
    return (await this._json('POST', ['kernels', kernelId, 'restore'])) as IKernel;
  }

  /** Somebody is about to use it. Nothing is promised; one in a second is enough. */
  async prefetch(kernelId: string): Promise<void> {
    await this._ask('POST', ['kernels', kernelId, 'prefetch']);
  }

  /** A kernel that would be ended for its idle time is to stay; its idle time begins anew. */
  async postponeCulling(kernelId: string): Promise<void> {
    await this._ask('POST', ['kernels', kernelId, 'postpone-culling']);
  }

  /** With whom one's own kernel is shared. */
  async shares(kernelId: string): Promise<readonly IShare[]> {
    const found = await this._json('GET', ['kernels', kernelId, 'shares']);
    if (!Private.isRecord(found) || !Array.isArray(found.shares)) {
      throw Private.unreadable(this._trans);
    }
    return found.shares as readonly IShare[];
  }

  /** Shares it with one more, or changes what they may do. */
  async share(kernelId: string, { kind, name, access }: IShare): Promise<void> {
    await this._ask('PUT', ['kernels', kernelId, 'shares', `${kind}s`, name], { access });
  }

  /** Takes it back; what they have open on it closes. */
  async unshare(kernelId: string, { kind, name }: IShare): Promise<void> {
    await this._ask('DELETE', ['kernels', kernelId, 'shares', `${kind}s`, name]);
  }

  /** All that one may see, and all that ended and are remembered. */
  async kernels(): Promise<readonly IKernel[]> {
    const found = await this._json('GET', ['kernels']);
    if (!Private.isRecord(found) || !Array.isArray(found.kernels)) {
      throw Private.unreadable(this._trans);
    }
    return found.kernels as readonly IKernel[];
  }

  /** One kernel, as the server knows it now. */
  async kernel(kernelId: string): Promise<IKernel> {
    return (await this._json('GET', ['kernels', kernelId])) as IKernel;
  }

  /** The cells that run in a kernel or ended a short while ago, each with what it showed. */
  async runningCells(kernelId: string): Promise<IRunningCells> {
    return (await this._json('GET', ['kernels', kernelId, 'outputs'])) as IRunningCells;
  }

  /** The same without their messages. */
  async openCells(kernelId: string): Promise<readonly IRunningCell[]> {
    return ((await this._json('GET', ['kernels', kernelId, 'outputs'], undefined, '?messages=no')) as IRunningCells).cells;
  }

  /** Which of a page's requests the kernel does not have and will not get; null: this cannot be known now. */
  async notReceived(
    kernelId: string,
    session: string,
    msgIds: readonly string[]
  ): Promise<readonly string[] | null> {
    const sent = msgIds.map(msgId => `&sent=${encodeURIComponent(msgId)}`).join('');
    const query = `?messages=no&session=${encodeURIComponent(session)}${sent}`;
    return ((await this._json('GET', ['kernels', kernelId, 'cells'], undefined, query)) as IRunningCells).not_received;
  }

  /** Of all that one may see, or of these devices alone. */
  async history(range: IHistory['range'], devices: readonly string[] = []): Promise<IHistory> {
    const named = devices.map(uuid => `&device=${encodeURIComponent(uuid)}`).join('');
    return (await this._json('GET', ['history'], undefined, `?range=${range}&format=json${named}`)) as IHistory;
  }

  /** The same for table programs. */
  async historyCsv(range: IHistory['range']): Promise<string> {
    return this._ask('GET', ['history'], undefined, `?range=${range}&format=csv`);
  }

  private _url(path: readonly string[]): string {
    return URLExt.join(this.settings.baseUrl, 'aliquot', 'api', 'v1', ...path.map(encodeURIComponent));
  }

  private async _json(method: string, path: readonly string[], body?: unknown, query = ''): Promise<unknown> {
    const text = await this._ask(method, path, body, query);
    const found = Private.parse(text);
    if (found === undefined && text !== '') {
      throw Private.unreadable(this._trans); // such as the page of a proxy that wants a log-in
    }
    return found;
  }

  /** The answer's body, read to its end; a StatusError otherwise. */
  private async _ask(method: string, path: readonly string[], body?: unknown, query = ''): Promise<string> {
    const deadline = new AbortController();
    const giveUp = (): void => deadline.abort();
    let timer = setTimeout(giveUp, PATIENCE_MS);
    const request: RequestInit = { method, signal: deadline.signal };
    if (body !== undefined) {
      request.body = JSON.stringify(body);
    }
    try {
      const response = await ServerConnection.makeRequest(this._url(path) + query, request, this.settings);
      clearTimeout(timer);
      timer = setTimeout(giveUp, BODY_PATIENCE_MS);
      const text = await response.text();
      if (!response.ok) {
        throw Private.refusal(response, text);
      }
      return text;
    } catch (error) {
      throw error instanceof StatusError ? error : Private.unreachable(error, this._trans);
    } finally {
      clearTimeout(timer);
    }
  }
}

namespace Private {
  export function parse(text: string): unknown {
    try {
      return JSON.parse(text);
    } catch {
      return undefined;
    }
  }

  export function unreachable(error: unknown, trans: ITranslation): StatusError {
    const reason = error instanceof Error ? error.message : String(error); // the browser's words
    return new StatusError('unreachable', trans.__('The server does not answer: %1', reason));
  }

  export function unreadable(trans: ITranslation): StatusError {
    return new StatusError('server', trans.__('The server gave an answer that cannot be read: reload the page.'));
  }

  /** What a status code other than 2xx means; the server's own words where it has some. */
  export function refusal(response: Response, text: string): StatusError {
    const body = parse(text);
    const said = isRecord(body) && typeof body.message === 'string' ? body.message : '';
    if (response.status === 404) {
      return new StatusError('not-installed', said);
    }
    const message = said || `${response.status} ${response.statusText}`;
    if (response.status === 429) {
      return new StatusError('too-many', message);
    }
    const forbidden = response.status === 401 || response.status === 403;
    return new StatusError(forbidden ? 'forbidden' : 'server', message);
  }

  export function isRecord(value: unknown): value is Record<string, unknown> {
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  }
}
