// The list of the node's GPUs: whose memory is where, and how busy, warm and hungry each device is.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { memoryParts } from '../model';
import { formatLike, formatPart, formatShare } from '../quantities';
import { IDevice } from '../tokens';
import { PartsBar } from './bar';
import { controlFacts } from './compute';
import { Facts } from './facts';

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
  const say = (bytes: number): string => formatLike(bytes, device.memory_bytes);
  const used = trans.__('%1 of %2 used', ...formatPart(device.used_bytes, device.memory_bytes));
  const mine = trans.__('%1 of it by my kernels', say(parts.mine));
  const reserved = trans.__('%1 reserved', say(device.reserved_bytes));
  const share = trans.__('%1 of 1 GPU', formatShare(device.reserved_gpus));
  const free = trans.__('%1 free', say(parts.free));
  return (
    <>
      <PartsBar
        label={trans.__('Memory of GPU %1', String(device.index))}
        text={`${used}, ${mine}; ${reserved} (${share}), ${free}`}
        value={device.used_bytes}
        whole={device.memory_bytes}
        parts={[
          { kind: 'mine', amount: parts.mine },
          { kind: 'others', amount: parts.others },
          { kind: 'held', amount: parts.held }
        ]}
      />
      <p className="aliquot-Item-line">{used}</p>
      <Facts said={[reserved, free]} />
      <Facts said={sensed(device, trans).concat(controlFacts(device.compute_control, trans))} />
    </>
  );
}

/** What the device measures of itself; what it does not measure is not shown. */
function sensed(device: IDevice, trans: TranslationBundle): string[] {
  const said: string[] = [];
  if (device.utilization_percent !== null) {
    said.push(trans.__('%1% busy', String(Math.round(device.utilization_percent))));
  }
  if (device.temperature_celsius !== null) {
    said.push(trans.__('%1 °C', String(Math.round(device.temperature_celsius))));
  }
  if (device.power_watts !== null) {
    said.push(trans.__('%1 W', String(Math.round(device.power_watts))));
  }
  return said;
}
