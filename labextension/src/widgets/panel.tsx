// The sidebar panel: notices on top, then devices and kernels in Lab's own accordion. Watches the
// model while shown.

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
import { Message, MessageLoop } from '@lumino/messaging';
import { AccordionPanel, Widget } from '@lumino/widgets';
import * as React from 'react';

import { AliquotClient } from '../client/client';
import { DeviceHistory } from '../history/device_history';
import { divide, GpuKernelsModel, IState } from '../model/model';
import { IKernel, IStatus, TRANSLATION_DOMAIN } from '../tokens';
import { ICommands } from './kernels/actions';
import { keepKernel } from './notifications/announce';
import { COMPACT_FROM, DeviceList } from './devices/devices';
import { EndedList } from './kernels/ended';
import { gpuIcon } from './elements/icons';
import { IKernelTools } from './kernels/kernel_entry';
import { KernelList } from './kernels/kernels';
import { NodeFacts } from './devices/node';
import { StateNotices } from './elements/notice';

export class GpuKernelsPanel extends SidePanel {
  constructor(options: GpuKernelsPanel.IOptions) {
    super({ translator: options.translator });
    const { model, client, commands } = options;
    this._model = model;
    this._client = client;
    const trans = options.translator.load(TRANSLATION_DOMAIN);
    const tools = { model, client, commands, trans, keep: (kernel: IKernel) => keepKernel(model, kernel.id) };
    this.id = GpuKernelsPanel.ID;
    this.addClass('aliquot-Panel');
    this.title.icon = gpuIcon;
    this.title.caption = trans.__('GPU kernels');
    this.node.setAttribute('role', 'region');
    this.node.setAttribute('aria-label', trans.__('GPU kernels'));
    this._addNotices(trans);
    this._devices = this._addSection(
      trans.__('Devices'),
      state => state.status && this._renderDevices(state.status, trans)
    );
    this._addSection(
      trans.__('Kernels'),
      state => state.status && this._renderKernels(state.status, tools)
    );
    this._addRefreshButton(trans);
    model.changed.connect(this._note, this);
    this._accordion.handleMoved.connect(() => {
      this._isSizedByHand = true;
    });
    this._devices.widgets.forEach(list => this._fitter.observe(list.node));
    this._fitter.observe(this._accordion.node); // notices above it come and go
  }

  override dispose(): void {
    this._unwatch();
    this._model.changed.disconnect(this._note, this);
    this._fitter.disconnect();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._startWatching();
  }

  protected override onResize(message: Widget.ResizeMessage): void {
    super.onResize(message);
    this._fitSections();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    if (this.isVisible) {
      this._startWatching();
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

  private _startWatching(): void {
    if (this._watch === null) {
      this._watch = this._model.watch();
      void this._seed();
    }
  }

  /** Connected first, so that sparklines render with the state that they belong to. */
  private _note(_: GpuKernelsModel, state: IState): void {
    this._history.note(state, Date.now() / 1000);
    if (this._wantsSeed && state.status) {
      void this._seed();
    }
  }

  /** Seed the sparklines from the gateway's history, if it keeps one. */
  private async _seed(): Promise<void> {
    const devices = this._model.state.status?.devices ?? [];
    this._wantsSeed = devices.length === 0;
    // With many devices no sparkline is visible, and their history is long.
    if (devices.length > 0 && devices.length < COMPACT_FROM) {
      try {
        this._history.seed(await this._client.history('hour', devices.map(device => device.uuid)));
      } catch {
        // Without a history the sparklines start now.
      }
    }
  }

  private _unwatch(): void {
    this._history.pause();
    this._watch?.dispose();
    this._watch = null;
  }

  private get _accordion(): AccordionPanel {
    return this.content as AccordionPanel;
  }

  /**
   * Give the devices the height that they need, up to a half, until the user resizes the sections.
   */
  private _fitSections(): void {
    const isOpen = this.isVisible && this._accordion.widgets.every(section => section.isVisible);
    // A notice changes the accordion's height through CSS alone: Lumino still divides the former
    // one.
    MessageLoop.sendMessage(this._accordion, Widget.ResizeMessage.UnknownSize);
    const height = this._accordion.widgets.reduce((sum, section) => sum + section.node.clientHeight, 0);
    if (isOpen && !this._isSizedByHand && height > 0) {
      const list = this._devices.widgets[0]?.node.offsetHeight ?? 0;
      const part = Math.min((list + 1) / height, 0.5);
      this._accordion.setRelativeSizes([part, 1 - part]);
    }
  }

  private _renderDevices(status: IStatus, trans: TranslationBundle): JSX.Element {
    return (
      <>
        <UseSignal signal={this._history.seeded}>
          {() => <DeviceList status={status} history={this._history} trans={trans} />}
        </UseSignal>
        <NodeFacts status={status} trans={trans} />
      </>
    );
  }

  private _renderKernels(status: IStatus, tools: IKernelTools): JSX.Element {
    const { live, ended } = divide(status.kernels);
    const { model, trans } = tools;
    const present = ended.filter(kernel => !model.isDismissed(kernel));
    return (
      <>
        <KernelList kernels={live} status={status} tools={tools} />
        <EndedList kernels={present} {...{ status, trans }} dismiss={kernel => model.dismiss(kernel)} />
      </>
    );
  }

  private _addRefreshButton(trans: TranslationBundle): void {
    this._devices.toolbar.addItem(
      'refresh',
      new ToolbarButton({
        icon: refreshIcon,
        tooltip: trans.__('Refresh'),
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
  private readonly _client: AliquotClient;
  private readonly _history = new DeviceHistory();
  private _wantsSeed = false;
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
    client: AliquotClient;
    commands: ICommands;
    translator: ITranslator;
  }
}
