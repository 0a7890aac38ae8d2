// The requests of the administrator's view: the client in Lab, the page's own in a browser without
// Lab, a script in tests. No DOM.

import { IHolders, IMovePlan, INodeSchedule, IQueue, IQuota, ISizeRequest } from '../tokens';

/** Each request rejects with an Error whose message is the server's, or says why none came. */
export interface IAdminSource {
  holders(): Promise<IHolders>;
  queue(): Promise<IQueue>;
  quota(): Promise<IQuota>;
  swapOut(kernelId: string): Promise<unknown>;
  restore(kernelId: string): Promise<unknown>;
  resize(kernelId: string, request: Partial<ISizeRequest>): Promise<unknown>;
  /** End a kernel; its variables are lost. */
  end(kernelId: string): Promise<void>;
  /** Send the kernel's owner a text, which Lab shows once. */
  message(kernelId: string, text: string): Promise<void>;
  /** Let nothing new start on a node; an empty reason is none. */
  cordon(node: string, reason: string): Promise<INodeSchedule>;
  /** Cordon a node, and swap its kernels out. */
  drain(node: string, reason: string): Promise<INodeSchedule>;
  uncordon(node: string): Promise<INodeSchedule>;
  /** The moves after which a size fits on a node; an empty size is that of the first request that waits. */
  moves(size: string, node: string): Promise<IMovePlan>;
  /** Run the plan that was shown with this digest. */
  runMoves(digest: string, size: string, node: string): Promise<IMovePlan>;
}
