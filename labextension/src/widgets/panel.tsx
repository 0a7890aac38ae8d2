// The sidebar panel: notices on top, then devices and kernels in Lab's own accordion. Watches the model while shown.

import { ITranslator, TranslationBundle } from '@jupyterlab/translation';
import {
  PanelWithToolbar,
  ReactWidget,
  refreshIcon,
  SidePanel,
  ToolbarButton,
  UseSignal
} from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import { AccordionPanel, Widget } from '@lumino/widgets';
import * as React from 'react';

import { divide, GpuKernelsModel, IState } from '../model';
import { IStatus, TRANSLATION_DOMAIN } from '../tokens';
import { keepKernel } from './announce';
import { DeviceList } from './devices';
import { EndedList } from './ended';
import { gpuIcon } from './icons';
import { KernelList } from './kernels';
import { StateNotices } from './notice';

export class GpuKernelsPanel extends SidePanel {
  constructor(options: GpuKernelsPanel.IOptions) {
    super({ translator: options.translator });
    const { model, open } = options;
    this._model = model;
    const trans = options.translator.load(TRANSLATION_DOMAIN);
    this.id = GpuKernelsPanel.ID;
    this.addClass('aliquot-Panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU kernels');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU kernels'));
    this._addNotices(trans);
    this._devices = this._addSection(
      trans.__('Devices'),
      state => state.status && <DeviceList devices={state.status.devices} trans={trans} />
    );
    this._addSection(
      trans.__('Kernels'),
      state => state.status && this._kernels(state.status, trans, open)
    );
    this._addRefreshButton(trans);
    this._accordion.handleMoved.connect(() => {
      this._isSizedByHand = true;
    });
    this._devices.widgets.forEach(list => this._fitter.observe(list.node));
  }

  override dispose(): void {
    this._unwatch();
    this._fitter.disconnect();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._watch ??= this._model.watch();
  }

  protected override onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    this._fitSections();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._watch ??= this._model.watch();
    }
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._unwatch();
  }

  protected override onBeforeDetach(message: Message): void {
    this._unwatch();
    super.onBeforeDetach(message);
  }

  private _unwatch(): void {
    this._watch?.dispose();
    this._watch = null;
  }

  private get _accordion(): AccordionPanel {
    return this.content as AccordionPanel;
  }

  /** Gives the devices the height they need, up to a half, until the user has chosen another division. */
  private _fitSections(): void {
    const isOpen = this.isVisible && this._accordion.widgets.every(section => section.isVisible);
    const height = this._accordion.widgets.reduce((sum, section) => sum + section.node.clientHeight, 0);
    if (isOpen && !this._isSizedByHand && height > 0) {
      const list = this._devices.widgets[0]?.node.offsetHeight ?? 0;
      const part = Math.min((list + 1) / height, 0.5);
      this._accordion.setRelativeSizes([part, 1 - part]);
    }
  }

  private _kernels(status: IStatus, trans: TranslationBundle, open: (path: string) => void): JSX.Element {
    const { live, ended } = divide(status.kernels);
    const model = this._model;
    const present = ended.filter(kernel => !model.isDismissed(kernel));
    return (
      <>
        <KernelList kernels={live} {...{ status, trans, open }} keep={kernel => keepKernel(model, kernel.id)} />
        <EndedList kernels={present} {...{ status, trans }} dismiss={kernel => model.dismiss(kernel)} />
      </>
    );
  }

  private _addRefreshButton(trans: TranslationBundle): void {
    this._devices.toolbar.addItem(
      'refresh',
      new ToolbarButton({
        icon: refreshIcon,
        tooltip: trans.__('Look at the GPUs now'),
        onClick: () => void this._model.refresh()
      })
    );
  }

  private _addNotices(trans: TranslationBundle): void {
    const notices = this._render(state => <StateNotices state={state} trans={trans} />);
    notices.addClass('aliquot-Notices');
    this.header.addWidget(notices);
  }

  private _addSection(label: string, render: (state: IState) => React.ReactNode): PanelWithToolbar {
    const section = new PanelWithToolbar();
    section.addClass('aliquot-Section');
    section.node.tabIndex = 0; // a list without links is scrolled by keyboard through its section
    section.title.label = label;
    section.addWidget(this._render(render));
    this.addWidget(section);
    return section;
  }

  private _render(render: (state: IState) => React.ReactNode): ReactWidget {
    const model = this._model;
    return ReactWidget.create(
      <UseSignal signal={model.changed} initialArgs={model.state}>
        {() => <>{render(model.state)}</>}
      </UseSignal>
    );
  }

  private readonly _model: GpuKernelsModel;
  private readonly _devices: PanelWithToolbar;
  // In the next frame: a size that changes during its own observation is an error to the browser.
  private readonly _fitter = new ResizeObserver(() => requestAnimationFrame(() => this._fitSections()));
  private _isSizedByHand = false;
  private _watch: IDisposable | null = null;
}

export namespace GpuKernelsPanel {
  export const ID = 'aliquot-gpu-kernels';

  export interface IOptions {
    model: GpuKernelsModel;
    translator: ITranslator;
    /** Opens the notebook at a path. */
    open: (path: string) => void;
  }
}
