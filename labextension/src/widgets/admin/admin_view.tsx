// The administrator's view: five tabs over the same reports, and the dialog of one kernel. It knows
// neither Lab nor the gateway's page, which both show it.

import * as React from 'react';

import { AdminModel, IAdminState } from '../../admin/admin_model';
import { IHolderKernel, ITranslation } from '../../tokens';
import { IdleList } from './idle_list';
import { KernelDialog } from './kernel_dialog';
import { KernelList } from './kernel_list';
import { Nodes } from './nodes';
import { Teams, Users } from './people';
import { Requests } from './requests';
import { ITab, Tabs } from './tabs';

interface IAdminViewProps {
  model: AdminModel;
  trans: ITranslation;
}

export function AdminView({ model, trans }: IAdminViewProps): JSX.Element {
  const state = React.useSyncExternalStore(model.subscribe, () => model.state);
  const [chosen, setChosen] = React.useState<IHolderKernel | null>(null);
  const [done, setDone] = React.useState('');
  const close = (text: string | null): void => {
    setChosen(null);
    setDone(text ?? '');
    void model.refresh();
  };
  return (
    <>
      <Problem state={state} trans={trans} />
      <p className="aliquot-Admin-done" role="status">
        {done}
      </p>
      <Tabs label={trans.__('GPU administration')} tabs={tabs(state, trans, setChosen)} />
      {chosen !== null && <KernelDialog kernel={chosen} source={model.source} trans={trans} onClose={close} />}
    </>
  );
}

function tabs(state: IAdminState, trans: ITranslation, onChoose: (kernel: IHolderKernel) => void): readonly ITab[] {
  const { holders, queue, quota } = state;
  const waiting = <p className="aliquot-Admin-note">{state.problem === null && trans.__('Reading …')}</p>;
  const made: readonly (readonly [string, string, () => JSX.Element])[] =
    holders === null || queue === null || quota === null
      ? []
      : [
          ['kernels', trans.__('Kernels'), () => <KernelList kernels={holders.kernels} {...{ trans, onChoose }} />],
          ['idle', trans.__('Most Idle'), () => <IdleList {...{ holders, trans, onChoose }} />],
          [
            'people',
            trans.__('Users and Teams'),
            () => (
              <>
                <Users {...{ holders, trans }} />
                <Teams {...{ quota, holders, trans }} />
              </>
            )
          ],
          ['queue', trans.__('Queue (%1)', String(queue.length)), () => <Requests {...{ queue, trans }} />],
          ['nodes', trans.__('Nodes and GPUs'), () => <Nodes {...{ holders, trans }} />]
        ];
  return made.length === 0
    ? [{ id: 'kernels', title: trans.__('Kernels'), render: () => waiting }]
    : made.map(([id, title, render]) => ({ id, title, render }));
}

function Problem({ state, trans }: { state: IAdminState; trans: ITranslation }): JSX.Element | null {
  const { problem, holders } = state;
  if (problem === null) {
    return null;
  }
  return (
    <p className="aliquot-Admin-note" role="alert">
      {holders === null ? trans.__('There is nothing to show: %1', problem) : trans.__('Not up to date: %1', problem)}
    </p>
  );
}
