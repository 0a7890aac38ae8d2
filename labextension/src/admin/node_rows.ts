// The rows of the list of nodes: health with the cordon, and what an administrator may do. Pure.

import { formatTime } from '../base/quantities';
import { ICordon, IDevice, IHolders, ITranslation } from '../tokens';

export type CordonAct = 'cordon' | 'drain' | 'uncordon';
export type NodeAct = CordonAct | 'moves';

export interface INodeRow {
  /** Empty before an agent told it. */
  readonly name: string;
  readonly driver: string | null;
  readonly health: string;
  readonly cordon: ICordon | null;
  readonly devices: readonly IDevice[];
}

export function nodeRows({ node, nodes, devices }: IHolders, now: Date, trans: ITranslation): INodeRow[] {
  const here = node.agent === 'ok' ? (node.message ?? trans.__('healthy')) : (node.message ?? trans.__('no agent answers'));
  const isKnown = node.name !== '' || devices.length > 0 || nodes.length === 0;
  const own = isKnown ? [{ ...node, health: withCordon(here, node.cordon, now, trans), devices }] : [];
  const others = nodes.map(one => {
    const health = one.message ?? (one.state === 'connected' ? trans.__('healthy') : trans.__('not connected'));
    return { ...one, health: withCordon(health, one.cordon, now, trans) };
  });
  return [...own, ...others];
}

/** A drained node has no Cordon: that would let its kernels return. Kernels move between two GPUs or more. */
export function nodeActs({ name, cordon, devices }: Pick<INodeRow, 'name' | 'cordon' | 'devices'>): readonly NodeAct[] {
  if (name === '') {
    return [];
  }
  if (cordon === null) {
    return devices.length > 1 ? ['moves', 'cordon', 'drain'] : ['cordon', 'drain'];
  }
  return cordon.draining ? ['uncordon'] : ['drain', 'uncordon'];
}

function withCordon(health: string, cordon: ICordon | null, now: Date, trans: ITranslation): string {
  if (cordon === null) {
    return health;
  }
  const since = formatTime(cordon.since, now);
  const told = cordon.draining ? trans.__('drained since %1', since) : trans.__('cordoned since %1', since);
  return cordon.reason === null ? `${health}; ${told}` : `${health}; ${told}: ${cordon.reason}`;
}
