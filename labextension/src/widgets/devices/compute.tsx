// What a kernel's entry says of GPU time: used of what it is entitled to, stretch, and what holds it back.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatMoment, formatPercent, formatStretch, shareParts, Timed, timedDevices } from '../../model/compute';
import { kernelTitle } from '../../model/model';
import { formatSeconds } from '../../base/quantities';
import { ICompute, IComputeControl, IKernel } from '../../tokens';
import { PartsBar } from '../elements/bar';
import { Facts } from '../elements/facts';

interface IComputeProps {
  kernel: IKernel;
  trans: TranslationBundle;
}

/** Nothing for a kernel that has not used a GPU, and where the node agent does not tell. */
export function ComputeFigures({ kernel, trans }: IComputeProps): JSX.Element {
  return (
    <>
      {timedDevices(kernel).map(device => (
        <DeviceTime key={device.uuid} kernel={kernel} device={device} trans={trans} />
      ))}
    </>
  );
}

function DeviceTime({ kernel, device, trans }: IComputeProps & { device: Timed }): JSX.Element {
  const { compute } = device;
  const { used, held } = shareParts(compute);
  const where = kernel.devices.length > 1 ? `${trans.__('GPU %1', String(device.index))}: ` : '';
  const text = where + share(compute, trans);
  return (
    <>
      <PartsBar
        label={trans.__('GPU time of %1', kernelTitle(kernel))}
        text={text}
        value={Math.round(used)}
        whole={100}
        parts={[
          { kind: 'mine', amount: used },
          { kind: 'mine-held', amount: held }
        ]}
        isThin
      />
      <p className="aliquot-Item-line" title={trans.__('Of the last second. Entitled: by weight, among kernels that want the GPU.')}>
        {text}
      </p>
      <Facts said={controlled(compute, trans)} />
      {compute.held_back && <p className="aliquot-Item-line">{trans.__('Held back: %1', compute.held_back)}</p>}
    </>
  );
}

function share(compute: ICompute, trans: TranslationBundle): string {
  const { share_used: used, share_entitled: entitled } = compute;
  if (used === null) {
    return trans.__('entitled to %1 of GPU time', formatPercent(entitled ?? 0));
  }
  return entitled === null
    ? trans.__('%1 of GPU time', formatPercent(used))
    : trans.__('%1 of GPU time, entitled to %2', formatPercent(used), formatPercent(entitled));
}

/** What is done to it now. */
function controlled(compute: ICompute, trans: TranslationBundle): string[] {
  const said: string[] = [];
  if (compute.is_capped) {
    said.push(trans.__('capped at its share'));
  }
  if (compute.unholdable) {
    said.push(trans.__('held out by production'));
  }
  return said;
}

/** For who looks closer. Stretch: how much longer launches take than alone. */
export function computeDetails(kernel: IKernel, trans: TranslationBundle): string[] {
  return timedDevices(kernel).flatMap(({ compute }) => {
    const said: string[] = [];
    if (compute.stretch !== null) {
      said.push(trans.__('stretch %1', formatStretch(compute.stretch)));
    }
    if (compute.throttled_seconds > 0) {
      said.push(trans.__('throttled %1', formatSeconds(compute.throttled_seconds)));
    }
    if (compute.bound_seconds !== null && compute.bound_seconds > 0) {
      said.push(trans.__('delays production by %1 at most', formatMoment(compute.bound_seconds)));
    }
    return said;
  });
}

/** What decides about a device's time, while there is something to decide. */
export function controlFacts(control: IComputeControl | null, trans: TranslationBundle): string[] {
  if (!control?.contended) {
    return [];
  }
  const how = control.sharing === 'time slices' ? trans.__('kernels take turns') : trans.__('kernels run side by side');
  // One that an administrator chose instead of the usual one is worth a word.
  return [control.controller === 'measured' ? how : `${how} (${control.controller})`];
}
