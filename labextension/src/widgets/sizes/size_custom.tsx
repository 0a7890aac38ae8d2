// The form of a custom size: share of a GPU, memory limit, priority.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { formatShare } from '../../base/quantities';
import { MEMORY_STEP_GIB } from '../../sizes/resize_request';
import { SizeChoice } from '../../sizes/size_choice';
import { mostAtHand, mostGib, partBytes } from '../../sizes/sizes';
import { IStatus, Priority } from '../../tokens';
import { SizeSlider } from './size_slider';
import { gib, priorityHint, priorityText } from './size_words';

const GIB = 1024 ** 3;
const PRIORITIES: readonly Priority[] = ['normal', 'low'];
/** The end of the slider while no device is known; a kernelspec's name may request more. */
const MOST_GIB_UNTOLD = 80;

export interface ICustomSizeProps {
  choice: SizeChoice;
  /** The devices; null until the first status. */
  status: IStatus | null;
  trans: TranslationBundle;
}

export function CustomSize(props: ICustomSizeProps): JSX.Element {
  const { choice, status, trans } = props;
  const { custom, sizes } = choice;
  return (
    <div className="aliquot-SizeForm-custom" role="group" aria-label={trans.__('Custom')}>
      <SizeSlider
        trans={trans}
        label={trans.__('GPU share')}
        unit={trans.__('GPU')}
        min={sizes.step}
        max={mostAtHand(sizes, status)}
        largest={sizes.largest_gpus}
        step={sizes.step}
        value={custom.gpus}
        text={trans.__('%1 GPU', formatShare(custom.gpus))}
        onChange={gpus => choice.draft({ gpus })}
      />
      <Memory {...props} />
      <Classes {...props} />
    </div>
  );
}

function Memory({ choice, trans }: ICustomSizeProps): JSX.Element {
  const { custom, sizes } = choice;
  const part = partBytes(custom.gpus, sizes);
  const first = part === null ? 1 : Math.max(Math.ceil(part / GIB), 1);
  const most = Math.max(mostGib(custom.gpus, sizes) ?? MOST_GIB_UNTOLD, custom.memoryGib ?? 1);
  return (
    <>
      <label className="aliquot-Resize-choice">
        <input
          type="checkbox"
          checked={custom.memoryGib !== null}
          onChange={event => choice.draft({ memoryGib: event.target.checked ? Math.min(first, most) : null })}
        />
        {trans.__('Set memory limit separately')}
        {part !== null && (
          <span className="aliquot-SizeForm-hint">{trans.__('(its share is %1)', gib(part))}</span>
        )}
      </label>
      {custom.memoryGib !== null && (
        <SizeSlider
          trans={trans}
          label={trans.__('GPU memory')}
          unit={trans.__('GiB')}
          min={MEMORY_STEP_GIB}
          max={most}
          step={MEMORY_STEP_GIB}
          value={custom.memoryGib}
          text={trans.__('%1 GiB', String(custom.memoryGib))}
          onChange={memoryGib => choice.draft({ memoryGib })}
        />
      )}
    </>
  );
}

function Classes({ choice, trans }: ICustomSizeProps): JSX.Element {
  const group = React.useId();
  const { custom, sizes } = choice;
  return (
    <fieldset className="aliquot-SizeForm-class">
      <legend>{trans.__('Priority')}</legend>
      {PRIORITIES.map(one => {
        const isRefused = one === 'normal' && !sizes.may_use_normal_priority;
        const hint = isRefused ? trans.__('not available to you') : priorityHint(one, trans);
        return (
          <label key={one} className="aliquot-Resize-choice">
            <input
              type="radio"
              name={group}
              disabled={isRefused}
              checked={custom.priority === one}
              onChange={() => choice.draft({ priority: one })}
            />
            {priorityText(one, trans)}
            <span className="aliquot-SizeForm-hint">{hint}</span>
          </label>
        );
      })}
    </fieldset>
  );
}
