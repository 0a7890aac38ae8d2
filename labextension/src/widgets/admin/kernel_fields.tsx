// The fields of two actions on a kernel: its new size, and the message to its owner.

import * as React from 'react';

import { IHolderKernel, ISizeRequest, ITranslation, Priority } from '../../tokens';

/** The gateway takes no longer one. */
const LONGEST_MESSAGE = 500;

interface ISizeFieldsProps {
  kernel: IHolderKernel;
  /** The fields that were changed; the others show what the kernel has. */
  size: Partial<ISizeRequest>;
  onChange: (size: Partial<ISizeRequest>) => void;
  trans: ITranslation;
}

export function SizeFields({ kernel, size, onChange, trans }: ISizeFieldsProps): JSX.Element {
  const { gpus = kernel.gpus, priority = kernel.priority } = size;
  return (
    <div className="aliquot-Admin-fields">
      <label>
        {trans.__('GPUs')}
        <input
          type="number"
          autoFocus
          required
          min="0.01"
          step="0.01"
          value={Number.isFinite(gpus) ? gpus : ''}
          onChange={event => onChange({ ...size, gpus: event.target.valueAsNumber })}
        />
      </label>
      <label>
        {trans.__('Memory limit')}
        <input
          type="text"
          placeholder={trans.__('unchanged, or such as 8GiB')}
          value={size.memory ?? ''}
          onChange={event => {
            const { memory: _, ...rest } = size;
            onChange(event.target.value === '' ? rest : { ...rest, memory: event.target.value });
          }}
        />
      </label>
      <label>
        {trans.__('Priority')}
        <select
          value={priority}
          onChange={event => onChange({ ...size, priority: event.target.value as Priority })}
        >
          <option value="normal">{trans.__('normal')}</option>
          <option value="low">{trans.__('low')}</option>
        </select>
      </label>
    </div>
  );
}

interface IMessageFieldProps {
  text: string;
  onChange: (text: string) => void;
  trans: ITranslation;
}

export function MessageField({ text, onChange, trans }: IMessageFieldProps): JSX.Element {
  return (
    <div className="aliquot-Admin-fields">
      <label>
        {trans.__('Message')}
        <input
          type="text"
          autoFocus
          required
          maxLength={LONGEST_MESSAGE}
          value={text}
          onChange={event => onChange(event.target.value)}
        />
      </label>
    </div>
  );
}
