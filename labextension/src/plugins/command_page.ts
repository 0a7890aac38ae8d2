// A page of the main area behind a command, with a place in the palette and its return after a
// reload; schema/plugin.json has its place in the View menu. A page is made when it is opened.

import { ILayoutRestorer, JupyterFrontEnd } from '@jupyterlab/application';
import { ICommandPalette, MainAreaWidget, WidgetTracker } from '@jupyterlab/apputils';
import { ITranslator, nullTranslator, TranslationBundle } from '@jupyterlab/translation';
import { LabIcon } from '@jupyterlab/ui-components';
import { Widget } from '@lumino/widgets';

import { IGpuKernels } from '../gpu_kernels';
import { TRANSLATION_DOMAIN } from '../tokens';

/** A command that shows something of ours. */
export interface IShowCommand {
  readonly command: string;
  /** `GPU History`: the command's name in menus, and the title of its page. */
  readonly title: string;
  /** `Show GPU History`: its name in the palette. */
  readonly show: string;
  readonly caption: string;
  readonly icon: LabIcon;
  /** Whether the user may have it; without this, all users may. */
  readonly isVisible?: () => boolean;
}

export interface ICommandPage extends IShowCommand {
  /** The page's id, and its name in the layout that Lab restores. */
  readonly id: string;
  /** The accessible name: the area has one for all content. */
  readonly name: string;
  readonly content: () => Widget | Promise<Widget>;
}

/** The activation of a plugin that has such a page, with the services that it is given. */
export type PageActivation = (
  app: JupyterFrontEnd,
  gpus: IGpuKernels,
  palette: ICommandPalette | null,
  restorer: ILayoutRestorer | null,
  translator: ITranslator | null
) => void;

/** Return the activation of the plugin whose page is described. */
export function commandPage(describe: (trans: TranslationBundle, gpus: IGpuKernels) => ICommandPage): PageActivation {
  return (app, gpus, palette, restorer, translator) => {
    const trans = (translator ?? nullTranslator).load(TRANSLATION_DOMAIN);
    const page = describe(trans, gpus);
    const tracker = new WidgetTracker<MainAreaWidget>({ namespace: page.id });
    let opened: Promise<MainAreaWidget> | null = null;
    const forget = (): void => {
      opened = null;
    };
    const open = async (): Promise<void> => {
      // One page, also where the command comes again while the page's code is loaded.
      opened ??= openedPage(app, page, tracker, forget);
      try {
        app.shell.activateById((await opened).id);
      } catch (error) {
        forget();
        throw error;
      }
    };
    addShowCommand(app, palette, trans, page, open);
    void restorer?.restore(tracker, { command: page.command, name: () => page.id });
  };
}

/** Add a command that shows something, and its place in the palette. */
export function addShowCommand(
  { commands }: JupyterFrontEnd,
  palette: ICommandPalette | null,
  trans: TranslationBundle,
  { command, title, show, caption, icon, isVisible }: IShowCommand,
  execute: () => unknown
): void {
  commands.addCommand(command, {
    label: args => (args.isPalette ? show : title),
    caption,
    icon: args => (args.isPalette ? undefined : icon),
    describedBy: { args: { type: 'object', properties: { isPalette: { type: 'boolean' } } } },
    ...(isVisible ? { isVisible } : {}),
    execute
  });
  palette?.addItem({ command, category: trans.__('View'), args: { isPalette: true } });
}

async function openedPage(
  { shell }: JupyterFrontEnd,
  { id, title, name, icon, content: make }: ICommandPage,
  tracker: WidgetTracker<MainAreaWidget>,
  onClosed: () => void
): Promise<MainAreaWidget> {
  const content = await make();
  const widget = new MainAreaWidget({ content });
  content.node.setAttribute('aria-label', name);
  widget.id = id;
  widget.title.label = title;
  widget.title.icon = icon;
  widget.title.closable = true;
  widget.toolbar.hide();
  widget.disposed.connect(onClosed);
  await tracker.add(widget);
  shell.add(widget, 'main');
  return widget;
}
