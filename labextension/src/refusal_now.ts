// Whether the size that a document names can be had here: by the rules, and by what the server would say to it now.

import { KnownSpecs } from './known_specs';
import { wishOf } from './resize_wish';
import { Refusal } from './sizes';
import { IOutlook, IWish } from './tokens';

/** Why it cannot be had; null where it can, where it names no size, and where nobody tells. */
export async function refusalNow(
  name: string,
  known: KnownSpecs,
  client: { outlook(wish: IWish): Promise<IOutlook> }
): Promise<Refusal | null> {
  const refusal = known.refusal(name);
  const named = known.sized(name);
  if (refusal !== null || named === null) {
    return refusal;
  }
  try {
    const outlook = await client.outlook(wishOf(named.asked));
    return outlook.outcome === 'never' ? { kind: 'never', ...named, message: outlook.message } : null;
  } catch {
    return null; // The server says so itself when the kernel is asked for.
  }
}
