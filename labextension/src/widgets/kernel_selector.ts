// The body of the dialog: Lab's own list of kernels, in which each kernelspec is named once, and below it the form of
// the size for one that has sizes.

import { ISessionContext, SessionContextDialogs } from '@jupyterlab/apputils';
import { ITranslator } from '@jupyterlab/translation';
import { Panel, Widget } from '@lumino/widgets';

import { AliquotClient } from '../client';
import { KnownSpecs } from '../known_specs';
import { SizeChoice } from '../size_choice';
import { presetsOf, Refusal } from '../sizes';
import { TRANSLATION_DOMAIN } from '../tokens';
import { SizeForm } from './size_form';

/** A kernel that runs, a kernelspec to start (whose name the server may have to be asked for), or none. */
export type Selected = { readonly id: string } | { readonly name: Promise<string> } | null;

/** As the stock dialog writes it into an option. */
type Option = { readonly id?: string; readonly name?: string } | null;

export interface IKernelSelectorOptions {
  context: ISessionContext;
  known: KnownSpecs;
  client: AliquotClient;
  translator: ITranslator;
  /** Why the size that the document names cannot be had. */
  refusal: Refusal | null;
}

export class KernelSelector extends Panel {
  constructor(private readonly _options: IKernelSelectorOptions) {
    super();
    const { known, client, translator, refusal } = _options;
    this.addClass('aliquot-KernelSelector');
    this._choice = new SizeChoice(known.sizes!, wish => client.outlook(wish));
    const list = new Widget();
    list.node.append(...this._listNodes());
    this.addWidget(list);
    const trans = translator.load(TRANSLATION_DOMAIN);
    this.addWidget(new SizeForm({ choice: this._choice, known, refusal, trans }));
    this._begin();
    this._select.addEventListener('change', () => this._choice.moveTo(this._base()));
  }

  /** Called by the dialog when it is accepted. */
  getValue(): Selected {
    const option = this._option();
    if (option?.id !== undefined) {
      return { id: option.id };
    }
    if (option?.name === undefined) {
      return null;
    }
    return { name: this._choice.base === null ? Promise.resolve(option.name) : this._choice.kernelName() };
  }

  override dispose(): void {
    this._choice.dispose();
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
      this._select.append(node);
    }
    label.append(this._select);
    return [label];
  }

  /** What the document has now, or asks for. */
  private _begin(): void {
    const { context, known, refusal } = this._options;
    const running = context.session?.kernel?.name;
    const name = running ?? context.kernelPreference.name ?? null;
    const base = refusal?.base ?? (name === null ? null : (known.sized(name)?.base ?? name));
    if (running === undefined && base !== null) {
      this._point(base);
    }
    const selected = this._base();
    if (refusal !== null && 'asked' in refusal && selected !== null) {
      this._choice.propose(selected, refusal.asked);
    } else {
      this._choice.begin(selected ?? base ?? '', name);
      this._choice.moveTo(selected);
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

  /** The kernelspec selected, if sizes are offered on it. */
  private _base(): string | null {
    const name = this._option()?.name;
    return name !== undefined && presetsOf(name, this._options.known.sizes!).length > 0 ? name : null;
  }

  private _isSizeOfListed(option: Option): boolean {
    const { known } = this._options;
    const base = option?.name === undefined ? undefined : known.sized(option.name)?.base;
    return base !== undefined && (known.lists(base) || known.lists(base.toLowerCase()));
  }

  private readonly _choice: SizeChoice;
  private readonly _select = document.createElement('select');
}
