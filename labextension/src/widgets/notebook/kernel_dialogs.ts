// Lab's session dialogs; ours selects a kernel together with its size. Without sizes on the server
// it is Lab's own dialog.

import { Dialog, ISessionContext, ISessionContextDialogs, SessionContextDialogs, showErrorMessage } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { ITranslator } from '@jupyterlab/translation';

import { obstacle } from '../../model/action_rules';
import { AliquotClient } from '../../client/client';
import { KnownSpecs } from '../../sizes/known_specs';
import { GpuKernelsModel } from '../../model/model';
import { nearestNow, refusalNow } from '../../sizes/refusal_now';
import { sizeOf } from '../../sizes/resize_request';
import { ITarget } from '../../sizes/size_choice';
import { ISizes, TRANSLATION_DOMAIN } from '../../tokens';
import { failureText } from '../elements/action_words';
import { IRefused, KernelSelector, Selected } from '../sizes/kernel_selector';

export interface ISizedDialogsOptions {
  known: KnownSpecs;
  client: AliquotClient;
  model: GpuKernelsModel;
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
    await this._select(context);
    if (!context.isDisposed && context.hasNoKernel) {
      // Otherwise Lab keeps saying that a kernel is starting, and cells wait for it.
      await context.shutdown();
    }
  }

  /** Select a kernel, with the dialog open at the sizes of a new one. */
  async selectSize(context: ISessionContext): Promise<void> {
    this._wantsSize = true;
    try {
      await this.selectKernel(context);
    } finally {
      this._wantsSize = false;
    }
  }

  private async _select(context: ISessionContext): Promise<void> {
    if (context.isDisposed) {
      return;
    }
    const sizes = await this._options.known.latestSizes();
    if (sizes === null || context.isDisposed) {
      return super.selectKernel(context);
    }
    const name = context.session?.kernel ? null : (context.kernelPreference.name ?? null);
    const refusal = name === null ? null : await this._refusal(name, sizes);
    const selected = await this._ask(context, refusal, await this._current(context));
    if (selected === undefined || context.isDisposed) {
      return;
    }
    if (selected === null) {
      return context.hasNoKernel ? undefined : context.shutdown();
    }
    await this._change(context, selected);
  }

  private async _refusal(name: string, sizes: ISizes): Promise<IRefused | null> {
    const { known, client } = this._options;
    const why = await refusalNow(name, known, client);
    return why && { why, nearest: 'asked' in why && why.asked !== null ? await nearestNow(why.asked, sizes, client) : null };
  }

  /**
   * The running kernel with its current size, which may differ from that at its start; null without
   * one.
   */
  private async _current(context: ISessionContext): Promise<ITarget | null> {
    const running = context.session?.kernel;
    const base = running && this._options.known.sized(running.name)?.base;
    if (!running || !base) {
      return null;
    }
    const { model } = this._options;
    if (model.kernel(running.id) === null) {
      await model.readAnew(); // it may be newer than the last answer
    }
    const { status } = model.state;
    const kernel = status?.kernels.find(one => one.id === running.id && obstacle('resize', one, status) === null);
    return kernel ? { base, running: { id: kernel.id, has: sizeOf(kernel) } } : null;
  }

  /** The selection: a kernel, null for none, undefined if the dialog was cancelled. */
  private async _ask(
    context: ISessionContext,
    refusal: IRefused | null,
    current: ITarget | null
  ): Promise<Selected | undefined> {
    const { known, client, model, translator } = this._options;
    // The texts of Lab's own dialog, in Lab's translation.
    const stock = translator.load('jupyterlab');
    const selector = new KernelSelector({ context, known, client, model, translator, refusal, current });
    if (this._wantsSize) {
      selector.pickNew();
    }
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
    const trans = this._options.translator.load(TRANSLATION_DOMAIN);
    let model: { id: string } | { name: string };
    try {
      if ('id' in selected && selected.change !== null) {
        await this._options.client.resize(selected.id, selected.change);
        return this._options.model.refresh();
      }
      model = 'name' in selected ? { name: await selected.name } : { id: selected.id };
    } catch (error) {
      return showErrorMessage(trans.__('This size is not available'), failureText(error, trans));
    }
    await context.changeKernel(model);
  }

  private _wantsSize = false;
}

/** Open our own dialog at the sizes, another one unchanged. */
export async function pickSize(dialogs: ISessionContextDialogs | null, context: ISessionContext): Promise<void> {
  await (dialogs instanceof SizedDialogs ? dialogs.selectSize(context) : dialogs?.selectKernel(context));
}
