// The only module that makes requests. It turns every failure into a StatusError and keeps no
// state.

import { URLExt } from '@jupyterlab/coreutils';
import { KernelAPI, ServerConnection } from '@jupyterlab/services';

import {
  IHistory,
  IHostDraft,
  IHolders,
  IInvitations,
  IInvitationWish,
  IKernel,
  IDryRun,
  IMovePlan,
  INodeSchedule,
  IQueue,
  IQuota,
  IRunningCell,
  IRunningCells,
  ISessionOptions,
  IShare,
  ISizes,
  IStatusSource,
  IUsageReport,
  ITranslation,
  ISizeRequest,
  StatusError
} from '../tokens';

/** The timeout of a request without an answer, so that a hung server shows as an error. */
const PATIENCE_MS = 15000;
/**
 * The timeout of an answer's body, which may be long on a slow link, or never end after a sleep.
 */
const BODY_PATIENCE_MS = 60000;

/**
 * Every request under /aliquot/api/v1, with the credentials that Lab itself uses. Each rejects with
 * a StatusError.
 */
export class AliquotClient implements IStatusSource {
  /** `_trans` names failures for which the server has no message. */
  constructor(
    readonly settings: ServerConnection.ISettings,
    private readonly _trans: ITranslation
  ) {}

  /** The status as text, so that a caller can skip an answer equal to the last one. */
  fetchText(): Promise<string> {
    return this._ask('GET', ['status']);
  }

  /** The offered sizes, and the grammar of all others. */
  async sizes(): Promise<ISizes> {
    const found = await this._json('GET', ['sizes']);
    if (!Private.isRecord(found) || !Array.isArray(found.sizes)) {
      throw Private.unreadable(this._trans);
    }
    return found as unknown as ISizes;
  }

  /**
   * Dry run of a size: for a new kernel or, with a kernel's id, for that running one.
   * `replacedId` names the kernel that ends when the new one starts.
   */
  async dryRun(request: ISizeRequest, kernelId?: string, replacedId?: string): Promise<IDryRun> {
    const query = new URLSearchParams({ gpus: String(request.gpus) });
    if (request.memory !== undefined) {
      query.set('memory', String(request.memory));
    }
    if (request.priority !== undefined) {
      query.set('priority', request.priority);
    }
    if (kernelId !== undefined) {
      query.set('kernel', kernelId);
    } else if (replacedId !== undefined) {
      query.set('replaces', replacedId);
    }
    return (await this._json('GET', ['dry-run'], undefined, `?${query}`)) as IDryRun;
  }

  /**
   * Dry runs of several sizes, each on its own and named like `gpu-0.25`, in the order of the
   * request.
   */
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

  /** Return the choices beside the size that a kernelspec's name has, and the name of a choice. */
  async sessionOptions(kernelspec: string, chosen: IHostDraft): Promise<ISessionOptions> {
    const query = new URLSearchParams({ kernelspec });
    if (chosen.cpus !== null) {
      query.set('cpus', String(chosen.cpus));
    }
    if (chosen.ramGib !== null) {
      query.set('ram', `${chosen.ramGib}GiB`);
    }
    if (chosen.folders !== null) {
      query.set('folders', chosen.folders.join(',') || 'none');
    }
    return (await this._json('GET', ['session-options'], undefined, `?${query}`)) as ISessionOptions;
  }

  /**
   * Change the size or priority of a running kernel. The answer's `resize` is set if the change is
   * queued.
   */
  async resize(kernelId: string, request: Partial<ISizeRequest>): Promise<IKernel> {
    return (await this._json('PATCH', ['kernels', kernelId], request)) as IKernel;
  }

  /** Withdraw a queued change of size. */
  async withdrawResize(kernelId: string): Promise<void> {
    await this._ask('DELETE', ['kernels', kernelId, 'resize']);
  }

  /** Swap the kernel's memory out now. */
  async swapOut(kernelId: string): Promise<IKernel> {
    return (await this._json('POST', ['kernels', kernelId, 'swap-out'])) as IKernel;
  }

