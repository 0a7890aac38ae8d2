// Checks the shape of a status answer, so that an older or newer server does not break the widgets.
// Pure.

import { IStatus, ITranslation, StatusError } from '../tokens';

/** Return the answer as a status. Throws a StatusError if it is none. */
export function readStatus(text: string, trans: ITranslation): IStatus {
  const body = parse(text);
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
      trans.__('The answer of /aliquot/api/v1/status has an unknown form: the server and this extension differ in version.')
    );
  }
  return body as unknown as IStatus;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isListOfRecords(value: unknown): value is Record<string, unknown>[] {
  return Array.isArray(value) && value.every(isRecord);
}
