// A small window beside a button: opens by it, takes the focus, closes by Escape or a click elsewhere and gives it back.
// What is in it, others decide. Lab's own `Popup` opens upwards alone, which is right for a status bar and no other bar.

import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

/** Between the button and the window, and between the window and the edge of the page. */
const GAP_PX = 4;

const FOCUSABLE =
  'a[href], button:not([disabled]), input:not([disabled]), select:not([disabled]), summary, jp-button, [tabindex="0"]';

export class Popover extends Widget {
  constructor(private readonly _options: Popover.IOptions) {
    super();
    this.addClass('aliquot-Popover');
    this.addClass('jp-ThemedContainer'); // else buttons and inputs are without Lab's style outside its shell
    this.node.setAttribute('role', 'dialog');
    this.node.setAttribute('aria-label', _options.label);
    this.node.tabIndex = -1;
    const layout = (this.layout = new PanelLayout());
    layout.addWidget(_options.body);
  }

  open(): void {
    Widget.attach(this, document.body);
    // Its content is rendered by React: it has no size yet, nor anything to focus.
    void Promise.resolve(this._options.ready()).then(() => {
      if (this.isAttached) {
        this._place();
        this.node.focus({ preventScroll: true });
      }
    });
  }

  /** With the focus back where it came from, if it is still in here. */
  override close(): void {
    const hadFocus = this.node.contains(document.activeElement);
    super.close();
    if (hadFocus) {
      this._options.anchor().focus();
    }
  }

  handleEvent(event: Event): void {
    if (event.type === 'keydown') {
      this._onKey(event as KeyboardEvent);
    } else if (event.type === 'resize') {
      this._place();
    } else if (!this._isOurs(event.target)) {
      this.close();
    }
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.node.addEventListener('keydown', this);
    document.addEventListener('pointerdown', this, true);
    document.addEventListener('focusin', this, true);
    window.addEventListener('resize', this);
    this._sizes.observe(this.node);
    this._contents.observe(this.node, { childList: true, subtree: true });
  }

  protected override onBeforeDetach(message: Message): void {
    this._sizes.disconnect();
    this._contents.disconnect();
    this.node.removeEventListener('keydown', this);
    document.removeEventListener('pointerdown', this, true);
    document.removeEventListener('focusin', this, true);
    window.removeEventListener('resize', this);
    super.onBeforeDetach(message);
  }

  protected override onCloseRequest(message: Message): void {
    super.onCloseRequest(message);
    this.dispose();
  }

  private _onKey(event: KeyboardEvent): void {
    if (event.key === 'Escape') {
      event.stopPropagation(); // it closes this window, and nothing behind it
      this.close();
    } else if (event.key === 'Tab' && this._leaves(event.shiftKey)) {
      event.preventDefault(); // it is the page's last element: what comes next is beside the button
      this.close();
    }
  }

  /** Whether the next Tab goes out of here. */
  private _leaves(backwards: boolean): boolean {
    const found = Array.from(this.node.querySelectorAll<HTMLElement>(FOCUSABLE));
    const stops = found.filter(stop => stop.offsetParent !== null);
    const edge = backwards ? stops[0] : stops[stops.length - 1];
    const at = document.activeElement;
    return edge === undefined || at === edge || edge.contains(at) || (backwards && at === this.node);
  }

  /** A dialog that an action in here opened is still ours: a click in it closes nothing. */
  private _isOurs(target: EventTarget | null): boolean {
    const node = target instanceof Element ? target : null;
    return (
      node === null || this.node.contains(node) || this._options.anchor().contains(node) || !!node.closest('.jp-Dialog')
    );
  }

  /** Below the button where there is room, above it otherwise; within the page in any case. */
  private _place(): void {
    const anchor = this._options.anchor().getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.node;
    const below = window.innerHeight - anchor.bottom;
    const isBelow = below >= height + 2 * GAP_PX || below >= anchor.top;
    const top = isBelow ? anchor.bottom + GAP_PX : anchor.top - GAP_PX - height;
    const left = Math.min(anchor.left, window.innerWidth - GAP_PX - width);
    this.node.style.top = `${Math.max(GAP_PX, Math.min(top, window.innerHeight - GAP_PX - height))}px`;
    this.node.style.left = `${Math.max(GAP_PX, left)}px`;
  }

  /** A button that is gone once it was pressed, such as one that has become another, takes the focus with it. */
  private _keepFocus(): void {
    if (document.activeElement === document.body && this.isAttached) {
      this.node.focus({ preventScroll: true });
    }
  }

  private readonly _sizes = new ResizeObserver(() => this._place());
  private readonly _contents = new MutationObserver(() => this._keepFocus());
}

export namespace Popover {
  export interface IOptions {
    body: Widget;
    label: string;
    /** The button. Asked each time: React may have made another. */
    anchor: () => HTMLElement;
    /** When the body, attached, has its content. */
    ready: () => Promise<void> | undefined;
  }
}
