// Sums over the kernels of a team, for the list of teams. Pure.

import { IHolderKernel } from '../tokens';

/** The use of GPUs by a team's kernels, and the part that idle kernels hold. */
export interface ITeamUse {
  readonly gpusUsed: number | null;
  readonly idleShare: number | null;
}

const HOLDING: readonly string[] = ['starting', 'on_gpu', 'restoring', 'swapped_out', 'checkpointed'];

/** Return the use by team; a team without a kernel is not in it. */
export function usesOf(kernels: readonly IHolderKernel[]): ReadonlyMap<string, ITeamUse> {
  const sums = new Map<string, { used: number | null; held: number; idle: number }>();
  for (const { team, state, gpus, gpus_used, idle_seconds } of kernels) {
    if (team !== null) {
      const sum = sums.get(team) ?? { used: null, held: 0, idle: 0 };
      sums.set(team, sum);
      sum.used = gpus_used === null ? sum.used : (sum.used ?? 0) + gpus_used;
      sum.held += HOLDING.includes(state) ? gpus : 0;
      sum.idle += HOLDING.includes(state) && idle_seconds !== null ? gpus : 0;
    }
  }
  const uses = [...sums].map(([team, { used, held, idle }]): [string, ITeamUse] => [
    team,
    { gpusUsed: used, idleShare: held > 0 ? idle / held : null }
  ]);
  return new Map(uses);
}
