// Texts about failed allocations and terminations, within the length that Lab shows. Pure.

import { TranslationBundle } from '@jupyterlab/translation';

import { ILarger, isShort } from './larger';
import { kernelTitle } from '../model/model';
import { News } from '../model/news';
import { formatBytes, formatShare } from '../base/quantities';
import { IKernel } from '../tokens';

export type MemoryNews = News & { readonly kind: 'ended' | 'short' };

/** Lab truncates longer texts; the button's tooltip has the rest. */
const LAB_SHOWS = 140;
/** The least length of a name that is shortened in its middle. */
const LEAST_TITLE = 12;

/**
 * Return one or two sentences. The dry run of a larger size comes before amounts and long names.
 */
export function memoryText(news: MemoryNews, larger: ILarger | null, trans: TranslationBundle): string {
  const { kernel } = news;
  const said = news.kind === 'ended' ? ended(news, trans) : shortage(kernel, news.needed, trans);
  if (larger === null) {
    return said;
  }
  const { message } = larger.dryRun;
  const size = sizeText(larger, trans);
  const whole = trans.__('%1 With %2: %3', said, size, message);
  if (whole.length <= LAB_SHOWS) {
    return whole;
  }
  const brief = (title: string): string => trans.__('%1 ran out of GPU memory. With %2: %3', title, size, message);
  const title = kernelTitle(kernel);
  const room = Math.max(LEAST_TITLE, LAB_SHOWS - brief('').length);
  return [brief(title), brief(cut(title, room))].find(one => one.length <= LAB_SHOWS) ?? said;
}

export function sizeText({ request }: ILarger, trans: TranslationBundle): string {
  const share = formatShare(request.gpus);
  const gpus = request.gpus > 1 ? trans.__('%1 GPUs', share) : trans.__('%1 GPU', share);
  return typeof request.memory === 'number' ? `${gpus} · ${formatBytes(request.memory)}` : gpus;
}

function ended(news: News & { kind: 'ended' }, trans: TranslationBundle): string {
  const { kernel, termination } = news;
  const said = trans.__('%1: %2.', kernelTitle(kernel), termination.message.replace(/\.$/, ''));
  return isShort(kernel) ? trans.__('%1 It needed at least %2.', said, formatBytes(kernel.required_bytes ?? 0)) : said;
}

function shortage(kernel: IKernel, needed: number, trans: TranslationBundle): string {
  const [quota, least] = [formatBytes(kernel.memory_limit_bytes), formatBytes(needed)];
  return trans.__('%1 ran out of its GPU memory: it has %2, and needed at least %3.', kernelTitle(kernel), quota, least);
}

/** `train-on-….ipynb`: names differ at both ends. */
function cut(title: string, most: number): string {
  if (title.length <= most) {
    return title;
  }
  const end = Math.floor((most - 1) / 2);
  return `${title.slice(0, most - 1 - end)}…${title.slice(title.length - end)}`;
}
