// A run of another page, as the future that Lab's output areas expect. A new future in the output
// area ends it. It sends nothing but answers to input requests.

import { Kernel, KernelMessage } from '@jupyterlab/services';
import { PromiseDelegate } from '@lumino/coreutils';

type Request = KernelMessage.IExecuteRequestMsg;
type Reply = KernelMessage.IExecuteReplyMsg;
type Hook = (message: KernelMessage.IIOPubMessage) => boolean | PromiseLike<boolean>;

export interface IKeptRun {
  readonly msgId: string;
  readonly cellId: string;
  readonly code: string;
}

export class KeptFuture implements Kernel.IShellFuture<Request, Reply> {
  constructor(
    run: IKeptRun,
    private readonly _kernel: Kernel.IKernelConnection,
    private readonly _left: () => void
  ) {
    this.msg = KernelMessage.createMessage<Request>({
      msgType: 'execute_request',
      channel: 'shell',
      session: _kernel.clientId,
      msgId: run.msgId,
      metadata: { cellId: run.cellId },
      content: { code: run.code }
    });
    // A caller may ignore the result.
    this._done.promise.catch(() => undefined);
  }

  readonly msg: Request;
  onReply: (message: Reply) => void | PromiseLike<void> = () => undefined;
  onIOPub: (message: KernelMessage.IIOPubMessage) => void | PromiseLike<void> = () => undefined;
  onStdin: (message: KernelMessage.IStdinMessage) => void | PromiseLike<void> = () => undefined;

  get done(): Promise<Reply> {
    return this._done.promise;
  }

  get isDisposed(): boolean {
    return this._isDisposed;
  }

  /** Called when the output area shows another run or is removed. */
  dispose(): void {
    if (!this._isDisposed) {
      this._isDisposed = true;
      this._done.reject(new Error('Canceled future for execute_request message before replies were done'));
      this._left();
    }
  }

  /** Resolve when the kernel finished the run; the reply went to the page that ran it. */
  finish(executionCount: number | null): void {
    this._done.resolve(
      KernelMessage.createMessage<Reply>({
        msgType: 'execute_reply',
        channel: 'shell',
        session: this._kernel.clientId,
        parentHeader: this.msg.header,
        content: { status: 'ok', execution_count: executionCount, user_expressions: {} }
      })
    );
  }

  registerMessageHook(hook: Hook): void {
    this._hooks.unshift(hook);
  }

  removeMessageHook(hook: Hook): void {
    this._hooks = this._hooks.filter(each => each !== hook);
  }

  /**
   * Pass a message to the output area unless a hook handles it; asynchronous hooks are not awaited.
   */
  show(message: KernelMessage.IIOPubMessage): void {
    if (this._hooks.every(hook => hook(message) !== false)) {
      void this.onIOPub(message);
    }
  }

  sendInputReply(
    content: KernelMessage.IInputReplyMsg['content'],
    parent: KernelMessage.IInputReplyMsg['parent_header']
  ): void {
    this._kernel.sendInputReply(content, parent);
  }

  private readonly _done = new PromiseDelegate<Reply>();
  private _hooks: Hook[] = [];
  private _isDisposed = false;
}
