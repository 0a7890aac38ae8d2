// Users and teams: quota, what they hold, what they use of it, and the idle part.

import * as React from 'react';

import { ITeamUse, usesOf } from '../../admin/users';
import { formatBytes, formatShare } from '../../base/quantities';
import { IHolders, IQuota, ITeamQuota, ITranslation } from '../../tokens';
import { amountText, bytesText, shareText, UNKNOWN } from './admin_words';
import { Table } from '../elements/table';

export function Users({ holders, trans }: { holders: IHolders; trans: ITranslation }): JSX.Element {
  return (
    <>
      <h2>{trans.__('Users')}</h2>
      <Table
        label={trans.__('Users')}
        empty={trans.__('No user has a GPU kernel.')}
        columns={[
          { title: trans.__('User'), isText: true },
          { title: trans.__('Team'), isText: true },
          { title: trans.__('Kernels') },
          { title: trans.__('GPUs held') },
          { title: trans.__('GPU limit') },
          { title: trans.__('GPUs used') },
          { title: trans.__('Idle') },
          { title: trans.__('GPUs queued') },
          { title: trans.__('GPU memory') },
          { title: trans.__('CPUs') },
          { title: trans.__('RAM') }
        ]}
        rows={holders.users.map(user => ({
          key: user.name,
          cells: [
            user.name,
            user.teams.join(', ') || UNKNOWN,
            user.kernels,
            formatShare(user.gpus),
            user.gpu_limit === null ? trans.__('none') : formatShare(user.gpu_limit),
            amountText(user.gpus_used),
            shareText(user.idle_share),
            formatShare(user.queued_gpus),
            formatBytes(user.used_bytes),
            amountText(user.cpus),
            bytesText(user.host_memory_bytes)
          ]
        }))}
      />
    </>
  );
}

interface ITeamsProps {
  quota: IQuota;
  holders: IHolders;
  trans: ITranslation;
}

export function Teams({ quota, holders, trans }: ITeamsProps): JSX.Element {
  const uses = React.useMemo(() => usesOf(holders.kernels), [holders]);
  const remembers = quota.usage_half_life_seconds !== null;
  return (
    <>
      <h2>{trans.__('Teams')}</h2>
      {quota.problem && (
        <p className="aliquot-Admin-note" role="alert">
          {`${trans.__('The last good quota file is in force, for the present one has errors:')}\n${quota.problem}`}
        </p>
      )}
      <Table
        label={trans.__('Teams')}
        empty={trans.__('This gateway has no quota file.')}
        columns={[
          { title: trans.__('Team'), isText: true },
          { title: trans.__('GPU model'), isText: true },
          { title: trans.__('GPU quota') },
          { title: trans.__('GPUs held') },
          { title: trans.__('GPUs borrowed') },
          { title: trans.__('GPUs used') },
          { title: trans.__('Idle') },
          { title: trans.__('Queued') },
          { title: trans.__('Evicted') },
          ...(remembers ? [{ title: trans.__('Past use beyond quota') }] : [])
        ]}
        rows={quota.teams.flatMap(team => teamRows(team, uses.get(team.name), remembers, trans))}
      />
    </>
  );
}

/** One row for each GPU model; figures of the whole team stand in the first. */
function teamRows(
  team: ITeamQuota,
  use: ITeamUse | undefined,
  remembers: boolean,
  trans: ITranslation
): { key: string; cells: React.ReactNode[] }[] {
  return team.gpus.map((gpus, place) => ({
    key: `${team.name} ${gpus.model ?? ''}`,
    cells: [
      place === 0 ? team.name : '',
      gpus.model ?? trans.__('all'),
      formatShare(gpus.nominal_gpus),
      formatShare(gpus.held_gpus),
      formatShare(gpus.borrowed_gpus),
      ...(place === 0
        ? [amountText(use?.gpusUsed ?? null), shareText(use?.idleShare ?? null), team.queued, team.evicted]
        : ['', '', '', '']),
      ...(remembers ? [place === 0 ? shareText(team.past_use) : ''] : [])
    ]
  }));
}
