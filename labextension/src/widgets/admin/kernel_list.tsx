// The kernels of all users with GPU, CPU and RAM: searched by a text, in the order of any column.

import * as React from 'react';

import { Column, IOrder, nextOrder, rowsOf } from '../../admin/kernel_rows';
import { formatBytes } from '../../base/quantities';
import { IHolderKernel, ITranslation } from '../../tokens';
import { amountText, bytesText, idleText, nameText, sizeText, stateText } from './admin_words';
import { WindowedRows } from './windowed_rows';

interface IKernelListProps {
  kernels: readonly IHolderKernel[];
  trans: ITranslation;
  onChoose: (kernel: IHolderKernel) => void;
}

export function KernelList({ kernels, trans, onChoose }: IKernelListProps): JSX.Element {
  const [text, setText] = React.useState('');
  const [order, setOrder] = React.useState<IOrder>({ column: 'idle', isDescending: true });
  const rows = React.useMemo(() => rowsOf(kernels, text, order), [kernels, text, order]);
  return (
    <>
      <div className="aliquot-Admin-controls">
        <label>
          {trans.__('Find')}{' '}
          <input
            type="search"
            value={text}
            placeholder={trans.__('notebook, owner, team, state or id')}
            onChange={event => setText(event.target.value)}
          />
        </label>
        <span role="status">{trans.__('%1 of %2 kernels', String(rows.length), String(kernels.length))}</span>
      </div>
      {rows.length === 0 ? (
        <p className="aliquot-Admin-note">
          {kernels.length === 0 ? trans.__('No kernel holds a GPU or waits for one.') : trans.__('No kernel has this text.')}
        </p>
      ) : (
        <WindowedRows
          label={trans.__('Kernels')}
          header={<Header {...{ order, trans }} onOrder={column => setOrder(nextOrder(order, column))} />}
          rows={rows}
          keyOf={kernel => kernel.id}
          cells={kernel => <Cells kernel={kernel} trans={trans} />}
          onChoose={onChoose}
        />
      )}
    </>
  );
}

/** The columns, and their titles. */
function titles(trans: ITranslation): readonly (readonly [Column, string])[] {
  return [
    ['label', trans.__('Notebook')],
    ['owner', trans.__('Owner')],
    ['gpus', trans.__('GPUs')],
    ['state', trans.__('State')],
    ['used', trans.__('GPUs used')],
    ['memory', trans.__('GPU memory')],
    ['cpus', trans.__('CPUs')],
    ['ram', trans.__('RAM')],
    ['idle', trans.__('Idle for')]
  ];
}

interface IHeaderProps {
  order: IOrder;
  trans: ITranslation;
  onOrder: (column: Column) => void;
}

function Header({ order, trans, onOrder }: IHeaderProps): JSX.Element {
  return (
    <div role="row" aria-rowindex={1} className="aliquot-Grid-row">
      {titles(trans).map(([column, title]) => {
        const isChosen = order.column === column;
        const sort = !isChosen ? 'none' : order.isDescending ? 'descending' : 'ascending';
        return (
          <div key={column} role="columnheader" aria-sort={sort} data-column={column}>
            <button type="button" onClick={() => onOrder(column)}>
              {title}
              <span aria-hidden="true">{isChosen ? (order.isDescending ? ' ↓' : ' ↑') : ''}</span>
            </button>
          </div>
        );
      })}
    </div>
  );
}

const Cells = React.memo(function Cells({ kernel, trans }: { kernel: IHolderKernel; trans: ITranslation }): JSX.Element {
  const texts: readonly (readonly [Column, string])[] = [
    ['label', nameText(kernel)],
    ['owner', kernel.owner],
    ['gpus', sizeText(kernel, trans)],
    ['state', stateText(kernel, trans)],
    ['used', amountText(kernel.gpus_used)],
    ['memory', formatBytes(kernel.used_bytes)],
    ['cpus', amountText(kernel.host?.cpus ?? null)],
    ['ram', bytesText(kernel.host?.memory_bytes ?? null)],
    ['idle', idleText(kernel.idle_seconds)]
  ];
  return (
    <>
      {texts.map(([column, text]) => (
        <div key={column} role="gridcell" data-column={column} title={text}>
          {text}
        </div>
      ))}
    </>
  );
});
