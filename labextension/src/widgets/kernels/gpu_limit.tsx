// GPU limits of the user and their teams: the held part and the rest. Renders nothing without a
// limit.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatShare } from '../../base/quantities';
import { ITeamGpuLimit, IUserGpuLimit } from '../../tokens';
import { PartsBar } from '../elements/bar';

export function GpuLimitLine({ limit, trans }: { limit: IUserGpuLimit | null; trans: TranslationBundle }): JSX.Element | null {
  if (limit === null) {
    return null;
  }
  const teams = limit.teams ?? []; // an older gateway has none
  return (
    <>
      <Limit label={trans.__('Your GPU limit')} limit={limit} trans={trans} />
      {teams.map(team => (
        <Limit key={team.name} label={trans.__('Team %1', team.name)} limit={team} trans={trans} />
      ))}
    </>
  );
}

interface ILimitProps {
  label: string;
  limit: Pick<ITeamGpuLimit, 'held_gpus' | 'queued_gpus'> & { readonly gpus: number | null; readonly left_gpus: number | null };
  trans: TranslationBundle;
}

function Limit({ label, limit, trans }: ILimitProps): JSX.Element | null {
  if (limit.gpus === null) {
    return null;
  }
  const left = limit.left_gpus ?? Math.max(0, limit.gpus - limit.held_gpus);
  const held = [label, formatShare(limit.held_gpus), formatShare(limit.gpus), formatShare(left)];
  const text =
    limit.queued_gpus > 0
      ? trans.__('%1: %2 of %3 GPU held, %4 left, %5 waiting', ...held, formatShare(limit.queued_gpus))
      : trans.__('%1: %2 of %3 GPU held, %4 left', ...held);
  return (
    <div className="aliquot-Quota">
      <p className="aliquot-Item-line">{text}</p>
      <PartsBar
        label={label}
        text={text}
        value={limit.held_gpus}
        whole={limit.gpus}
        parts={[{ kind: left > 0 ? 'mine' : 'tight', amount: limit.held_gpus }]}
        isThin
      />
    </div>
  );
}
