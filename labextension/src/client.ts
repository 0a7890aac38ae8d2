// The only door to the server: asks it, and turns every failure into a StatusError. Keeps nothing.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import { IStatus, IStatusSource, StatusError } from './tokens';

/** An unanswered request is given up after this long, so that a hung server shows as one. */
const PATIENCE_MS = 15000;

/** Reads /aliquot/api/status with the credentials that Lab itself uses. */
export class StatusClient implements IStatusSource {
  constructor(private readonly _settings: ServerConnection.ISettings) {}

  async fetch(): Promise<IStatus> {
    const response = await this._ask(URLExt.join('aliquot', 'api', 'status'), 'GET');
    return Private.parse(await Private.json(response));
  }

  async keep(kernelId: string): Promise<void> {
    await this._ask(URLExt.join('aliquot', 'api', 'kernels', encodeURIComponent(kernelId), 'keep'), 'POST');
  }

  /** The answer, if it is one; a StatusError otherwise. */
  private async _ask(path: string, method: string): Promise<Response> {
    const url = URLExt.join(this._settings.baseUrl, path);
    const deadline = new AbortController();
    const timer = setTimeout(() => deadline.abort(), PATIENCE_MS);
    try {
      const response = await this._request(url, { method, signal: deadline.signal });
      if (!response.ok) {
        throw await Private.refusal(response);
      }
      return response;
    } finally {
      clearTimeout(timer);
    }
  }

  private async _request(url: string, request: RequestInit): Promise<Response> {
    try {
      return await ServerConnection.makeRequest(url, request, this._settings);
    } catch (error) {
      throw new StatusError('unreachable', error instanceof Error ? error.message : String(error));
    }
  }
}

namespace Private {
  export async function json(response: Response): Promise<unknown> {
    try {
      return await response.json();
    } catch {
      return undefined;
    }
  }

  /** What a status code other than 2xx means; the server's own words where it has some. */
  export async function refusal(response: Response): Promise<StatusError> {
    if (response.status === 404) {
      return new StatusError('not-installed', '');
    }
    const body = await json(response);
    const said = isRecord(body) && typeof body.message === 'string' ? body.message : '';
    const message = said || `${response.status} ${response.statusText}`;
    const forbidden = response.status === 401 || response.status === 403;
    return new StatusError(forbidden ? 'forbidden' : 'server', message);
  }

  /** Refuses what is not shaped like a status: an older or newer server must not break the panel. */
  export function parse(body: unknown): IStatus {
    const holds =
      isRecord(body) &&
      isRecord(body.user) &&
      isRecord(body.node) &&
      isRecord(body.queue) &&
      isListOfRecords(body.devices) &&
      isListOfRecords(body.kernels) &&
      body.kernels.every(kernel => isListOfRecords(kernel.devices));
    if (!holds) {
      throw new StatusError(
        'server',
        'The answer of /aliquot/api/status has an unknown form: the server and this extension differ in version.'
      );
    }
    return body as unknown as IStatus;
  }

  function isRecord(value: unknown): value is Record<string, unknown> {
    return typeof value === 'object' && value !== null && !Array.isArray(value);
  }

  function isListOfRecords(value: unknown): value is Record<string, unknown>[] {
    return Array.isArray(value) && value.every(isRecord);
  }
}
