// The administrator's view: five tabs over the same reports, and the dialog of one kernel or node.
// It knows neither Lab nor the gateway's page, which both show it.

import * as React from 'react';

import { AdminModel, IAdminState } from '../../admin/admin_model';
import { INodeRow, NodeAct } from '../../admin/node_rows';
import { IHolderKernel, ITranslation } from '../../tokens';
import { IOutcome } from './action_dialog';
import { IdleList } from './idle_list';
import { KernelDialog } from './kernel_dialog';
import { KernelList } from './kernel_list';
import { MovesDialog } from './moves_dialog';
import { NodeDialog } from './node_dialog';
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
  const [chosen, setChosen] = React.useState<Chosen | null>(null);
  const [outcome, setOutcome] = React.useState<IOutcome | null>(null);
  const choose = (next: Chosen): void => {
    setChosen(next);
    setOutcome(null);
  };
  // An outcome closes its own dialog alone: another may be open by then.
  const closerOf = (closed: Chosen) => (result: IOutcome | null): void => {
    setChosen(current => (current === closed ? null : current));
    setOutcome(before => result ?? before);
    void model.refresh();
  };
  return (
    <>
      <Problem state={state} trans={trans} />
      <p className="aliquot-Admin-done" role="status">
        {outcome !== null && !outcome.isFailure && outcome.text}
      </p>
      {outcome?.isFailure && (
        <p className="aliquot-Admin-note" role="alert">
          {outcome.text}
        </p>
      )}
      <Tabs label={trans.__('GPU administration')} tabs={tabs(state, trans, choose)} />
      {chosen !== null && dialog(chosen, model, trans, closerOf(chosen))}
    </>
  );
}

/** The subject of a dialog. Each choice is an object of its own. */
type Chosen = { readonly kernel: IHolderKernel } | { readonly node: INodeRow; readonly act: NodeAct };

function dialog(
  chosen: Chosen,
  { source, state }: AdminModel,
  trans: ITranslation,
  onClose: (outcome: IOutcome | null) => void
): JSX.Element {
  if ('node' in chosen) {
    const { node, act } = chosen;
    return act === 'moves' ? (
      <MovesDialog {...{ node, source, trans, onClose }} />
    ) : (
      <NodeDialog {...{ node, act, source, trans, onClose }} />
    );
  }
  const { id } = chosen.kernel;
  const kernel = state.holders?.kernels.find(one => one.id === id) ?? chosen.kernel;
  return <KernelDialog key={id} {...{ kernel, source, trans, onClose }} />;
}

function tabs(state: IAdminState, trans: ITranslation, choose: (chosen: Chosen) => void): readonly ITab[] {
  const onChoose = (kernel: IHolderKernel): void => choose({ kernel });
  const onAct = (node: INodeRow, act: NodeAct): void => choose({ node, act });
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
          ['nodes', trans.__('Nodes and GPUs'), () => <Nodes {...{ holders, trans, onAct }} />]
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
