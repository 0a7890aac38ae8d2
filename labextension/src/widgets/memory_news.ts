// What is said when a kernel ran out of its GPU memory, or ended: with the size that would have held it, one click away.

import { Notification } from '@jupyterlab/apputils';
import { TranslationBundle } from '@jupyterlab/translation';

import { endedForMemory, findLarger, ILarger, ISizeSource, isShort } from '../larger';
import { GpuKernelsModel, kernelTitle } from '../model';
import { News } from '../news';
import { formatBytes, formatShare } from '../quantities';
import { IKernel, IStatus, IWish } from '../tokens';
import { IAnnouncement, tellFailure } from './announce';

/** Lab cuts what is longer; the button says the rest when it is pointed at. */
const LAB_SHOWS = 140;

export interface IMemoryWays {
  readonly model: GpuKernelsModel;
  readonly client: ISizeSource & { resize(kernelId: string, wish: Partial<IWish>): Promise<IKernel> };
  readonly trans: TranslationBundle;
  /** Starts its notebook's kernel as this kernelspec; null where there is no such notebook. */
  readonly restartAs: ((name: string) => Promise<void>) | null;
}

/** Never rejects: where no larger size can be found, it is told without. */
export async function describeMemory(
  news: News & { kind: 'ended' | 'short' },
  status: IStatus,
  ways: IMemoryWays
): Promise<IAnnouncement> {
  const { kernel } = news;
  const said = news.kind === 'ended' ? ended(news, ways.trans) : shortage(kernel, news.needed, ways.trans);
  if (news.kind === 'ended' && (!endedForMemory(kernel) || ways.restartAs === null)) {
    return { text: said, actions: [] };
  }
  const larger = await findLarger(kernel, status, ways.client).catch(() => null);
  if (larger === null) {
    return { text: said, actions: [] };
  }
  const whole = ways.trans.__('%1 With %2: %3', said, sizeText(larger, ways.trans), larger.outlook.message);
  const text = whole.length > LAB_SHOWS ? said : whole;
  return { text, actions: larger.outlook.outcome === 'never' ? [] : [action(news, larger, ways)] };
}

function ended(news: News & { kind: 'ended' }, trans: TranslationBundle): string {
  const { kernel, ending } = news;
  const said = trans.__('%1: %2.', kernelTitle(kernel), ending.message.replace(/\.$/, ''));
  return isShort(kernel) ? trans.__('%1 It needed at least %2.', said, formatBytes(kernel.needed_bytes ?? 0)) : said;
}

function shortage(kernel: IKernel, needed: number, trans: TranslationBundle): string {
  const [quota, least] = [formatBytes(kernel.quota_bytes), formatBytes(needed)];
  return trans.__('%1 ran out of its GPU memory: it has %2, and needed at least %3.', kernelTitle(kernel), quota, least);
}

function sizeText({ wish }: ILarger, trans: TranslationBundle): string {
  const share = formatShare(wish.gpus);
  const gpus = wish.gpus > 1 ? trans.__('%1 GPUs', share) : trans.__('%1 GPU', share);
  return typeof wish.memory === 'number' ? `${gpus} · ${formatBytes(wish.memory)}` : gpus;
}

function action(news: News, larger: ILarger, ways: IMemoryWays): Notification.IAction {
  const { kernel } = news;
  const { message } = larger.outlook;
  const size = sizeText(larger, ways.trans);
  if (news.kind === 'ended') {
    const callback = (): void => void restart(kernel, larger, ways).catch(tellFailure);
    return { label: ways.trans.__('Restart at %1', size), caption: message, displayType: 'accent', callback };
  }
  const caption = ways.trans.__('Without a restart: %1', message);
  const callback = (): void => void resize(kernel, larger, ways);
  return { label: ways.trans.__('Change to %1', size), caption, displayType: 'accent', callback };
}

/** The size's name is the server's: what stands before `.gpu-` is the base kernelspec's. */
async function restart(kernel: IKernel, { outlook }: ILarger, { restartAs, model }: IMemoryWays): Promise<void> {
  const base = kernel.name.replace(/\.gpu-.*$/i, '');
  await restartAs?.(`${base}.${outlook.suffix}`);
  await model.refresh();
}

async function resize(kernel: IKernel, larger: ILarger, { client, model, trans }: IMemoryWays): Promise<void> {
  const title = kernelTitle(kernel);
  try {
    const changed = await client.resize(kernel.id, larger.wish);
    const size = sizeText(larger, trans);
    if (changed.resize === null) {
      Notification.success(trans.__('%1 has %2 now.', title, size), { autoClose: 5000 });
    } else {
      Notification.info(trans.__('%1 waits for %2: %3', title, size, changed.resize.reason), { autoClose: 10000 });
    }
  } catch (error) {
    tellFailure(error);
  }
  await model.refresh();
}
