// The list of the node's GPUs: whose memory is where, and how busy, warm and hungry each device is.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { memoryParts } from '../model';
import { formatPart, formatShare } from '../quantities';
import { IDevice } from '../tokens';
import { MemoryBar } from './bar';

interface IDevicesProps {
  devices: readonly IDevice[];
  trans: TranslationBundle;
}

export function DeviceList({ devices, trans }: IDevicesProps): JSX.Element {
  if (devices.length === 0) {
    return <p className="aliquot-Empty">{trans.__('No GPU to show.')}</p>;
  }
  return (
    <ul className="aliquot-List" aria-label={trans.__('Devices')}>
      {devices.map(device => (
        <DeviceItem key={device.uuid} device={device} trans={trans} />
      ))}
    </ul>
  );
}

function DeviceItem({ device, trans }: { device: IDevice; trans: TranslationBundle }): JSX.Element {
  return (
    <li className="aliquot-Item" data-lost={device.lost || undefined}>
      <div className="aliquot-Item-head">
        <span className="aliquot-Item-badge">{trans.__('GPU %1', String(device.index))}</span>
        <span className="aliquot-Item-title" title={`${device.name}\n${device.uuid}`}>
          {device.name}
        </span>
        {device.lost && <span className="aliquot-Item-alarm">{trans.__('lost')}</span>}
      </div>
      {device.lost ? (
        <p className="aliquot-Item-line">
          {trans.__('The driver no longer answers for this device. Kernels on it must be restarted.')}
        </p>
      ) : (
        <DeviceFigures device={device} trans={trans} />
      )}
    </li>
  );
}

function DeviceFigures({ device, trans }: { device: IDevice; trans: TranslationBundle }): JSX.Element {
  const parts = memoryParts(device);
  const [used, whole] = formatPart(device.used_bytes, device.memory_bytes);
  const [reserved] = formatPart(device.reserved_bytes, device.memory_bytes);
  const memory = trans.__('%1 of %2 used', used, whole);
  const held = trans.__('%1 reserved', withUnitOf(reserved, whole));
  const [mine] = formatPart(parts.mine, device.memory_bytes);
  const [free] = formatPart(parts.free, device.memory_bytes);
  const text = [
    memory,
    trans.__('%1 by my kernels', withUnitOf(mine, whole)),
    held,
    trans.__('%1 free', withUnitOf(free, whole))
  ].join(', ');
  return (
    <>
      <MemoryBar
        label={trans.__('Memory of GPU %1', String(device.index))}
        text={text}
        value={device.used_bytes}
        whole={device.memory_bytes}
        parts={[
          { kind: 'mine', bytes: parts.mine },
          { kind: 'others', bytes: parts.others },
          { kind: 'held', bytes: parts.held }
        ]}
      />
      <p className="aliquot-Item-line">
        {memory}, {held}
      </p>
      <p className="aliquot-Item-line aliquot-mod-quiet">{sensors(device, trans).join(' · ')}</p>
    </>
  );
}

/** What the device measures of itself; what it does not measure is not shown. */
function sensors(device: IDevice, trans: TranslationBundle): string[] {
  const share = formatShare(device.reserved_gpus);
  const said = [trans.__('%1 of 1 GPU taken', share)];
  if (device.utilization_percent !== null) {
    said.push(trans.__('%1 % busy', String(Math.round(device.utilization_percent))));
  }
  if (device.temperature_celsius !== null) {
    said.push(trans.__('%1 °C', String(Math.round(device.temperature_celsius))));
  }
  if (device.power_watts !== null) {
    said.push(trans.__('%1 W', String(Math.round(device.power_watts))));
  }
  return said;
}

/** `12.0` beside `16.0 GiB` is `12.0 GiB`; what brought its own unit keeps it. */
function withUnitOf(figure: string, whole: string): string {
  return figure.includes(' ') ? figure : `${figure} ${whole.split(' ')[1] ?? ''}`;
}
