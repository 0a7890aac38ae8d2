// Everything about one device: its bar, its figures as text, and its last minutes.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { DeviceHistory } from '../../history/device_history';
import { IDeviceParts } from '../../model/device_parts';
import { formatBytes } from '../../base/quantities';
import { BUCKET_SECONDS, BUCKETS, extent } from '../../history/recent';
import { IDevice } from '../../tokens';
import { controlFacts } from './compute';
import { DeviceBar, memoryFacts, SwappedBar, swappedText, usedText } from './device_bar';
import { Facts } from '../elements/facts';
import { Sparkline } from '../elements/sparkline';

interface IDeviceFiguresProps {
  device: IDevice;
  parts: IDeviceParts;
  history: DeviceHistory;
  trans: TranslationBundle;
  /** Whether the bar is visible already. */
  isOpened?: boolean;
}

export function DeviceFigures({ device, parts, history, trans, isOpened }: IDeviceFiguresProps): JSX.Element {
  const swapped = parts.mineSwapped + parts.othersSwapped;
  return (
    <>
      {!isOpened && <DeviceBar {...{ device, parts, trans }} />}
      <SwappedBar {...{ device, parts, trans }} />
      <p className="aliquot-Item-line">{usedText(device, trans)}</p>
      <Facts said={memoryFacts(device, parts, trans)} />
      {swapped > 0 && <Facts said={[swappedText(device, parts, trans)]} />}
      <LastMinutes {...{ device, history, trans }} />
      <Facts said={sensed(device, trans).concat(controlFacts(device.compute_control, trans))} />
    </>
  );
}

interface ILastMinutesProps {
  device: IDevice;
  history: DeviceHistory;
  trans: TranslationBundle;
}

function LastMinutes({ device, history, trans }: ILastMinutesProps): JSX.Element {
  const record = history.of(device.uuid);
  const busy = device.utilization_percent;
  const memory = (100 * device.used_bytes) / Math.max(1, device.memory_bytes);
  const percent = (value: number): string => trans.__('%1%', String(Math.round(value)));
  return (
    <div className="aliquot-Sparklines">
      {busy !== null && (
        <Sparkline
          label={lastMinutes(trans.__('Utilization of GPU %1', String(device.index)), record.utilization.values, percent, trans)}
          now={trans.__('%1% busy', String(Math.round(busy)))}
          values={record.utilization.values}
          whole={100}
        />
      )}
      <Sparkline
        label={lastMinutes(trans.__('Memory in use on GPU %1', String(device.index)), record.memory.values, formatBytes, trans)}
        now={trans.__('%1% full', String(Math.round(memory)))}
        values={record.memory.values}
        whole={device.memory_bytes}
      />
    </div>
  );
}

function lastMinutes(
  what: string,
  values: readonly (number | null)[],
  say: (value: number) => string,
  trans: TranslationBundle
): string {
  const bounds = extent(values);
  const minutes = String(Math.round((BUCKETS * BUCKET_SECONDS) / 60));
  return bounds === null
    ? trans.__('%1: nothing seen yet', what)
    : trans.__('%1, last %2 minutes: between %3 and %4', what, minutes, say(bounds.least), say(bounds.most));
}

/** The device's own sensors; missing ones are not shown. */
function sensed(device: IDevice, trans: TranslationBundle): string[] {
  const said: string[] = [];
  if (device.temperature_celsius !== null) {
    said.push(trans.__('%1 °C', String(Math.round(device.temperature_celsius))));
  }
  if (device.power_watts !== null) {
    said.push(trans.__('%1 W', String(Math.round(device.power_watts))));
  }
  return said;
}
