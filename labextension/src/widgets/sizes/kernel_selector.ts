// The body of the dialog: Lab's list of kernels with each kernelspec once, and below it the form of
// the size, if the selected one has sizes.

import { ISessionContext, SessionContextDialogs } from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';
import { IDisposable } from '@lumino/disposable';
import { Panel, Widget } from '@lumino/widgets';

import { AliquotClient } from '../../client/client';
import { KnownSpecs } from '../../sizes/known_specs';
import { GpuKernelsModel } from '../../model/model';
import { HostChoice } from '../../sizes/host_choice';
import { ISizeDraft } from '../../sizes/resize_request';
import { ITarget, SizeChoice } from '../../sizes/size_choice';
import { SizeDryRuns } from '../../sizes/size_dry_runs';
import { NO_HOST_PART, presetsOf, Refusal } from '../../sizes/sizes';
import { ISizeRequest, TRANSLATION_DOMAIN } from '../../tokens';
import { SizeForm } from './size_form';

/**
 * A running kernel with its new size, if that differs; a kernelspec to start, whose name may need a request to the
 * server; or none.
 */
export type Selected =
  | { readonly id: string; readonly change: ISizeRequest | null }
  | { readonly name: Promise<string> }
  | null;

/** The value of an option, as in Lab's own dialog. */
type Option = { readonly id?: string; readonly name?: string } | null;

export interface IRefused {
  readonly why: Refusal;
  readonly nearest: ISizeDraft | null;
}

export interface IKernelSelectorOptions {
  context: ISessionContext;
  known: KnownSpecs;
  client: AliquotClient;
  model: GpuKernelsModel;
  translator: ITranslator;
  /** The document's kernel and its size; null without one, or if its size cannot change. */
  current: ITarget | null;
  /** The reason why the document's size is not available, and the nearest available one. */
  refusal: IRefused | null;
}

export class KernelSelector extends Panel {
  constructor(private readonly _options: IKernelSelectorOptions) {
    super();
    const { known, client, model, translator, refusal } = _options;
    this.addClass('aliquot-KernelSelector');
    this._choice = new SizeChoice(known.sizes!, (request, id) => client.dryRun(request, id, this._replacedId));
    this._dryRuns = new SizeDryRuns(known.sizes!, (sizes, id) => client.dryRuns(sizes, id, this._replacedId));
    this._host = new HostChoice((name, chosen) => client.sessionOptions(name, chosen));
    this._choice.changed.connect(() => {
      this._dryRuns.follow(this._choice.target);
      this._followSize();
    });
    const list = new Widget();
    list.node.append(...this._listNodes());
    this.addWidget(list);
    const trans = translator.load(TRANSLATION_DOMAIN);
    const isOwn = (): boolean => this._isOwnKernel;
    const pickNew = (): void => this.pickNew();
    const { _choice: choice, _dryRuns: dryRuns, _host: host } = this;
    this.addWidget(new SizeForm({ choice, host, dryRuns, known, model, refusal, trans, isOwn, pickNew }));
    this._begin();
    this._watching = model.watch();
    model.changed.connect(choice.askAgain, choice);
    model.changed.connect(dryRuns.askAgain, dryRuns);
    this._select.addEventListener('change', () => this._choice.moveTo(this._target()));
  }

  /** Called by the dialog when it is accepted. */
  getValue(): Selected {
    const option = this._option();
    if (option?.id !== undefined) {
      return { id: option.id, change: this._choice.change };
    }
    if (option?.name === undefined) {
      return null;
    }
    return { name: this._choice.target === null ? Promise.resolve(option.name) : this._kernelName() };
  }

  private async _kernelName(): Promise<string> {
    const name = await this._choice.kernelName();
    return this._options.known.sized(name) === null ? name : this._host.named(name);
  }

  /** A custom size has a name once its dry run is there; until then the options before stay. */
  private _followSize(): void {
    const { choice, target, sizedName } = this._choice;
    const isNew = target !== null && target.running === null;
    if (sizedName !== null || !isNew || choice.kind === 'plain' || choice.kind === 'none') {
      this._host.follow(sizedName);
    }
  }

