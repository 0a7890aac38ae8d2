// The part of the form below the size: CPUs, memory (RAM) and folders, as far as the server offers a
// choice of them, and the image. Each is off until it is chosen: the size has its own part.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { HostChoice } from '../../sizes/host_choice';
import { ISessionOptions, StatusError } from '../../tokens';
import { failureText } from '../elements/action_words';
import { SizeSlider } from './size_slider';
import { gib } from './size_words';

const GIB = 1024 ** 3;

interface IHostFormProps {
  host: HostChoice;
  trans: TranslationBundle;
}

interface IPartProps extends IHostFormProps {
  options: ISessionOptions;
}

export function HostForm({ host, trans }: IHostFormProps): JSX.Element | null {
  const { options, failure } = host;
  const isOlder = failure instanceof StatusError && failure.kind === 'not-installed'; // a server without options
  if (failure !== null && !isOlder) {
    return (
      <p className="aliquot-SizeForm-refusal" role="alert">
        {failureText(failure, trans)}
      </p>
    );
  }
  if (options === null || !(options.cpus || options.ram_bytes || options.folders?.length || options.image)) {
    return null;
  }
  const props = { host, options, trans };
  return (
    <div className="aliquot-SizeForm-custom" role="group" aria-label={trans.__('CPUs, memory and folders')}>
      {options.image && <p className="aliquot-SizeForm-hint">{trans.__('Image: %1', options.image)}</p>}
      <Cpus {...props} />
      <Ram {...props} />
      <Folders {...props} />
    </div>
  );
}

function Cpus({ host, options, trans }: IPartProps): JSX.Element | null {
  const { cpus } = options;
  if (cpus === null) {
    return null;
  }
  const min = Math.max(Math.ceil(cpus.least / cpus.step), 1) * cpus.step;
  const max = Math.max(Math.floor(cpus.most / cpus.step) * cpus.step, min);
  const first = Math.min(Math.max(Math.round(cpus.by_default / cpus.step) * cpus.step, min), max);
  const value = host.chosen.cpus;
  return (
    <>
      <Toggle
        label={trans.__('Set CPUs')}
        hint={trans.__('(its share is %1)', String(cpus.by_default))}
        isOn={value !== null}
        turn={isOn => host.choose({ cpus: isOn ? first : null })}
      />
      {value !== null && (
        <SizeSlider
          {...{ trans, min, max, value }}
          label={trans.__('CPUs')}
          unit={trans.__('CPUs')}
          step={cpus.step}
          text={trans.__('%1 CPUs', String(value))}
          onChange={chosen => host.choose({ cpus: chosen })}
        />
      )}
    </>
  );
}

function Ram({ host, options, trans }: IPartProps): JSX.Element | null {
  const { ram_bytes: ram } = options;
  if (ram === null) {
    return null;
  }
  const min = Math.max(Math.ceil(ram.least / GIB), 1);
  const max = Math.max(Math.floor(ram.most / GIB), min);
  const first = Math.min(Math.max(Math.round(ram.by_default / GIB), min), max);
  const value = host.chosen.ramGib;
  return (
    <>
      <Toggle
        label={trans.__('Set memory (RAM)')}
        hint={trans.__('(its share is %1)', gib(ram.by_default))}
        isOn={value !== null}
        turn={isOn => host.choose({ ramGib: isOn ? first : null })}
      />
      {value !== null && (
        <SizeSlider
          {...{ trans, min, max, value }}
          label={trans.__('Memory (RAM)')}
          unit={trans.__('GiB')}
          step={1}
          text={trans.__('%1 GiB', String(value))}
          onChange={chosen => host.choose({ ramGib: chosen })}
        />
      )}
    </>
  );
}

function Folders({ host, options, trans }: IPartProps): JSX.Element | null {
  const offered = options.folders ?? [];
  if (offered.length === 0) {
    return null;
  }
  const chosen = host.chosen.folders;
  const turn = (name: string, isOn: boolean): void =>
    host.choose({ folders: offered.filter(one => (one === name ? isOn : chosen?.includes(one))) });
  return (
    <>
      <Toggle
        label={trans.__('Choose shared folders')}
        hint={trans.__('(else all of yours: %1)', offered.join(', '))}
        isOn={chosen !== null}
        turn={isOn => host.choose({ folders: isOn ? offered : null })}
      />
      {chosen !== null && (
        <fieldset className="aliquot-SizeForm-class">
          <legend>{trans.__('Shared folders')}</legend>
          {offered.map(name => (
            <Toggle key={name} label={name} isOn={chosen.includes(name)} turn={isOn => turn(name, isOn)} />
          ))}
        </fieldset>
      )}
    </>
  );
}

interface IToggleProps {
  label: string;
  hint?: string;
  isOn: boolean;
  turn: (isOn: boolean) => void;
}

function Toggle({ label, hint, isOn, turn }: IToggleProps): JSX.Element {
  return (
    <label className="aliquot-Resize-choice">
      <input type="checkbox" checked={isOn} onChange={event => turn(event.target.checked)} />
      {label}
      {hint && <span className="aliquot-SizeForm-hint">{hint}</span>}
    </label>
  );
}
