// What an answer must look like to be a status: an older or newer server must not break what shows it. Pure.

import { IStatus, ITranslation, StatusError } from '../tokens';

/** Refuses what is no status, with a StatusError. */
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
