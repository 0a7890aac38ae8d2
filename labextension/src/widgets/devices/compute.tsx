// A kernel's GPU time: what it uses of its fair share, its slowdown, and why it is throttled.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatMoment, formatPercent, formatSlowdown, shareParts, Timed, timedDevices } from '../../model/compute';
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
      <p className="aliquot-Item-line" title={trans.__('Of the last second. Fair share: by weight, among kernels that want the GPU.')}>
        {text}
      </p>
      <Facts said={controlled(compute, trans)} />
      {compute.throttle_reason && <p className="aliquot-Item-line">{trans.__('Throttled: %1', compute.throttle_reason)}</p>}
    </>
  );
}

function share(compute: ICompute, trans: TranslationBundle): string {
  const { share_used: used, fair_share: fair } = compute;
  if (used === null) {
    return trans.__('fair share: %1 of GPU time', formatPercent(fair ?? 0));
  }
  return fair === null
    ? trans.__('%1 of GPU time', formatPercent(used))
    : trans.__('%1 of GPU time, fair share %2', formatPercent(used), formatPercent(fair));
}

/** The action that the controller takes on this kernel now. */
function controlled(compute: ICompute, trans: TranslationBundle): string[] {
  const said: string[] = [];
  if (compute.has_hard_limit) {
    said.push(trans.__('hard limit of GPU time'));
  }
  if (compute.paused) {
    said.push(trans.__('paused for normal-priority work'));
  }
  return said;
}

/** For who looks closer. Slowdown: how much longer launches take than alone. */
export function computeDetails(kernel: IKernel, trans: TranslationBundle): string[] {
  return timedDevices(kernel).flatMap(({ compute }) => {
    const said: string[] = [];
    if (compute.slowdown !== null) {
      said.push(trans.__('slowdown %1', formatSlowdown(compute.slowdown)));
    }
    if (compute.throttled_seconds > 0) {
      said.push(trans.__('throttled %1', formatSeconds(compute.throttled_seconds)));
    }
    if (compute.max_delay_seconds !== null && compute.max_delay_seconds > 0) {
      said.push(trans.__('delays normal-priority work by %1 at most', formatMoment(compute.max_delay_seconds)));
    }
    return said;
  });
}

/** The controller of a device's time, while kernels share it. */
export function controlFacts(control: IComputeControl | null, trans: TranslationBundle): string[] {
  if (!control?.contended) {
    return [];
  }
  const how = control.sharing === 'time slices' ? trans.__('kernels share the GPU in time slices') : trans.__('kernels run at the same time');
  // Name the controller if an administrator chose one other than the default.
  return [control.controller === 'measured' ? how : `${how} (${control.controller})`];
}
