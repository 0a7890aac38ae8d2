// Notifications about failed allocations and terminations, with a button for a size that is large
// enough.

import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { endedForMemory, findLarger, ILarger, ISizeSource } from '../../sizes/larger';
import { MemoryNews, memoryText, sizeText } from '../../sizes/memory_words';
import { GpuKernelsModel, kernelTitle } from '../../model/model';
import { IKernel, IStatus, ISizeRequest } from '../../tokens';
import { IAnnouncement, tellFailure } from './announce';

export interface IMemoryWays {
  readonly model: GpuKernelsModel;
  readonly client: ISizeSource & { resize(kernelId: string, request: Partial<ISizeRequest>): Promise<IKernel> };
  readonly trans: TranslationBundle;
  /** Starts the notebook's kernel with this kernelspec; null without a notebook. */
  readonly restartAs: ((name: string) => Promise<void>) | null;
}

/** Never rejects: without a larger size the notification has no button. */
export async function describeMemory(
  news: MemoryNews,
  status: IStatus,
  ways: IMemoryWays
): Promise<IAnnouncement> {
  const { kernel } = news;
  const { trans } = ways;
  if (news.kind === 'ended' && (!endedForMemory(kernel) || ways.restartAs === null)) {
    return { text: memoryText(news, null, trans), actions: [] };
  }
  const larger = await findLarger(kernel, status, ways.client).catch(() => null);
  const text = memoryText(news, larger, trans);
  if (larger === null) {
    return { text, actions: [] };
  }
  return { text, actions: larger.dryRun.outcome === 'never' ? [] : [action(news, larger, ways)] };
}

function action(news: MemoryNews, larger: ILarger, ways: IMemoryWays): Notification.IAction {
  const { kernel } = news;
  const { message } = larger.dryRun;
  const size = sizeText(larger, ways.trans);
  if (news.kind === 'ended') {
    const callback = (): void => void restart(kernel, larger, ways).catch(tellFailure);
    return { label: ways.trans.__('Restart at %1', size), caption: message, displayType: 'accent', callback };
  }
  const caption = ways.trans.__('Without a restart: %1', message);
  const callback = (): void => void resize(kernel, larger, ways);
  const isQueued = larger.dryRun.outcome === 'queued';
  const label = isQueued ? ways.trans.__('Queue for %1', size) : ways.trans.__('Change to %1', size);
  return { label, caption, displayType: 'accent', callback };
}

/** The size's name comes from the server; the part before `.gpu-` is the kernelspec's. */
async function restart(kernel: IKernel, { dryRun }: ILarger, { restartAs, model }: IMemoryWays): Promise<void> {
  const base = kernel.name.replace(/\.gpu-.*$/i, '');
  await restartAs?.(`${base}.${dryRun.suffix}`);
  await model.refresh();
}

async function resize(kernel: IKernel, larger: ILarger, { client, model, trans }: IMemoryWays): Promise<void> {
  const title = kernelTitle(kernel);
  try {
    const changed = await client.resize(kernel.id, larger.request);
    const size = sizeText(larger, trans);
    if (changed.resize === null) {
      Notification.success(trans.__('%1 has %2 now.', title, size), { autoClose: 5000 });
    } else {
      Notification.info(trans.__('%1 is queued for %2: %3', title, size, changed.resize.reason), { autoClose: 10000 });
    }
  } catch (error) {
    tellFailure(error);
  }
  await model.refresh();
}
