// Nodes and devices with their health.

import * as React from 'react';

import { formatBytes, formatShare } from '../../base/quantities';
import { IDevice, IHolders, ITranslation } from '../../tokens';
import { amountText, UNKNOWN } from './admin_words';
import { Table } from './table';

interface INodeRow {
  readonly name: string;
  readonly driver: string | null;
  readonly health: string;
  readonly devices: readonly IDevice[];
}

export function Nodes({ holders, trans }: { holders: IHolders; trans: ITranslation }): JSX.Element {
  const nodes = rows(holders, trans);
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
          { title: trans.__('GPUs') }
        ]}
        rows={nodes.map(({ name, health, driver, devices }) => ({
          key: name,
          cells: [name || UNKNOWN, health, driver ?? UNKNOWN, devices.length]
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
          { title: trans.__('Temperature') }
        ]}
        rows={nodes.flatMap(node => node.devices.map(device => ({ key: device.uuid, cells: cells(device, node.name, trans) })))}
      />
    </>
  );
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
    temperature_celsius === null ? UNKNOWN : `${amountText(temperature_celsius)} °C`
  ];
}

function rows({ node, nodes, devices }: IHolders, trans: ITranslation): INodeRow[] {
  const here = node.agent === 'ok' ? (node.message ?? trans.__('healthy')) : (node.message ?? trans.__('no agent answers'));
  const own = node.name === '' && devices.length === 0 && nodes.length > 0 ? [] : [{ ...node, health: here, devices }];
  const others = nodes.map(one => ({
    ...one,
    health: one.message ?? (one.state === 'connected' ? trans.__('healthy') : trans.__('not connected'))
  }));
  return [...own, ...others];
}
