// A small window beside a button. It takes the focus, closes on Escape or a click elsewhere, and
// returns the focus. Lab's own `Popup` opens upwards only, which suits a status bar and no other
// bar.

import { Message } from '@lumino/messaging';
import { PanelLayout, Widget } from '@lumino/widgets';

/** The gap between button and window, and between window and edge of the page. */
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
    // React renders the content later: it has no size yet, and nothing to focus.
    void Promise.resolve(this._options.ready()).then(() => {
      if (this.isAttached) {
        this._place();
        this.node.focus({ preventScroll: true });
      }
    });
  }

  /** Close, and return the focus if it is in this window. */
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
      event.stopPropagation(); // Escape closes this window alone
      this.close();
    } else if (event.key === 'Tab' && this._leaves(event.shiftKey)) {
      event.preventDefault(); // it is the page's last element: what comes next is beside the button
      this.close();
    }
  }

  /** Whether the next Tab leaves this window. */
  private _leaves(backwards: boolean): boolean {
    const found = Array.from(this.node.querySelectorAll<HTMLElement>(FOCUSABLE));
    const stops = found.filter(stop => stop.offsetParent !== null);
    const edge = backwards ? stops[0] : stops[stops.length - 1];
    const at = document.activeElement;
    return edge === undefined || at === edge || edge.contains(at) || (backwards && at === this.node);
  }

  /** Whether a click is inside, or in a dialog that an action of this window opened. */
  private _isOurs(target: EventTarget | null): boolean {
    const node = target instanceof Element ? target : null;
    return (
      node === null || this.node.contains(node) || this._options.anchor().contains(node) || !!node.closest('.jp-Dialog')
    );
  }

  /** Place the window below the button if it fits, else above, and always within the page. */
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

  /** Restore the focus when the focused button was removed, for example when React replaced it. */
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
    /** Return the button. Called each time, for React may have replaced it. */
    anchor: () => HTMLElement;
    /** Resolves when the attached body has its content. */
    ready: () => Promise<void> | undefined;
  }
}
