// Nodes and devices with their health, and the actions on nodes.

import * as React from 'react';

import { INodeRow, NodeAct, nodeActs, nodeRows } from '../../admin/node_rows';
import { formatBytes, formatShare } from '../../base/quantities';
import { IDevice, IHolders, ITranslation } from '../../tokens';
import { amountText, UNKNOWN } from './admin_words';
import { nodeActName, nodeActText } from './node_dialog';
import { Table } from '../elements/table';

interface INodesProps {
  holders: IHolders;
  trans: ITranslation;
  onAct: (node: INodeRow, act: NodeAct) => void;
}

export function Nodes({ holders, trans, onAct }: INodesProps): JSX.Element {
  const nodes = nodeRows(holders, new Date(), trans);
  return (
    <>
      <h2>{trans.__('Nodes')}</h2>
      <Table
        label={trans.__('Nodes')}
        empty={trans.__('No node is known.')}
        columns={[
          { title: trans.__('Node'), isText: true },
          { title: trans.__('Health'), isText: true },
          { title: trans.__('Driver'), isText: true },
          { title: trans.__('GPUs') },
          { title: trans.__('Actions'), isText: true }
        ]}
        rows={nodes.map(node => ({
          key: node.name,
          cells: [
            node.name || UNKNOWN,
            node.health,
            node.driver ?? UNKNOWN,
            node.devices.length,
            <Actions key="act" {...{ node, trans, onAct }} />
          ]
        }))}
      />
      <h2>{trans.__('GPUs')}</h2>
      <Table
        label={trans.__('GPUs')}
        empty={trans.__('No node reports a GPU.')}
        columns={[
          { title: trans.__('GPU'), isText: true },
          { title: trans.__('Node'), isText: true },
          { title: trans.__('Health'), isText: true },
          { title: trans.__('Model'), isText: true },
          { title: trans.__('Reserved') },
          { title: trans.__('Memory used') },
          { title: trans.__('Memory') },
          { title: trans.__('Busy') },
          { title: trans.__('Slowest kernel') },
          { title: trans.__('Temperature') }
        ]}
        rows={bySpeed(nodes).map(({ node, device }) => ({ key: device.uuid, cells: cells(device, node, trans) }))}
      />
    </>
  );
}

function Actions({ node, trans, onAct }: { node: INodeRow } & Omit<INodesProps, 'holders'>): JSX.Element {
  return (
    <div className="aliquot-Admin-rowActions">
      {nodeActs(node).map(act => (
        <button key={act} type="button" aria-label={nodeActName(act, node.name, trans)} onClick={() => onAct(node, act)}>
          {nodeActText(act, trans)}
        </button>
      ))}
    </div>
  );
}

interface IPlaced {
  readonly node: string;
  readonly device: IDevice;
}

/** All devices: first those whose kernels slow each other most, then the others as their nodes tell them. */
function bySpeed(nodes: readonly INodeRow[]): readonly IPlaced[] {
  const found = nodes.flatMap(node => node.devices.map(device => ({ node: node.name, device })));
  const speed = ({ device }: IPlaced): number => device.predicted_speed?.mean ?? Infinity;
  const order = (one: IPlaced, other: IPlaced): number => (speed(one) === speed(other) ? 0 : speed(one) - speed(other));
  return [...found].sort(order);
}

/** How fast the slowest kernel of a device probably is while all of them work, with the error bar. */
function speedText(device: IDevice, trans: ITranslation): string {
  const speed = device.predicted_speed;
  if (!speed) {
    return UNKNOWN;
  }
  const [mean, low, high] = [speed.mean, speed.low, speed.high].map(part => Math.round(100 * part));
  return trans.__('%1 % of its speed alone (%2 to %3 %)', mean, low, high);
}

function cells(device: IDevice, node: string, trans: ITranslation): readonly React.ReactNode[] {
  const { index, lost, name, reserved_gpus, used_bytes, memory_bytes, utilization_percent, temperature_celsius } = device;
  return [
    String(index),
    node || UNKNOWN,
    lost ? trans.__('lost: reset it, or restart the machine') : trans.__('healthy'),
    name,
    formatShare(reserved_gpus),
    formatBytes(used_bytes),
    formatBytes(memory_bytes),
    utilization_percent === null ? UNKNOWN : `${utilization_percent} %`,
    speedText(device, trans),
    temperature_celsius === null ? UNKNOWN : `${amountText(temperature_celsius)} °C`
  ];
}
