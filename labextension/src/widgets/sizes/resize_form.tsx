// The form that changes the size or priority of a running kernel, with a dry run; it can also
// withdraw a queued change.

import { TranslationBundle } from '@jupyterlab/translation';
import { Button } from '@jupyterlab/ui-components';
import * as React from 'react';

import { AliquotClient } from '../../client/client';
import { LatestAnswer } from '../../base/latest_answer';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { formatBytes, formatShare } from '../../base/quantities';
import { queuedText } from '../../model/state_word';
import {
  change,
  firstMemoryGib,
  ISizeDraft,
  MEMORY_STEP_GIB,
  memoryRange,
  shareRange,
  sizeOf,
  requestOf
} from '../../sizes/resize_request';
import { IDryRun, IKernel, IStatus, ISizeRequest, Priority, StatusError } from '../../tokens';
import { failureText } from '../elements/action_words';
import { SizeSlider } from './size_slider';
import { dryRunText, priorityHint, priorityText } from './size_words';

const PRIORITIES: readonly Priority[] = ['normal', 'low'];

export interface IResizeFormProps {
  kernel: IKernel;
  status: IStatus;
  model: GpuKernelsModel;
  client: AliquotClient;
  trans: TranslationBundle;
}

export function ResizeForm(props: IResizeFormProps): JSX.Element {
  const { kernel, model, client, trans } = props;
  const [draft, setDraft] = React.useState<Partial<ISizeDraft>>({});
  const [failure, setFailure] = React.useState('');
  const [isUnderWay, setUnderWay] = React.useState(false);
  const chosen: ISizeDraft = { ...sizeOf(kernel), ...draft };
  const wanted = change(kernel, chosen);
  const dryRun = useDryRun(client, kernel, wanted && requestOf(chosen), trans);
  const ask = async (request: () => Promise<unknown>): Promise<void> => {
    setUnderWay(true);
    setFailure('');
    try {
      await request();
      await model.readAnew(); // otherwise the form would show the former size for a moment
      setDraft({});
    } catch (error) {
      setFailure(failureText(error, trans));
      void model.refresh();
    }
    setUnderWay(false);
  };
  const submit = (event: React.FormEvent): void => {
    event.preventDefault();
    if (wanted && !isUnderWay) {
      void ask(() => client.resize(kernel.id, wanted));
    }
  };
  return (
    <form className="aliquot-Resize" aria-label={trans.__('Size of %1', kernelTitle(kernel))} onSubmit={submit}>
      <SizeFields {...props} chosen={chosen} choose={part => setDraft({ ...draft, ...part })} />
      <p className="aliquot-Resize-dry-run" role="status" data-outcome={dryRun?.outcome}>
        {wanted ? dryRun?.text : trans.__('Changes without a restart.')}
      </p>
      <div className="aliquot-Actions-row">
        <Button type="submit" small className="aliquot-Action aliquot-mod-main" disabled={!wanted || isUnderWay}>
          {trans.__('Resize')}
        </Button>
        {wanted && (
          <Button type="button" small className="aliquot-Action" onClick={() => setDraft({})}>
            {trans.__('Reset')}
          </Button>
        )}
      </div>
      {kernel.resize && (
        <div className="aliquot-Resize-waiting">
          <span>{waits(kernel.resize.gpus, kernel.resize.position, trans)}</span>
          <Button
            type="button"
            small
            className="aliquot-Action"
            disabled={isUnderWay}
            onClick={() => void ask(() => client.withdrawResize(kernel.id))}
          >
            {trans.__('Cancel Resize')}
          </Button>
        </div>
      )}
      {failure && (
        <p className="aliquot-Actions-failure" role="alert">
          {failure}
        </p>
      )}
    </form>
  );
}

function waits(gpus: number, position: number, trans: TranslationBundle): string {
  return trans.__('Resize to %1 GPU %2.', formatShare(gpus), queuedText(position, trans));
}

interface ISizeFieldsProps extends IResizeFormProps {
  chosen: ISizeDraft;
  choose: (part: Partial<ISizeDraft>) => void;
}

function SizeFields({ kernel, status, trans, chosen, choose }: ISizeFieldsProps): JSX.Element {
  const share = formatShare(chosen.gpus);
  const name = React.useId();
  return (
    <>
      <SizeSlider
        trans={trans}
        label={trans.__('GPU share')}
        unit={trans.__('GPU')}
        {...shareRange(kernel)}
        step={0.01}
        value={chosen.gpus}
        text={trans.__('%1 GPU', share)}
        onChange={gpus => choose({ gpus })}
      />
      <label className="aliquot-Resize-choice">
        <input
          type="checkbox"
          checked={chosen.memoryGib !== null}
          onChange={event => choose({ memoryGib: event.target.checked ? firstMemoryGib(kernel) : null })}
        />
        {trans.__('Set memory limit separately')}
      </label>
      {chosen.memoryGib !== null && (
        <SizeSlider
          trans={trans}
          label={trans.__('Memory limit')}
          unit={trans.__('GiB')}
          {...memoryRange(kernel, status.devices)}
          step={MEMORY_STEP_GIB}
          value={chosen.memoryGib}
          text={trans.__('%1 GiB', String(chosen.memoryGib))}
          onChange={memoryGib => choose({ memoryGib })}
        />
      )}
      <fieldset className="aliquot-Resize-class">
        <legend>{trans.__('Priority')}</legend>
        {PRIORITIES.map(one => (
          <label key={one} className="aliquot-Resize-choice" title={priorityHint(one, trans)}>
            <input
              type="radio"
              name={name}
              checked={chosen.priority === one}
              onChange={() => choose({ priority: one })}
            />
            {priorityText(one, trans)}
          </label>
        ))}
      </fieldset>
    </>
  );
}

interface ISaid {
  readonly text: string;
  readonly outcome?: IDryRun['outcome'];
}

/**
 * Return the dry run of a request, made when the input rests; null until the answer, and without
 * server support.
 */
function useDryRun(client: AliquotClient, kernel: IKernel, request: ISizeRequest | null, trans: TranslationBundle): ISaid | null {
  const [said, setSaid] = React.useState<ISaid | null>(null);
  const { id: kernelId, used_bytes: used } = kernel;
  const latest = React.useMemo(
    () =>
      new LatestAnswer<ISizeRequest, IDryRun>(
        question => client.dryRun(question, kernelId),
        (_, answer, error) => setSaid(answer ? { text: meaning(answer, used, trans), outcome: answer.outcome } : refused(error, trans))
      ),
    [client, kernelId, used, trans]
  );
  const key = JSON.stringify(request);
  React.useEffect(() => {
    if (request === null) {
      setSaid(null);
      latest.forget();
    } else {
      latest.want(request);
    }
    return () => latest.forget();
    // The request is a new object in each render; compare its text.
  }, [latest, key]);
  return said;
}

function meaning(dryRun: IDryRun, used: number, trans: TranslationBundle): string {
  const { outcome, memory_limit_bytes: limit } = dryRun;
  const said = outcome === 'starts' ? trans.__('Changes at once.') : dryRunText(dryRun, trans);
  if (outcome === 'never' || limit === null || used <= limit) {
    return said;
  }
  const amounts = [formatBytes(used), formatBytes(limit)];
  return trans.__('%1 The kernel uses %2: new allocations fail until it uses less than %3.', said, ...amounts);
}

function refused(error: unknown, trans: TranslationBundle): ISaid | null {
  const cannotTell = error instanceof StatusError && error.kind === 'not-installed';
  return cannotTell ? null : { text: failureText(error, trans), outcome: 'never' };
}
