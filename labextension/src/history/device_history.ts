// The last minutes of each device, by UUID: filled from the model's states, seeded from the
// gateway's history.

import { ISignal, Signal } from '@lumino/signaling';

import { IState } from '../model/model';
import { Recent } from './recent';
import { IHistory } from '../tokens';

export interface IDeviceRecord {
  readonly utilization: Recent;
  readonly memory: Recent;
}

export class DeviceHistory {
  /** Called with each new state; without a call nothing changed. */
  note(state: IState, nowSeconds: number): void {
    const { status, problem } = state;
    if (problem || !status || status.node.agent === 'unavailable') {
      this.pause();
      return;
    }
    for (const uuid of [...this._records.keys()]) {
      if (!status.devices.some(device => device.uuid === uuid)) {
        this._records.delete(uuid);
      }
    }
    for (const device of status.devices) {
      const record = this.of(device.uuid);
      record.utilization.add(nowSeconds, device.lost ? null : device.utilization_percent);
      record.memory.add(nowSeconds, device.lost ? null : device.used_bytes);
    }
  }

  /** Pause all lines: the time until the next state is a gap. */
  pause(): void {
    for (const record of this._records.values()) {
      record.utilization.pause();
      record.memory.pause();
    }
  }

  seed(history: IHistory): void {
    this._seeds += 1;
    const start = Date.parse(history.start) / 1000;
    const points = (column: readonly (number | null)[]): { at: number; seconds: number; value: number | null }[] =>
      column.map((value, index) => ({ at: start + index * history.step_seconds, seconds: history.step_seconds, value }));
    for (const device of history.devices) {
      const record = this._records.get(device.uuid);
      record?.utilization.seed(points(device.figures.utilization_percent.mean));
      record?.memory.seed(points(device.figures.used_bytes.mean));
    }
    this._seeded.emit();
  }

  /** Emitted when the gateway's history was added before the first samples. */
  get seeded(): ISignal<this, void> {
    return this._seeded;
  }

  of(uuid: string): IDeviceRecord {
    const known = this._records.get(uuid) ?? { utilization: new Recent(), memory: new Recent() };
    this._records.set(uuid, known);
    return known;
  }

  /** Grows with each bucket of the device's lines, and with each seed. */
  beat(uuid: string): number {
    return this.of(uuid).memory.last + this._seeds;
  }

  private _seeds = 0;
  private readonly _seeded = new Signal<this, void>(this);
  private readonly _records = new Map<string, IDeviceRecord>();
}
