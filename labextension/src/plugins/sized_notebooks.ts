// A notebook starts at the size that it names, custom ones included, and its metadata says that size in full. Where it
// cannot be had, nothing else is started in its place: Lab is told to ask, and the picker says why. A size that is
// changed from this page is the notebook's from then on.

import { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ISessionContext } from '@jupyterlab/apputils';
import { DocumentRegistry } from '@jupyterlab/docregistry';
import { INotebookModel, NotebookPanel } from '@jupyterlab/notebook';

import { AliquotClient } from '../client';
import { IGpuKernels } from '../gpu_kernels';
import { KnownSpecs } from '../known_specs';
import { refusalNow } from '../refusal_now';
import { ResizeMemory } from '../resize_memory';
import { IKernel, PluginIDs } from '../tokens';

export const sizedNotebooks: JupyterFrontEndPlugin<void> = {
  id: PluginIDs.sizedNotebooks,
  description: 'Starts notebooks at the size that they name, and never at another.',
  autoStart: true,
  requires: [IGpuKernels],
  activate: (app: JupyterFrontEnd, { client, model }: IGpuKernels): void => {
    const known = app.serviceManager.kernelspecs;
    if (!(known instanceof KnownSpecs)) {
      return; // That plugin is disabled, and Lab knows the listed sizes only.
    }
    app.docRegistry.addWidgetExtension('Notebook', {
      createNew: (_: NotebookPanel, context: DocumentRegistry.IContext<INotebookModel>) => {
        startAsNamed(context.sessionContext, known, name => refusalNow(name, known, client));
        const complete = (): void => completeMetadata(context.model, known);
        context.model.metadataChanged.connect(complete);
        const memory = new ResizeMemory(client, model, kernel => {
          const isOurs = context.sessionContext.session?.kernel?.id === kernel.id;
          return isOurs ? nameSize(context, known, client, kernel) : Promise.resolve();
        });
        context.disposed.connect(() => memory.dispose());
      }
    });
  }
};

/** Lab starts what it lists, or else a kernelspec of the same language: neither is what a custom size asks for. */
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

/** Lab knows the display name and the language of listed kernelspecs; a custom size's are as its base's. */
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

/** The notebook asks from now on for the size that its kernel has. */
async function nameSize(
  context: DocumentRegistry.IContext<INotebookModel>,
  known: KnownSpecs,
  client: AliquotClient,
  kernel: IKernel
): Promise<void> {
  const written = context.model.getMetadata('kernelspec') as { name?: string } | undefined;
  const base = known.sized(written?.name ?? kernel.name)?.base;
  if (base === undefined) {
    return;
  }
  const { gpus, memory_limit_bytes: memory, workload_class } = kernel;
  const { suffix } = await client.outlook({ gpus, memory, workload_class }, kernel.id);
  const name = `${base}.${suffix}`;
  const spec = known.specs?.kernelspecs[name];
  if (spec !== undefined && name !== written?.name && !context.isDisposed) {
    context.model.setMetadata('kernelspec', { name, display_name: spec.display_name, language: spec.language });
    context.sessionContext.kernelPreference = { ...context.sessionContext.kernelPreference, name };
  }
}
