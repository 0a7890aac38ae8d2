// Starts a notebook at the size that its metadata names, custom sizes included. If the size is not
// available, no other kernel starts: Lab opens the picker, which shows the reason.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { DocumentRegistry } from '@jupyterlab/docregistry';
import { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';
import { ITranslator, nullTranslator } from '@jupyterlab/translation';

import { IGpuKernels } from '../../gpu_kernels';
import { KnownSpecs } from '../../sizes/known_specs';
import { refusalNow } from '../../sizes/refusal_now';
import { TRANSLATION_DOMAIN } from '../../tokens';
import { UnaskedStarts } from '../../widgets/notebook/unasked_starts';

export const sizedNotebooks = (
  app: JupyterFrontEnd,
  { client, model }: IGpuKernels,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
): void => {
  const unasked = new UnaskedStarts(model, client, restorer, (translator ?? nullTranslator).load(TRANSLATION_DOMAIN));
  const known = app.serviceManager.kernelspecs;
  if (!(known instanceof KnownSpecs)) {
    return; // That plugin is disabled, and Lab knows the listed sizes only.
  }
  app.docRegistry.addWidgetExtension('Notebook', {
    createNew: (_: NotebookPanel, context: DocumentRegistry.IContext<INotebookModel>) => {
      startAsNamed(context.sessionContext, known, name => refusalNow(name, known, client));
      unasked.hold(context.sessionContext, app.serviceManager.contents.localPath(context.path));
      const complete = (): void => completeMetadata(context.model, known);
      context.model.metadataChanged.connect(complete);
    }
  });
};

/** Start a custom size, for which Lab would start a listed kernelspec of the same language. */
function startAsNamed(
  context: ISessionContext,
  known: KnownSpecs,
  refusalOf: (name: string) => Promise<unknown>
): void {
  const start = context.startKernel.bind(context);
  context.startKernel = async () => {
    const { id, name } = context.kernelPreference;
    if (id || !name || known.lists(name)) {
      return start();
    }
    await known.ready;
    const needsSelection = (await refusalOf(name)) !== null;
    return needsSelection || known.listing(name, start);
  };
}

/** Write the display name and the language of a custom size, which are those of its kernelspec. */
function completeMetadata(model: INotebookModel, known: KnownSpecs): void {
  const written = model.getMetadata('kernelspec') as { name?: string; display_name?: string; language?: string } | undefined;
  const name = written?.name;
  if (name === undefined || known.lists(name) || known.base(name) === name) {
    return;
  }
  const spec = known.specs?.kernelspecs[name];
  if (spec !== undefined && (written?.display_name !== spec.display_name || written?.language !== spec.language)) {
    model.setMetadata('kernelspec', { name, display_name: spec.display_name, language: spec.language });
  }
}
