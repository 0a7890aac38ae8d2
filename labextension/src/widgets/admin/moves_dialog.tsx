// A plan of moves between the GPUs of a node: shown first, and run on confirmation.

import * as React from 'react';

import { IAdminSource } from '../../admin/admin_source';
import { INodeRow } from '../../admin/node_rows';
import { formatBytes, formatShare } from '../../base/quantities';
import { IMovePlan, IMoveRun, ITranslation } from '../../tokens';
import { ActionDialog, Confirmation, failureText, IOutcome } from './action_dialog';
import { Table } from '../elements/table';

interface IMovesDialogProps {
  node: INodeRow;
  source: IAdminSource;
  trans: ITranslation;
  onClose: (outcome: IOutcome | null) => void;
}

interface IShown {
  readonly size: string;
  readonly plan: IMovePlan;
}

/** The last run of a plan on any node; null: none is known. */
function useRun(source: IAdminSource, node: string): IMoveRun | null {
  const [run, setRun] = React.useState<IMoveRun | null>(null);
  React.useEffect(() => {
    let isShown = true;
    // Without an answer the dialog does without: what the user asks for tells the failure.
    source.moves('', node).then(
      plan => isShown && setRun(plan.run),
      () => undefined
    );
    return () => {
      isShown = false;
    };
  }, [source, node]);
  return run;
}

/** Without a size the plan is for the first request that waits. Each size that is typed is planned anew. */
export function MovesDialog({ node, source, trans, onClose }: IMovesDialogProps): JSX.Element {
  const [size, setSize] = React.useState('');
  const [shown, setShown] = React.useState<IShown | null>(null);
  const [isBusy, setBusy] = React.useState(false);
  const known = useRun(source, node.name);
  const run = shown?.plan.run ?? known;
  const send = async (): Promise<string | null> => {
    const digest = shown?.size === size ? shown.plan.digest : null;
    if (digest !== null) {
      setShown(null); // a plan that is refused is stale: it has to be shown anew
      const begun = (await source.runMoves(digest, size, node.name)).run;
      return trans.__('Moves on %1 have begun by the plan %2: %3.', node.name, digest, String(begun?.moves.length ?? 0));
    }
    setShown({ size, plan: await source.moves(size, node.name) });
    return null;
  };
  const isPlanned = shown !== null && shown.size === size && shown.plan.digest !== null;
  return (
    <ActionDialog title={node.name} isBusy={isBusy} onClose={() => onClose(null)}>
      {close => (
        <Confirmation
          act="moves"
          {...{ isBusy, setBusy, send }}
          question={trans.__('Move idle kernels between the GPUs of this node until a size fits? Their memory stays.')}
          confirm={isPlanned ? trans.__('Move') : trans.__('Show the plan')}
          back={trans.__('Cancel')}
          fields={
            <div className="aliquot-Admin-fields">
              <label>
                {trans.__('Size')}
                <input
                  type="text"
                  autoFocus
                  placeholder={trans.__('that of the first request that waits')}
                  value={size}
                  onChange={event => setSize(event.target.value.trim())}
                />
              </label>
              {run !== null && <p>{runText(run, trans)}</p>}
              {shown !== null && shown.size === size && <Plan plan={shown.plan} trans={trans} />}
            </div>
          }
          failedText={message => failureText(node.name, message, trans)}
          onBack={close}
          onOutcome={onClose}
        />
      )}
    </ActionDialog>
  );
}

function nameOf(kernel: { readonly kernel_id: string; readonly label: string }): string {
  return kernel.label || kernel.kernel_id.slice(0, 8);
}

/** How a run goes, or how it ended. An older gateway gives a run no name and no reason. */
function runText(run: IMoveRun, trans: ITranslation): string {
  const { digest, reason }: Partial<IMoveRun> = run;
  const all = String(run.moves.length);
  const done = trans.__('%1 of %2 moves are done', String(run.moves.filter(move => move.outcome === 'done').length), all);
  if (run.state === 'running') {
    return digest == null
      ? trans.__('A plan runs on %1, begun by %2: %3.', run.node, run.by, done)
      : trans.__('The plan %1 runs on %2, begun by %3: %4.', digest, run.node, run.by, done);
  }
  const plan =
    digest == null
      ? trans.__('The last plan, on %1 by %2', run.node, run.by)
      : trans.__('The last plan, %1 on %2 by %3', digest, run.node, run.by);
  const failed = run.moves.find(move => move.outcome === 'failed');
  const why = failed?.reason ?? reason ?? '';
  if (failed === undefined && reason == null) {
    return trans.__('%1, ran to its end: %2 moves.', plan, all);
  }
  return trans.__('%1, ended early, %2: %3.', plan, done, failed === undefined ? why : `${nameOf(failed)}: ${why}`);
}

function Plan({ plan, trans }: { plan: IMovePlan; trans: ITranslation }): JSX.Element {
  const free = plan.gpus.map(gpu => {
    const [now, then] = [gpu.free_gpus, gpu.free_gpus_after].map(formatShare);
    return `gpu${gpu.index}: ${now} → ${then}`;
  });
  return (
    <>
      <Table
        label={trans.__('Moves')}
        empty={plan.reason ?? trans.__('The size fits now: nothing to move.')}
        columns={[
          { title: trans.__('Notebook'), isText: true },
          { title: trans.__('Owner'), isText: true },
          { title: trans.__('From'), isText: true },
          { title: trans.__('To'), isText: true },
          { title: trans.__('Memory') }
        ]}
        rows={plan.moves.map(move => ({
          key: move.kernel_id,
          cells: [
            nameOf(move),
            move.owner,
            `gpu${move.source_index}`,
            `gpu${move.target_index}`,
            formatBytes(move.memory_bytes)
          ]
        }))}
      />
      {plan.moves.length > 0 && <p>{trans.__('Free GPUs: %1', free.join(', '))}</p>}
      {plan.stays.map(kernel => (
        <p key={kernel.kernel_id}>{trans.__('%1 stays: %2', nameOf(kernel), kernel.reason)}</p>
      ))}
    </>
  );
}
