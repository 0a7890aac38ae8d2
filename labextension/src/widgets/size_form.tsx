// The form of a kernel's size, below the list of kernels: presets, a size of one's own, and what it means now.

import { TranslationBundle } from '@jupyterlab/translation';
import { Button, ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import * as React from 'react';

import { KnownSpecs } from '../known_specs';
import { GpuKernelsModel } from '../model';
import { formatShare } from '../quantities';
import { ISizeDraft } from '../resize_wish';
import { SizeChoice } from '../size_choice';
import { askedOf, Choice, defaultOf, isSame, label, noGpu, partBytes, Refusal } from '../sizes';
import { ISize, StatusError } from '../tokens';
import { failureText } from './action_words';
import { CustomSize } from './size_custom';
import { gib, outlookText, refusalText } from './size_words';

export interface ISizeFormOptions {
  choice: SizeChoice;
  known: KnownSpecs;
  /** Why the size that the document names cannot be had, and the nearest that can. */
  refusal: { readonly why: Refusal; readonly nearest: ISizeDraft | null } | null;
  model: GpuKernelsModel;
  trans: TranslationBundle;
  /** Whether the list is at the document's own kernel, though its size cannot be changed. */
  isOwn: () => boolean;
  /** Moves the list to a new kernel in its place. */
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

function Form({ choice, known, model, refusal, trans, isOwn, pickNew }: ISizeFormOptions): JSX.Element {
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
          <Presets choice={choice} trans={trans} />
          {choice.choice.kind === 'custom' && <CustomSize choice={choice} status={model.state.status} trans={trans} />}
        </>
      )}
      <Outlook choice={choice} trans={trans} />
    </>
  );
}

/** The list begins at the kernel that the document has, which shows nothing to choose from. */
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

interface IPartProps {
  choice: SizeChoice;
  trans: TranslationBundle;
}

function Presets({ choice, trans }: IPartProps): JSX.Element {
  const group = React.useId();
  const { choice: chosen, presets, custom, target } = choice;
  const isRunning = target?.running !== null;
  const [asked, none, plain] = [defaultOf(choice.sizes), noGpu(choice.sizes), { kind: 'plain' } as const];
  const card = (key: string, isChosen: boolean, title: string, details: string, pick: Choice): JSX.Element => (
    <label key={key} className="aliquot-SizeCard">
      <input
        type="radio"
        name={group}
        checked={isChosen}
        aria-label={details ? `${title}, ${details}` : title}
        onChange={() => choice.choose(pick)}
      />
      <span className="aliquot-SizeCard-title">{title}</span>
      <span className="aliquot-SizeCard-details">{details}</span>
    </label>
  );
  const isPreset = (size: ISize): boolean => chosen.kind === 'preset' && isSame(askedOf(chosen.size), askedOf(size));
  return (
    <fieldset className="aliquot-SizeForm-presets">
      <legend>{isRunning ? trans.__('Size of this kernel (changes without a restart)') : trans.__('Size')}</legend>
      {!isRunning && asked !== null && card('plain', chosen.kind === 'plain', trans.__("Server's default"), label(asked), plain)}
      {!isRunning && card('none', chosen.kind === none.kind, trans.__('No GPU'), trans.__('CPU only'), none)}
      {presets.map(size =>
        card(size.name, isPreset(size), shareText(size.gpus, trans), detailsOf(size, choice, trans), {
          kind: 'preset',
          size
        })
      )}
      {card('custom', chosen.kind === 'custom', trans.__('Custom'), trans.__('share, memory, class'), {
        kind: 'custom',
        asked: custom
      })}
    </fieldset>
  );
}

function shareText(gpus: number, trans: TranslationBundle): string {
  return gpus > 1 ? trans.__('%1 GPUs', formatShare(gpus)) : trans.__('%1 GPU', formatShare(gpus));
}

/** `4 GiB`, `4 GiB, opportunistic`: production is what is usual, and goes without saying. */
function detailsOf(size: ISize, choice: SizeChoice, trans: TranslationBundle): string {
  const bytes = size.memory_limit_bytes ?? partBytes(size.gpus, choice.sizes);
  const details = bytes === null ? [] : [gib(bytes)];
  if (size.workload_class === 'opportunistic' && choice.sizes.may_have_production) {
    details.push(trans.__('opportunistic'));
  }
  return details.join(', ');
}

/** What it means now, for eyes and for screen readers; where it can never be had, the dialog does not accept it. */
function Outlook({ choice, trans }: IPartProps): JSX.Element {
  const { outlook } = choice;
  const line = React.useRef<HTMLParagraphElement>(null);
  const isNever = outlook?.outcome === 'never';
  React.useEffect(() => {
    // The dialog looks for what is marked as an error when something was put in.
    line.current?.dispatchEvent(new Event('input', { bubbles: true }));
    const focused = document.activeElement;
    if (isNever && (focused === document.body || focused?.matches(':disabled'))) {
      // The button that had the focus is disabled now, and no key would reach the dialog.
      line.current?.parentElement?.querySelector<HTMLElement>('input:checked')?.focus();
    }
  }, [isNever]);
  return (
    <p
      ref={line}
      className={isNever ? 'aliquot-SizeForm-outlook jp-mod-error' : 'aliquot-SizeForm-outlook'}
      role="status"
      data-outcome={outlook?.outcome}
    >
      {outlook
        ? outlookText(outlook, trans, choice.target?.running !== null)
        : untold(choice.failure, trans)}
    </p>
  );
}

/** Why there is no outlook; nothing where a server has none to give, and while it is being asked. */
function untold(failure: unknown, trans: TranslationBundle): string {
  const hasNone = failure instanceof StatusError && failure.kind === 'not-installed';
  return failure === null || hasNone ? '' : failureText(failure, trans);
}
