// Lab's dialogs of a session, of which one is ours: a kernel is selected together with its size. Where the server offers
// no sizes it is the stock dialog.

import { Dialog, ISessionContext, SessionContextDialogs, showErrorMessage } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { AliquotClient } from '../client';
import { KnownSpecs } from '../known_specs';
import { refusalNow } from '../refusal_now';
import { Refusal } from '../sizes';
import { StatusError, TRANSLATION_DOMAIN } from '../tokens';
import { KernelSelector, Selected } from './kernel_selector';

export interface ISizedDialogsOptions {
  known: KnownSpecs;
  client: AliquotClient;
  translator: ITranslator;
  settingRegistry: ISettingRegistry | null;
}

export class SizedDialogs extends SessionContextDialogs {
  constructor(private readonly _options: ISizedDialogsOptions) {
    super({
      translator: _options.translator,
      ...(_options.settingRegistry && { settingRegistry: _options.settingRegistry })
    });
  }

  override async selectKernel(context: ISessionContext): Promise<void> {
    if (context.isDisposed) {
      return;
    }
    const { known, client } = this._options;
    const sizes = await known.refreshSizes();
    if (sizes === null || context.isDisposed) {
      return super.selectKernel(context);
    }
    const name = context.session?.kernel ? null : (context.kernelPreference.name ?? null);
    const refusal = name === null ? null : await refusalNow(name, known, client);
    const selected = await this._ask(context, refusal);
    if (selected === undefined || context.isDisposed) {
      return;
    }
    if (selected === null) {
      return context.hasNoKernel ? undefined : context.shutdown();
    }
    await this._change(context, selected);
  }

  /** What is selected: a kernel, null for none, undefined where the dialog is cancelled. */
  private async _ask(context: ISessionContext, refusal: Refusal | null): Promise<Selected | undefined> {
    const { known, client, translator } = this._options;
    // The stock dialog's own words, in Lab's own translation.
    const stock = translator.load('jupyterlab');
    const selector = new KernelSelector({ context, known, client, translator, refusal });
    const { autoStartDefault } = context.kernelPreference;
    const dialog = new Dialog<Selected>({
      title: stock.__('Select Kernel'),
      body: selector,
      buttons: [
        Dialog.cancelButton({ label: context.hasNoKernel ? context.kernelDisplayName : stock.__('Cancel') }),
        Dialog.okButton({ label: stock.__('Select'), ariaLabel: stock.__('Select Kernel') })
      ],
      checkbox:
        typeof autoStartDefault === 'boolean'
          ? {
              label: stock.__('Always start the preferred kernel'),
              caption: stock.__('Remember my choice and always start the preferred kernel'),
              checked: autoStartDefault
            }
          : null
    });
    dialog.addClass('aliquot-KernelDialog');
    const { button, value, isChecked } = await dialog.launch();
    if (!button.accept || context.isDisposed) {
      return undefined;
    }
    if (typeof autoStartDefault === 'boolean' && isChecked !== null) {
      context.kernelPreference = { ...context.kernelPreference, autoStartDefault: isChecked };
    }
    return value;
  }

  private async _change(context: ISessionContext, selected: NonNullable<Selected>): Promise<void> {
    let model: { id: string } | { name: string };
    try {
      model = 'name' in selected ? { name: await selected.name } : selected;
    } catch (error) {
      const trans = this._options.translator.load(TRANSLATION_DOMAIN);
      const untold = error instanceof StatusError && error.kind === 'not-installed';
      const reason = untold ? trans.__('The server names no custom sizes. Pick one of those it offers.') : String(error);
      return showErrorMessage(trans.__('This size could not be asked for'), reason);
    }
    await context.changeKernel(model);
  }
}
