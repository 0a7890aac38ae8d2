// The list of the node's GPUs: whose memory is where, and how busy, warm and hungry each device is.
// Many devices are a line each, and open on demand.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { DeviceHistory } from '../../history/device_history';
import { deviceParts, IDeviceParts, myParts } from '../../model/device_parts';
import { IDevice, IStatus } from '../../tokens';
import { DeviceFigures } from './device_figures';
import { DeviceBar } from './device_bar';
import { Legend } from './legend';

/** With this many devices or more, each is a line that opens. */
export const COMPACT_FROM = 5;

interface IDevicesProps {
  status: IStatus;
  history: DeviceHistory;
  trans: TranslationBundle;
}

interface IView {
  readonly device: IDevice;
  readonly parts: IDeviceParts;
}

export function DeviceList({ status, history, trans }: IDevicesProps): JSX.Element {
  const my = myParts(status.kernels, status.user.name);
  const views = status.devices.map(device => ({ device, parts: deviceParts(device, my.get(device.uuid)) }));
  if (views.length === 0) {
    return <p className="aliquot-Empty">{trans.__('No GPU to show.')}</p>;
  }
  const isCompact = views.length >= COMPACT_FROM;
  return (
    <>
      <Legend parts={views.map(view => view.parts)} trans={trans} />
      <ul className="aliquot-List" aria-label={trans.__('Devices')}>
        {views.map(view => {
          const { uuid } = view.device;
          return isCompact ? (
            <CompactDevice key={uuid} {...{ view, history, trans }} />
          ) : (
            <DeviceItem key={uuid} {...{ view, history, trans }} beat={history.beat(uuid)} />
          );
        })}
      </ul>
    </>
  );
}

/**
 * The model keeps the identity of an unchanged device; its parts also depend on the user's kernels.
 */
function isSame(before: IItemProps, after: IItemProps): boolean {
  return (
    before.view.device === after.view.device &&
    before.beat === after.beat &&
    JSON.stringify(before.view.parts) === JSON.stringify(after.view.parts)
  );
}

interface IItemProps {
  view: IView;
  history: DeviceHistory;
  trans: TranslationBundle;
  /** Changes when the device's lines have new samples. */
  beat?: number;
}

const DeviceItem = React.memo(function DeviceItem({ view, history, trans }: IItemProps): JSX.Element {
  const { device } = view;
  return (
    <li className="aliquot-Item" data-lost={device.lost || undefined}>
      <div className="aliquot-Item-head">
        <span className="aliquot-Item-badge">{trans.__('GPU %1', String(device.index))}</span>
        <span className="aliquot-Item-title" title={`${device.name}\n${device.uuid}`}>
          {device.name}
        </span>
        {device.lost && <span className="aliquot-Item-alarm">{trans.__('lost')}</span>}
      </div>
      {device.lost ? <Lost trans={trans} /> : <DeviceFigures {...view} {...{ history, trans }} />}
    </li>
  );
}, isSame);

/** Renders when a figure changes; its content renders when it is open. */
const CompactDevice = React.memo(function CompactDevice({ view, history, trans }: IItemProps): JSX.Element {
  const [isOpen, setOpen] = React.useState(false);
  const { device, parts } = view;
  const busy = device.lost ? null : device.utilization_percent;
  return (
    <li className="aliquot-Item aliquot-mod-compact" data-lost={device.lost || undefined}>
      <details open={isOpen} onToggle={event => setOpen(event.currentTarget.open)}>
        <summary className="aliquot-Compact">
          <span className="aliquot-Item-badge">{trans.__('GPU %1', String(device.index))}</span>
          {device.lost ? (
            <span className="aliquot-Item-alarm">{trans.__('lost')}</span>
          ) : (
            <DeviceBar {...{ device, parts, trans }} />
          )}
          <span className="aliquot-Compact-figure" title={trans.__('Utilization')}>
            {busy !== null && trans.__('%1%', String(Math.round(busy)))}
          </span>
        </summary>
        {isOpen && (
          <>
            <p className="aliquot-Item-line aliquot-mod-quiet">{device.name}</p>
            {device.lost ? <Lost trans={trans} /> : <DeviceFigures {...view} {...{ history, trans }} isOpened />}
          </>
        )}
      </details>
    </li>
  );
}, isSame);

function Lost({ trans }: { trans: TranslationBundle }): JSX.Element {
  return (
    <p className="aliquot-Item-line">
      {trans.__('The driver no longer answers for this device. Kernels on it must be restarted.')}
    </p>
  );
}
