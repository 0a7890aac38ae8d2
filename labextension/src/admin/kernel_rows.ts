// The rows of the list of kernels: filtered by a text, and in the order that the reader chose. Pure.

import { IHolderKernel } from '../tokens';

export type Column = 'label' | 'owner' | 'gpus' | 'state' | 'used' | 'memory' | 'cpus' | 'ram' | 'idle';

export interface IOrder {
  readonly column: Column;
  readonly isDescending: boolean;
}

/** The first choice of a column with numbers shows the largest first. */
export function nextOrder(order: IOrder, column: Column): IOrder {
  const isText = column === 'label' || column === 'owner' || column === 'state';
  return order.column === column ? { column, isDescending: !order.isDescending } : { column, isDescending: !isText };
}

/** Kernels whose name, owner, team, state or id has the text, in that order; equal ones by id. */
export function rowsOf(kernels: readonly IHolderKernel[], text: string, order: IOrder): IHolderKernel[] {
  const wanted = text.trim().toLowerCase();
  const found = wanted === '' ? [...kernels] : kernels.filter(kernel => has(kernel, wanted));
  const key = KEYS[order.column];
  const sign = order.isDescending ? -1 : 1;
  return found.sort((a, b) => sign * compare(key(a), key(b)) || compare(a.id, b.id));
}

type Key = string | number | null;

const KEYS: Readonly<Record<Column, (kernel: IHolderKernel) => Key>> = {
  label: kernel => kernel.label || `${kernel.name} ${kernel.id}`,
  owner: kernel => kernel.owner,
  gpus: kernel => kernel.gpus,
  state: kernel => kernel.state,
  used: kernel => kernel.gpus_used,
  memory: kernel => kernel.used_bytes,
  cpus: kernel => kernel.host?.cpus ?? null,
  ram: kernel => kernel.host?.memory_bytes ?? null,
  idle: kernel => kernel.idle_seconds
};

function has({ id, label, name, owner, team, state }: IHolderKernel, wanted: string): boolean {
  return [id, label, name, owner, team ?? '', state].some(text => text.toLowerCase().includes(wanted));
}

/** Unknown values are below all others. */
function compare(a: Key, b: Key): number {
  if (a === b) {
    return 0;
  }
  if (a === null || b === null) {
    return a === null ? -1 : 1;
  }
  return a < b ? -1 : 1;
}
