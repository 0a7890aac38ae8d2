// The form of a kernel's size, below the list of kernels: presets, a custom size, and the dry run
// of the choice.

import { TranslationBundle } from '@jupyterlab/translation';
import { Button, ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { KnownSpecs } from '../../sizes/known_specs';
import { GpuKernelsModel } from '../../model/model';
import { formatShare } from '../../base/quantities';
import { HostChoice } from '../../sizes/host_choice';
import { ISizeDraft } from '../../sizes/resize_request';
import { SizeChoice } from '../../sizes/size_choice';
import { SizeDryRuns } from '../../sizes/size_dry_runs';
import { askedOf, Choice, defaultOf, isSame, label, noGpu, partBytes, Refusal, suffixOf } from '../../sizes/sizes';
import { IDryRun, ISize, StatusError } from '../../tokens';
import { failureText } from '../elements/action_words';
import { HostForm } from './host_form';
import { CustomSize } from './size_custom';
import { cardText, gib, dryRunText, refusalText } from './size_words';

export interface ISizeFormOptions {
  choice: SizeChoice;
  /** CPUs, memory and folders beside the size. */
  host: HostChoice;
  /** The dry runs of the presets. */
  dryRuns: SizeDryRuns;
  known: KnownSpecs;
  /** Why the size that the document names cannot be had, and the nearest that can. */
  refusal: { readonly why: Refusal; readonly nearest: ISizeDraft | null } | null;
  model: GpuKernelsModel;
  trans: TranslationBundle;
  /** Whether the document's own kernel is selected, though its size cannot change. */
  isOwn: () => boolean;
  /** Select a new kernel in its place. */
  pickNew: () => void;
}

export class SizeForm extends ReactWidget {
  constructor(private readonly _options: ISizeFormOptions) {
    super();
    this.addClass('aliquot-SizeForm');
  }

  protected override render(): JSX.Element {
    const { choice } = this._options;
    return <UseSignal signal={choice.changed}>{() => <Form {...this._options} />}</UseSignal>;
  }
}

function Form({ choice, host, dryRuns, known, model, refusal, trans, isOwn, pickNew }: ISizeFormOptions): JSX.Element {
  const about = known.specs?.kernelspecs[choice.target?.base ?? '']?.metadata?.aliquot as { description?: string } | undefined;
  return (
    <>
      {refusal && (
        <p className="aliquot-SizeForm-refusal" role="alert">
          {refusalText(refusal.why, refusal.nearest !== null, trans)}
        </p>
      )}
      {choice.target === null && isOwn() && <OwnKernel pickNew={pickNew} trans={trans} />}
      {choice.target !== null && (
        <>
          {about?.description && <p className="aliquot-SizeForm-hint">{about.description}</p>}
          <UseSignal signal={dryRuns.changed}>
            {() => <Presets choice={choice} dryRuns={dryRuns} trans={trans} />}
          </UseSignal>
          {choice.choice.kind === 'custom' && <CustomSize choice={choice} status={model.state.status} trans={trans} />}
          <UseSignal signal={host.changed}>{() => <HostForm host={host} trans={trans} />}</UseSignal>
        </>
      )}
      <DryRun choice={choice} trans={trans} />
    </>
  );
}

/** Shown while the document's own kernel is selected, which has nothing to choose. */
function OwnKernel({ pickNew, trans }: Pick<ISizeFormOptions, 'pickNew' | 'trans'>): JSX.Element {
  return (
    <div className="aliquot-SizeForm-own">
      <span>{trans.__('This kernel stays as it is. Another size takes a new kernel.')}</span>
      <Button type="button" small className="aliquot-Action" onClick={pickNew}>
        {trans.__('Choose a Size')}
      </Button>
    </div>
  );
}

interface ICardProps {
  group: string;
  title: string;
  details: string;
  isChosen: boolean;
  /** The dry run in a few words; empty while it is not known. */
  now?: string;
  dryRun?: IDryRun | null;
  pick: () => void;
}

function Card({ group, title, details, isChosen, now = '', dryRun = null, pick }: ICardProps): JSX.Element {
  const id = React.useId();
  return (
    <label className="aliquot-SizeCard">
      <input
        type="radio"
        name={group}
        checked={isChosen}
        aria-label={details ? `${title}, ${details}` : title}
        aria-describedby={now ? id : undefined}
        onChange={pick}
      />
      <span className="aliquot-SizeCard-title">{title}</span>
      <span className="aliquot-SizeCard-details">{details}</span>
      <span id={id} className="aliquot-SizeCard-now" data-outcome={dryRun?.outcome} title={dryRun?.message}>
        {now}
      </span>
    </label>
  );
}

interface IPresetsProps {
  choice: SizeChoice;
  dryRuns: SizeDryRuns;
  trans: TranslationBundle;
}

function Presets({ choice, dryRuns, trans }: IPresetsProps): JSX.Element {
  const group = React.useId();
  const { choice: chosen, presets, custom, sizes, target } = choice;
  const running = target?.running ?? null;
  const [asked, none] = [defaultOf(sizes), noGpu(sizes)];
  const isPreset = (size: ISize): boolean => chosen.kind === 'preset' && isSame(askedOf(chosen.size), askedOf(size));
  const part = (pick: Choice, isChosen = chosen.kind === pick.kind) => ({ group, isChosen, pick: () => choice.choose(pick) });
  const told = (suffix: string) => {
    const dryRun = dryRuns.of(suffix);
    return { dryRun, now: dryRun === null ? '' : cardText(dryRun, trans, running !== null) };
  };
  return (
    <fieldset className="aliquot-SizeForm-presets">
      <legend>{running ? trans.__('Size of this kernel (changes without a restart)') : trans.__('Size')}</legend>
      {!running && asked !== null && (
        <Card
          {...part({ kind: 'plain' })}
          {...told(`gpu-${sizes.default_size ?? ''}`)}
          title={trans.__("Server's default")}
          details={label(asked)}
        />
      )}
      {!running && <Card {...part(none)} title={trans.__('No GPU')} details={trans.__('CPU only')} />}
      {presets.map(size => (
        <Card
          key={size.name}
          {...part({ kind: 'preset', size }, isPreset(size))}
          {...(running && isSame(askedOf(size), running.has) ? { now: trans.__('its size now') } : told(suffixOf(size)))}
          title={titleOf(size, choice, trans)}
          details={detailsOf(size, choice)}
        />
      ))}
      <Card
        {...part({ kind: 'custom', asked: custom })}
        title={trans.__('Custom')}
        details={trans.__('share, memory, priority')}
      />
    </fieldset>
  );
}

function shareText(gpus: number, trans: TranslationBundle): string {
  return gpus > 1 ? trans.__('%1 GPUs', formatShare(gpus)) : trans.__('%1 GPU', formatShare(gpus));
}

/**
 * `0.25 GPU`, `0.25 GPU, low priority`: normal priority is what is usual, and goes without saying.
 */
function titleOf(size: ISize, choice: SizeChoice, trans: TranslationBundle): string {
  const share = shareText(size.gpus, trans);
  const isLow = size.priority === 'low' && choice.sizes.may_use_normal_priority;
  return isLow ? trans.__('%1, low priority', share) : share;
}

function detailsOf(size: ISize, choice: SizeChoice): string {
  const bytes = size.requested_memory_bytes ?? partBytes(size.gpus, choice.sizes);
  return bytes === null ? '' : gib(bytes);
}

interface IDryRunProps {
  choice: SizeChoice;
  trans: TranslationBundle;
}

/**
 * The dry run of the choice, also for screen readers. The dialog does not accept a size that can
 * never start.
 */
function DryRun({ choice, trans }: IDryRunProps): JSX.Element {
  const { dryRun } = choice;
  const line = React.useRef<HTMLParagraphElement>(null);
  const isNever = dryRun?.outcome === 'never';
  React.useEffect(() => {
    // The dialog checks validity at an input event; React updates the field after that.
    line.current?.dispatchEvent(new Event('input', { bubbles: true }));
  });
  React.useEffect(() => {
    const focused = document.activeElement;
    if (isNever && (focused === document.body || focused?.matches(':disabled'))) {
      // The focused button is disabled now, so that no key would reach the dialog.
      line.current?.parentElement?.querySelector<HTMLElement>('input:checked')?.focus();
    }
  }, [isNever]);
  return (
    <p
      ref={line}
      className={isNever ? 'aliquot-SizeForm-dry-run jp-mod-error' : 'aliquot-SizeForm-dry-run'}
      role="status"
      data-outcome={dryRun?.outcome}
    >
      {dryRun ? dryRunText(dryRun, trans, choice.target?.running !== null) : untold(choice.failure, trans)}
    </p>
  );
}

/**
 * Why there is no dry run; nothing where a server has none to give, and while it is being asked.
 */
function untold(failure: unknown, trans: TranslationBundle): string {
  const hasNone = failure instanceof StatusError && failure.kind === 'not-installed';
  return failure === null || hasNone ? '' : failureText(failure, trans);
}
