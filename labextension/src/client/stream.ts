// The websocket of events, with Lab's connection settings: opens, reopens and closes it. Keeps no
// event.

import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';
import { IDisposable } from '@lumino/disposable';
import { ISignal, Signal } from '@lumino/signaling';

import { BROWSER_CLOCK, IClock } from '../base/clock';
import { IEventStream, IKernelEvent } from '../tokens';

/**
 * Close code 1013 "try again later" of RFC 6455's registry: our server sends it to clients that
 * read too slowly.
 */
const TRY_AGAIN = 1013;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 120000;
/** A connection that lasted this long was no failure: the next attempt comes soon. */
const HELD_MS = 10000;
const HANDSHAKE_MS = 15000;

type Settings = Pick<ServerConnection.ISettings, 'wsUrl' | 'token' | 'appendToken' | 'WebSocket'>;

/** Keeps one connection from `open` to `close`, and reconnects when it is lost. */
export class EventStream implements IEventStream {
  constructor(
    private readonly _settings: Settings,
    private readonly _clock: IClock = BROWSER_CLOCK
  ) {}

  get isLive(): boolean {
    return this._isLive;
  }

  /** Emitted when the connection opens and when it closes. */
  get liveChanged(): ISignal<IEventStream, boolean> {
    return this._liveChanged;
  }

  get received(): ISignal<IEventStream, IKernelEvent> {
    return this._received;
  }

  /**
   * Open. `catchUp` reads the current status; it is awaited before each reconnection, for lost
   * events do not return.
   */
  open(catchUp: () => Promise<void>): void {
    if (this._catchUp === null) {
      this._catchUp = catchUp;
      this._connect();
    }
  }

  close(): void {
    this._catchUp = null;
    this._failures = 0;
    this._drop();
  }

  /** Replace a connection that may be dead without a close event. */
  reconnect(): void {
    if (this._catchUp !== null) {
      this._failures = 0;
      this._drop();
      this._connect();
    }
  }

  private _connect(): void {
    const began = this._clock.now();
    let socket: WebSocket;
    try {
      socket = new this._settings.WebSocket(this._url());
    } catch (error) {
      console.warn('aliquot: the stream of events cannot be opened.', error);
      this._wait();
      return;
    }
    this._socket = socket;
    this._timer = this._clock.after(HANDSHAKE_MS, () => this._lost(socket, began, 0));
    socket.onopen = () => {
      this._timer?.dispose();
      this._setLive(true);
    };
    socket.onmessage = message => this._read(message.data);
    socket.onclose = event => this._lost(socket, began, event.code);
  }

  private _url(): string {
    const { wsUrl, token, appendToken } = this._settings;
    const url = URLExt.join(wsUrl, 'aliquot', 'api', 'v1', 'events');
    return appendToken && token !== '' ? `${url}?token=${encodeURIComponent(token)}` : url;
  }

  /** Ignore a message that cannot be parsed, as from a newer server; the poll gets its content. */
  private _read(data: unknown): void {
    try {
      const event: unknown = JSON.parse(String(data));
      if (isEvent(event)) {
        this._received.emit(event);
      }
    } catch (error) {
      console.warn('aliquot: an event could not be read.', error);
    }
  }

  private _lost(socket: WebSocket, began: number, code: number): void {
    if (socket !== this._socket) {
      return;
    }
    const held = this._isLive && this._clock.now() - began >= HELD_MS;
    this._failures = held ? 0 : this._failures;
    this._drop();
    if (code !== TRY_AGAIN) {
      this._wait();
      return;
    }
    const catchUp = this._catchUp;
    void catchUp?.().finally(() => {
      if (catchUp === this._catchUp && this._socket === null && this._timer === null) {
        this._wait();
      }
    });
  }

  /** Exponential back-off with jitter in its upper half, so that pages do not reconnect at once. */
  private _wait(): void {
    const longest = Math.min(FIRST_WAIT_MS * 2 ** this._failures, LONGEST_WAIT_MS);
    this._failures += 1;
    this._timer = this._clock.after(longest * (0.5 + this._clock.chance() / 2), () => this._connect());
  }

  private _drop(): void {
    this._timer?.dispose();
    this._timer = null;
    const socket = this._socket;
    this._socket = null;
    if (socket !== null) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
    this._setLive(false);
  }

  private _setLive(isLive: boolean): void {
    if (isLive !== this._isLive) {
      this._isLive = isLive;
      this._liveChanged.emit(isLive);
    }
  }

  private readonly _received = new Signal<IEventStream, IKernelEvent>(this);
  private readonly _liveChanged = new Signal<IEventStream, boolean>(this);
  private _catchUp: (() => Promise<void>) | null = null;
  private _socket: WebSocket | null = null;
  private _timer: IDisposable | null = null;
  private _failures = 0;
  private _isLive = false;
}

/** Whether this is an event of ours; the server checks its fields against the schema. */
function isEvent(value: unknown): value is IKernelEvent {
  return typeof value === 'object' && value !== null && 'kernel_id' in value && 'state' in value && 'kind' in value;
}
