// Equal parts of two answers become the same objects, so that "is it another?" is a comparison of identities. Pure.

/** `after`, with every part that is equal in `before` taken from there; `before` itself if all is equal. */
export function share<T>(before: unknown, after: T): T {
  if (Object.is(before, after)) {
    return after;
  }
  if (Array.isArray(before) && Array.isArray(after)) {
    return shareList(before, after) as T;
  }
  if (isRecord(before) && isRecord(after)) {
    return shareRecord(before, after) as T;
  }
  return after;
}

function shareRecord(before: Fields, after: Fields): Fields {
  const names = Object.keys(after);
  const shared: Record<string, unknown> = {};
  for (const name of names) {
    shared[name] = share(before[name], after[name]);
  }
  const isSame = names.length === Object.keys(before).length && names.every(name => isPart(before, name, shared[name]));
  return isSame ? before : shared;
}

/** Entries that have an id are found by it, others by their place: one that is new does not change all after it. */
function shareList(before: readonly unknown[], after: readonly unknown[]): readonly unknown[] {
  const named = new Map(before.map(entry => [identity(entry), entry]));
  const shared = after.map((entry, place) => {
    const id = identity(entry);
    return share(id === null ? before[place] : named.get(id), entry);
  });
  return shared.length === before.length && shared.every((entry, place) => entry === before[place]) ? before : shared;
}

type Fields = Readonly<Record<string, unknown>>;

function isRecord(value: unknown): value is Fields {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isPart(record: Fields, name: string, value: unknown): boolean {
  return Object.prototype.hasOwnProperty.call(record, name) && record[name] === value;
}

function identity(entry: unknown): unknown {
  return isRecord(entry) ? (entry.id ?? entry.uuid ?? null) : null;
}