  /** Restore the kernel's memory as soon as there is capacity. */
  async restore(kernelId: string): Promise<IKernel> {
    return (await this._json('POST', ['kernels', kernelId, 'restore'])) as IKernel;
  }

  /**
   * Announce that the kernel will be used soon. Best effort; the gateway accepts one request a
   * second.
   */
  async prefetch(kernelId: string): Promise<void> {
    await this._ask('POST', ['kernels', kernelId, 'prefetch']);
  }

  /** A kernel that would be ended for its idle time is to stay; its idle time begins anew. */
  async postponeCulling(kernelId: string): Promise<void> {
    await this._ask('POST', ['kernels', kernelId, 'postpone-culling']);
  }

  /** The shares of a kernel. */
  async shares(kernelId: string): Promise<readonly IShare[]> {
    const found = await this._json('GET', ['kernels', kernelId, 'shares']);
    if (!Private.isRecord(found) || !Array.isArray(found.shares)) {
      throw Private.unreadable(this._trans);
    }
    return found.shares as readonly IShare[];
  }

  /** Share a kernel with a user or team, or change their access. */
  async share(kernelId: string, { kind, name, access }: IShare): Promise<void> {
    await this._ask('PUT', ['kernels', kernelId, 'shares', `${kind}s`, name], { access });
  }

  /** Remove a share; the connections of its user or team close. */
  async unshare(kernelId: string, { kind, name }: IShare): Promise<void> {
    await this._ask('DELETE', ['kernels', kernelId, 'shares', `${kind}s`, name]);
  }

  /** All kernels that the user may see, live and ended. */
  async kernels(): Promise<readonly IKernel[]> {
    const found = await this._json('GET', ['kernels']);
    if (!Private.isRecord(found) || !Array.isArray(found.kernels)) {
      throw Private.unreadable(this._trans);
    }
    return found.kernels as readonly IKernel[];
  }

  /** The current report of one kernel. */
  async kernel(kernelId: string): Promise<IKernel> {
    return (await this._json('GET', ['kernels', kernelId])) as IKernel;
  }

  /** Running and recently ended cells of a kernel, with their outputs. */
  async runningCells(kernelId: string): Promise<IRunningCells> {
    return (await this._json('GET', ['kernels', kernelId, 'outputs'])) as IRunningCells;
  }

  /** Running and recently ended cells of a kernel, without their outputs. */
  async openCells(kernelId: string): Promise<readonly IRunningCell[]> {
    return ((await this._json('GET', ['kernels', kernelId, 'outputs'], undefined, '?messages=no')) as IRunningCells).cells;
  }

  /**
   * Return the requests of a page that the kernel did not get and will not get; null if this is
   * not known now.
   */
  async notReceived(
    kernelId: string,
    session: string,
    msgIds: readonly string[]
  ): Promise<readonly string[] | null> {
    const sent = msgIds.map(msgId => `&sent=${encodeURIComponent(msgId)}`).join('');
    const query = `?messages=no&session=${encodeURIComponent(session)}${sent}`;
    return ((await this._json('GET', ['kernels', kernelId, 'outputs'], undefined, query)) as IRunningCells).not_received;
  }

  /** The history of all kernels that the user may see, or of the given devices only. */
  async history(range: IHistory['range'], devices: readonly string[] = []): Promise<IHistory> {
    const named = devices.map(uuid => `&device=${encodeURIComponent(uuid)}`).join('');
    return (await this._json('GET', ['history'], undefined, `?range=${range}&format=json${named}`)) as IHistory;
  }

  /** The history as CSV. */
  async historyCsv(range: IHistory['range']): Promise<string> {
    return this._ask('GET', ['history'], undefined, `?range=${range}&format=csv`);
  }

  /** The kernels and users that hold GPUs, and their use. For administrators. */
  async holders(): Promise<IHolders> {
    return (await this._json('GET', ['holders'])) as IHolders;
  }

  /** The requests that wait. */
  async queue(): Promise<IQueue> {
    return (await this._json('GET', ['queue'])) as IQueue;
  }

