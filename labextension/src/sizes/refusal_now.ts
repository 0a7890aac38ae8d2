// Whether the size that a document names is available here, by the rules and by the server's dry
// run.

import { KnownSpecs } from './known_specs';
import { ISizeDraft, requestOf } from './resize_request';
import { candidates, nearest, Refusal } from './sizes';
import { IDryRun, IHostDraft, ISessionOptions, ISizes, ISizeRequest } from '../tokens';

interface ITeller {
  dryRun(request: ISizeRequest): Promise<IDryRun>;
  sessionOptions?(kernelspec: string, chosen: IHostDraft): Promise<ISessionOptions>;
}

/**
 * Return the reason why the size is not available; null if it is, if the name has no size, or without an answer. The
 * server knows the capacity of its GPUs, which may be less than its rules allow.
 */
export async function refusalNow(
  name: string,
  known: KnownSpecs,
  client: ITeller
): Promise<Refusal | null> {
  const refusal = known.refusal(name);
  const named = known.sized(name);
  if (named === null || (refusal !== null && refusal.kind !== 'too-large')) {
    return refusal;
  }
  try {
    const dryRun = await client.dryRun(requestOf(named.asked));
    if (dryRun.outcome === 'never') {
      return { kind: 'never', ...named, message: dryRun.message };
    }
    const options = named.host && (await client.sessionOptions?.(name, named.host));
    return options?.problem ? { kind: 'never', ...named, message: options.problem } : refusal;
  } catch {
    return refusal; // The server says so itself when the kernel is asked for.
  }
}

/**
 * The nearest size that starts now or after a wait; null if there is none. Without a dry run only
 * rules decide.
 */
export async function nearestNow(asked: ISizeDraft, sizes: ISizes, client: ITeller): Promise<ISizeDraft | null> {
  for (const draft of candidates(asked, sizes)) {
    try {
      if ((await client.dryRun(requestOf(draft))).outcome !== 'never') {
        return draft;
      }
    } catch {
      return nearest(asked, sizes);
    }
  }
  return null;
}
