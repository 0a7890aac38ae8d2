// The requests of the page of GPU-hours, and the months that it offers. No DOM.

import { IUsageReport } from '../tokens';

/** The names that rows of the report can be by; the first is the choice of a page that opens. */
export const KINDS = ['user', 'team', 'size', 'model', 'day'] as const;
export type Kind = (typeof KINDS)[number];

/** Each request rejects with an Error whose message is the server's, or says why none came. */
export interface IUsageSource {
  usage(month: string, by: Kind): Promise<IUsageReport>;
  usageCsv(month: string, by: Kind): Promise<string>;
}

/** The month of a moment as the report names it, such as `2026-11`. */
export function monthOf(moment: Date): string {
  return moment.toISOString().slice(0, 7);
}