  /** The teams' quotas. */
  async quota(): Promise<IQuota> {
    return (await this._json('GET', ['quota'])) as IQuota;
  }

  /** GPU-hours of a month: the user's own, for administrators all. */
  async usage(month: string, by: string): Promise<IUsageReport> {
    return (await this._json('GET', ['usage'], undefined, `?month=${month}&by=${by}&format=json`)) as IUsageReport;
  }

  /** The same as CSV. */
  async usageCsv(month: string, by: string): Promise<string> {
    return this._ask('GET', ['usage'], undefined, `?month=${month}&by=${by}&format=csv`);
  }

  /** The folders that the user shares, and those of others that the user is invited to. */
  async invitations(): Promise<IInvitations> {
    const found = await this._json('GET', ['invitations']);
    if (!Private.isRecord(found) || !Array.isArray(found.invitations)) {
      throw Private.unreadable(this._trans);
    }
    return found as unknown as IInvitations;
  }

  /** Invite a user or team to a folder, or change such an invitation. */
  async invite(wish: IInvitationWish): Promise<void> {
    await this._ask('POST', ['invitations'], wish);
  }

  /** End an invitation. */
  async endInvitation(id: string): Promise<void> {
    await this._ask('DELETE', ['invitations', id]);
  }

  /** Accept or decline an invitation. */
  async answerInvitation(id: string, answer: 'accept' | 'decline'): Promise<void> {
    await this._ask('POST', ['invitations', id, answer], {});
  }

  /** Send a kernel's owner a message. For administrators. */
  async message(kernelId: string, text: string): Promise<void> {
    await this._ask('POST', ['kernels', kernelId, 'message'], { text });
  }

  /** End a kernel, also one of another user; its variables are lost. */
  async end(kernelId: string): Promise<void> {
    await KernelAPI.shutdownKernel(kernelId, this.settings);
  }

  /** Let nothing new start on a node; an empty reason is none. For administrators. */
  cordon(node: string, reason: string): Promise<INodeSchedule> {
    return this._actOnNode(node, 'cordon', reason);
  }

  /** Cordon a node, and swap its kernels out. For administrators. */
  drain(node: string, reason: string): Promise<INodeSchedule> {
    return this._actOnNode(node, 'drain', reason);
  }

  /** Let kernels start on a node again. For administrators. */
  uncordon(node: string): Promise<INodeSchedule> {
    return this._actOnNode(node, 'uncordon', '');
  }

  /** The moves after which a size fits on a node. For administrators. */
  async moves(size: string, node: string): Promise<IMovePlan> {
    const query = `?${String(new URLSearchParams({ size, node }))}`;
    return (await this._json('GET', ['moves'], undefined, query)) as IMovePlan;
  }

  /** Run the plan that was shown with this digest. For administrators. */
  async runMoves(digest: string, size: string, node: string): Promise<IMovePlan> {
    return (await this._json('POST', ['moves'], { digest, size, node })) as IMovePlan;
  }

  private async _actOnNode(node: string, verb: string, reason: string): Promise<INodeSchedule> {
    return (await this._json('POST', ['nodes', node, verb], reason === '' ? {} : { reason })) as INodeSchedule;
  }

  private _url(path: readonly string[]): string {
    return URLExt.join(this.settings.baseUrl, 'aliquot', 'api', 'v1', ...path.map(encodeURIComponent));
  }

  private async _json(method: string, path: readonly string[], body?: unknown, query = ''): Promise<unknown> {
    const text = await this._ask(method, path, body, query);
    const found = Private.parse(text);
    if (found === undefined && text !== '') {
      throw Private.unreadable(this._trans); // such as the log-in page of a proxy
    }
    return found;
  }

  /** Read the answer's body. Rejects with a StatusError. */
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
    return new StatusError('server', trans.__('The server sent an answer that cannot be read. Reload the page.'));
  }

  /** The error of a status code other than 2xx, with the server's message if it sent one. */
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
