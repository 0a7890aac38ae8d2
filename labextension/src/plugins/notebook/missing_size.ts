// Offers a GPU size when a cell finds no CUDA device in a kernel that has none.

import { JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContextDialogs, Notification } from '@jupyterlab/apputils';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { AttachedKernel } from '../../sessions/attached_kernel';
import { IGpuKernels } from '../../gpu_kernels';
import { MissingSizes } from '../../sizes/missing_size';
import { TRANSLATION_DOMAIN } from '../../tokens';
import { pickSize } from '../../widgets/notebook/kernel_dialogs';
import { eachNotebook } from './notebook_kernels';

export const missingSize = (
  _: JupyterFrontEnd,
  { model }: IGpuKernels,
  notebooks: INotebookTracker,
  dialogs: ISessionContextDialogs | null,
  translator: ITranslator | null
): void => {
  const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
  const missing = new MissingSizes();
  eachNotebook(notebooks, ({ sessionContext }) => {
    const attached = new AttachedKernel(model, sessionContext); // ends with its session
    sessionContext.iopubMessage.connect((context, message) => {
      const id = context.session?.kernel?.id;
      if (id === undefined || attached.attachment !== 'none' || !missing.hear(id, message)) {
        return;
      }
      const text = trans.__('The kernel of %1 has no GPU: it was started without a size.', context.name);
      const callback = (): void => void pickSize(dialogs, context);
      const actions = [{ label: trans.__('Choose a Size'), displayType: 'accent' as const, callback }];
      Notification.warning(text, { autoClose: false, actions });
    });
  });
};
