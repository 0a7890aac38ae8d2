// The requests of the gateway's own page of administrators, with the page's login. No Lab here.

import { IAdminSource } from '../admin/admin_source';
import { IHolders, IMovePlan, INodeSchedule, IQueue, IQuota, ISizeRequest } from '../tokens';

export class FetchSource implements IAdminSource {
  /** `_base` is the server's base URL, `_xsrf` the token that the server wrote into the page. */
  constructor(
    private readonly _base: string,
    private readonly _xsrf: string
  ) {}

  holders(): Promise<IHolders> {
    return this._get('aliquot/api/v1/holders');
  }

  queue(): Promise<IQueue> {
    return this._get('aliquot/api/v1/queue');
  }

  quota(): Promise<IQuota> {
    return this._get('aliquot/api/v1/quota');
  }

  swapOut(kernelId: string): Promise<unknown> {
    return this._ask('POST', `${kernelPath(kernelId)}/swap-out`, {});
  }

  restore(kernelId: string): Promise<unknown> {
    return this._ask('POST', `${kernelPath(kernelId)}/restore`, {});
  }

  resize(kernelId: string, request: Partial<ISizeRequest>): Promise<unknown> {
    return this._ask('PATCH', kernelPath(kernelId), request);
  }

  async end(kernelId: string): Promise<void> {
    await this._ask('DELETE', `api/kernels/${encodeURIComponent(kernelId)}`);
  }

  async message(kernelId: string, text: string): Promise<void> {
    await this._ask('POST', `${kernelPath(kernelId)}/message`, { text });
  }

  cordon(node: string, reason: string): Promise<INodeSchedule> {
    return this._actOnNode(node, 'cordon', reason);
  }

  drain(node: string, reason: string): Promise<INodeSchedule> {
    return this._actOnNode(node, 'drain', reason);
  }

  uncordon(node: string): Promise<INodeSchedule> {
    return this._actOnNode(node, 'uncordon', '');
  }

  moves(size: string, node: string): Promise<IMovePlan> {
    return this._get(`aliquot/api/v1/moves?${String(new URLSearchParams({ size, node }))}`);
  }

  async runMoves(digest: string, size: string, node: string): Promise<IMovePlan> {
    return JSON.parse(await this._ask('POST', 'aliquot/api/v1/moves', { digest, size, node })) as IMovePlan;
  }

  private async _actOnNode(node: string, verb: string, reason: string): Promise<INodeSchedule> {
    const path = `aliquot/api/v1/nodes/${encodeURIComponent(node)}/${verb}`;
    return JSON.parse(await this._ask('POST', path, reason === '' ? {} : { reason })) as INodeSchedule;
  }

  private async _get<T>(path: string): Promise<T> {
    return JSON.parse(await this._ask('GET', path)) as T;
  }

  private async _ask(method: string, path: string, body?: unknown): Promise<string> {
    const headers: Record<string, string> = { 'X-XSRFToken': this._xsrf };
    if (body !== undefined) {
      headers['Content-Type'] = 'application/json';
    }
    const more = body === undefined ? {} : { body: JSON.stringify(body) };
    const answer = await fetch(this._base + path, { method, headers, credentials: 'same-origin', ...more });
    const text = await answer.text();
    if (!answer.ok) {
      throw new Error(words(text) || `${answer.status} ${answer.statusText}`);
    }
    return text;
  }
}

function kernelPath(kernelId: string): string {
  return `aliquot/api/v1/kernels/${encodeURIComponent(kernelId)}`;
}

/** The server's message in an answer; empty if it has none. */
function words(text: string): string {
  try {
    const found = JSON.parse(text) as { message?: unknown };
    return typeof found.message === 'string' ? found.message : '';
  } catch {
    return '';
  }
}
