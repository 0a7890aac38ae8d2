// Reuses the objects of the last answer for equal parts of the next, so that a changed part has a
// new identity. Pure.

/**
 * Return `after` with each part that equals one of `before` replaced by that one; `before` itself
 * if all are equal.
 */
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

/**
 * Match list entries by their id if they have one, else by index, so that a new entry does not
 * change all after it.
 */
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