  override dispose(): void {
    this._watching.dispose();
    this._choice.dispose();
    this._host.dispose();
    this._dryRuns.dispose();
    super.dispose();
  }

  private _listNodes(): HTMLElement[] {
    const { context, translator } = this._options;
    const label = document.createElement('label');
    label.textContent = `${translator.load('jupyterlab').__('Select kernel for:')} "${context.name}"`;
    const options = SessionContextDialogs.kernelOptions(context, translator);
    this._select.disabled = options.disabled ?? false;
    for (const group of options.groups) {
      const node = document.createElement('optgroup');
      node.label = group.label;
      for (const { text, title, value, selected } of group.options) {
        const option = new Option(text, value, selected, selected);
        option.title = title ?? '';
        if (!this._isSizeOfListed(JSON.parse(value) as Option)) {
          node.append(option);
        }
      }
      if (node.childElementCount > 0) {
        this._select.append(node);
      }
    }
    label.append(this._select);
    return [label];
  }

  /** The GPU kernel that the new one replaces; a server without this kernel would refuse its id. */
  private get _replacedId(): string | undefined {
    const { context, model } = this._options;
    const id = context.session?.kernel?.id;
    return id === undefined || model.kernel(id) === null ? undefined : id;
  }

  /**
   * Whether the document's kernel is selected; without a size that can change the form shows none.
   */
  private get _isOwnKernel(): boolean {
    const id = this._option()?.id;
    return id !== undefined && id === this._options.context.session?.kernel?.id && this._baseOfOwn !== null;
  }

  /** The kernelspec of the document's kernel, if it has sizes. */
  private get _baseOfOwn(): string | null {
    const { context, known } = this._options;
    const name = context.session?.kernel?.name;
    const base = name === undefined ? null : known.base(name);
    return base !== null && presetsOf(base, known.sizes!).length > 0 ? base : null;
  }

  /** Select a new kernel on the kernelspec of the document's kernel. */
  pickNew(): void {
    this._point(this._baseOfOwn ?? '');
    this._choice.moveTo(this._target());
    this._select.focus();
  }

  /** The kernelspec that the document has now, or requests. */
  private _begin(): void {
    const { context, known, refusal } = this._options;
    const running = context.session?.kernel?.name;
    const name = running ?? context.kernelPreference.name ?? null;
    const base = refusal?.why.base ?? (name === null ? null : known.base(name));
    if (running === undefined && base !== null) {
      this._point(base);
    }
    this._host.begin((running === undefined && name !== null ? known.sized(name)?.host : null) ?? NO_HOST_PART);
    const target = this._target();
    if (refusal !== null && target !== null) {
      this._choice.propose(target.base, refusal.nearest);
    } else {
      this._choice.begin(base ?? target?.base ?? '', name);
      this._choice.moveTo(target);
    }
  }

  private _point(base: string): void {
    for (const option of Array.from(this._select.options)) {
      if ((JSON.parse(option.value) as Option)?.name?.toLowerCase() === base.toLowerCase()) {
        option.selected = true;
      }
    }
  }

  private _option(): Option {
    return JSON.parse(this._select.value) as Option;
  }

  /** The selected kernelspec, if it has sizes. */
  private _target(): ITarget | null {
    const { current, known } = this._options;
    const option = this._option();
    if (option?.id !== undefined) {
      return option.id === current?.running?.id ? current : null;
    }
    const base = option?.name;
    return base !== undefined && presetsOf(base, known.sizes!).length > 0 ? { base, running: null } : null;
  }

  private _isSizeOfListed(option: Option): boolean {
    const { known } = this._options;
    const base = option?.name === undefined ? undefined : known.sized(option.name)?.base;
    return base !== undefined && (known.lists(base) || known.lists(base.toLowerCase()));
  }

  private readonly _watching: IDisposable;
  private readonly _choice: SizeChoice;
  private readonly _dryRuns: SizeDryRuns;
  private readonly _host: HostChoice;
  private readonly _select = document.createElement('select');
}
