// A notebook's kernel in one line, as a button of a toolbar or of the status bar. Watches the model
// while it is seen and there is something to follow. Opens nothing itself: a click is handed on.

import { TranslationBundle } from '@jupyterlab/translation';
import { TextItem } from '@jupyterlab/statusbar';
import { ReactWidget, ToolbarButtonComponent } from '@jupyterlab/ui-components';
import { IDisposable } from '@lumino/disposable';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { AttachedKernel } from '../../sessions/attached_kernel';
import { kernelHint, kernelLine, kernelSize } from '../../model/kernel_line';
import { GpuKernelsModel } from '../../model/model';
import { gpuIcon } from '../elements/icons';

export class KernelItem extends ReactWidget {
  constructor(private readonly _options: KernelItem.IOptions) {
    super();
    this.addClass('aliquot-KernelItem');
    this.addClass(_options.place === 'toolbar' ? 'jp-ToolbarButton' : 'jp-mod-highlighted');
    this.attached = _options.attached ?? null;
  }

  /** The notebook's or console's kernel; null for none. The caller disposes of it. */
  get attached(): AttachedKernel | null {
    return this._attached;
  }

  set attached(attached: AttachedKernel | null) {
    this._attached?.changed.disconnect(this._onChanged, this);
    this._attached = attached;
    attached?.changed.connect(this._onChanged, this);
    this._onChanged();
  }

  /** The button: the anchor of the popover, and the target of its returned focus. */
  get button(): HTMLElement {
    return this.node.querySelector<HTMLElement>('jp-button, button, [role="button"]') ?? this.node;
  }

  /** The label for screen readers. */
  set isOpen(isOpen: boolean) {
    this._isOpen = isOpen;
    this.toggleClass('jp-mod-clicked', isOpen && this._options.place === 'status-bar');
    this.update();
  }

  override dispose(): void {
    if (this.isDisposed) {
      return;
    }
    this._unwatch();
    this._attached?.changed.disconnect(this._onChanged, this);
    super.dispose();
  }

  protected override render(): JSX.Element | null {
    const { trans, place } = this._options;
    const { attachment, kernel } = this._attached ?? {};
    if (!attachment || attachment === 'unknown' || attachment === 'elsewhere') {
      return null;
    }
    const props = {
      text: kernel ? kernelLine(kernel, trans) : kernelSize(0, trans),
      hint: kernel ? kernelHint(kernel, trans) : trans.__('This kernel has no GPU: choose one that has'),
      state: kernel?.state ?? 'none',
      isOpen: this._isOpen,
      press: () => this._options.press(this)
    };
    return place === 'toolbar' ? <ToolbarLook {...props} /> : <StatusLook {...props} />;
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._follow();
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._follow();
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._unwatch();
  }

  protected override onBeforeDetach(message: Message): void {
    this._unwatch();
    super.onBeforeDetach(message);
  }

  private _onChanged(): void {
    this._follow();
    this.update();
  }

  /** Watch the model while the shown figures can change. */
  private _follow(): void {
    const attached = this._attached;
    const mayChange =
      attached?.attachment === 'ours'
        ? attached.kernel?.state !== 'ended'
        : attached?.attachment === 'unknown' && Boolean(attached.session.session?.kernel);
    if (this.isVisible && mayChange) {
      this._watch ??= this._options.model.watch();
    } else {
      this._unwatch();
    }
  }

  private _unwatch(): void {
    this._watch?.dispose();
    this._watch = null;
  }

  private _attached: AttachedKernel | null = null;
  private _watch: IDisposable | null = null;
  private _isOpen = false;
}

export namespace KernelItem {
  export interface IOptions {
    model: GpuKernelsModel;
    trans: TranslationBundle;
    place: 'toolbar' | 'status-bar';
    attached?: AttachedKernel;
    press: (item: KernelItem) => void;
  }
}

interface ILookProps {
  text: string;
  hint: string;
  /** For the style sheet. */
  state: string;
  isOpen: boolean;
  press: () => void;
}

function ToolbarLook({ text, hint, state, isOpen, press }: ILookProps): JSX.Element {
  // The button of JupyterLab 4.4 reports a key twice: by itself, and by the click that the browser makes of the key.
  const onClick = (): void => {
    if (window.event?.type === 'keydown') {
      window.event.preventDefault();
    }
    press();
  };
  return (
    <ToolbarButtonComponent
      className="aliquot-KernelItem-button"
      icon={gpuIcon}
      label={text}
      tooltip={hint}
      dataset={{ 'data-state': state }}
      aria-haspopup="dialog"
      aria-expanded={isOpen}
      onClick={onClick}
    />
  );
}

function StatusLook({ text, hint, state, isOpen, press }: ILookProps): JSX.Element {
  const onKey = (event: React.KeyboardEvent): void => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      press();
    }
  };
  return (
    <TextItem
      role="button"
      tabIndex={0}
      source={text}
      title={hint}
      data-state={state}
      aria-haspopup="dialog"
      aria-expanded={isOpen}
      onClick={press}
      onKeyDown={onKey}
    />
  );
}
