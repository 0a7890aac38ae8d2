// A device's memory as one bar, and a second one for its kernels' swapped-out memory.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IDeviceParts } from '../../model/device_parts';
import { formatLike, formatPart, formatShare } from '../../base/quantities';
import { IDevice } from '../../tokens';
import { PartsBar } from '../elements/bar';

interface IDeviceBarProps {
  device: IDevice;
  parts: IDeviceParts;
  trans: TranslationBundle;
}

export function DeviceBar({ device, parts, trans }: IDeviceBarProps): JSX.Element {
  return (
    <PartsBar
      label={trans.__('Memory of GPU %1', String(device.index))}
      text={[usedText(device, trans), ...memoryFacts(device, parts, trans)].join('; ')}
      value={device.used_bytes}
      whole={device.memory_bytes}
      parts={[
        { kind: 'mine', amount: parts.mine },
        { kind: 'mine-burstable', amount: parts.mineBurstable },
        { kind: 'mine-held', amount: parts.mineHeld },
        { kind: 'others', amount: parts.others },
        { kind: 'others-burstable', amount: parts.othersBurstable },
        { kind: 'others-held', amount: parts.othersHeld }
      ]}
    />
  );
}

/** Renders nothing if no memory is swapped out. */
export function SwappedBar({ device, parts, trans }: IDeviceBarProps): JSX.Element | null {
  const swapped = parts.mineSwapped + parts.othersSwapped;
  if (swapped === 0) {
    return null;
  }
  return (
    <PartsBar
      label={trans.__('In host memory of kernels of GPU %1', String(device.index))}
      text={swappedText(device, parts, trans)}
      value={swapped}
      whole={Math.max(device.memory_bytes, swapped)}
      parts={[
        { kind: 'mine-swapped', amount: parts.mineSwapped },
        { kind: 'others-swapped', amount: parts.othersSwapped }
      ]}
      isThin
    />
  );
}

export function usedText(device: IDevice, trans: TranslationBundle): string {
  return trans.__('%1 of %2 used', ...formatPart(device.used_bytes, device.memory_bytes));
}

/** The bar as text, without parts of zero bytes. */
export function memoryFacts(device: IDevice, parts: IDeviceParts, trans: TranslationBundle): string[] {
  const say = (bytes: number): string => formatLike(bytes, device.memory_bytes);
  const burstable = parts.mineBurstable + parts.othersBurstable;
  const facts = [trans.__('%1 by your kernels', say(parts.mine + parts.mineBurstable))];
  if (parts.others + parts.othersBurstable > 0) {
    facts.push(trans.__('%1 by others', say(parts.others + parts.othersBurstable)));
  }
  if (burstable > 0) {
    facts.push(trans.__('%1 of it burstable', say(burstable)));
  }
  if (device.reserved_bytes > 0) {
    const share = formatShare(device.reserved_gpus);
    facts.push(
      device.overcommit > 1
        ? trans.__('%1 reserved (%2 of up to %3 GPUs)', say(device.reserved_bytes), share, formatShare(device.overcommit))
        : trans.__('%1 reserved (%2 of 1 GPU)', say(device.reserved_bytes), share)
    );
  }
  facts.push(parts.free > 0 ? trans.__('%1 free', say(parts.free)) : trans.__('no memory free'));
  return facts;
}

export function swappedText(device: IDevice, parts: IDeviceParts, trans: TranslationBundle): string {
  const say = (bytes: number): string => formatLike(bytes, device.memory_bytes);
  const all = trans.__('%1 swapped out to the host', say(parts.mineSwapped + parts.othersSwapped));
  return parts.othersSwapped > 0 && parts.mineSwapped > 0
    ? trans.__('%1, %2 of it yours', all, say(parts.mineSwapped))
    : all;
}
