// The kernelspecs of a page: those that the server lists and, by name, every valid size of each, as
// the server resolves them. Sizes are found by name and never enumerated, so that launchers and
// menus show only what the server lists.

import { KernelSpec, ServerConnection } from '@jupyterlab/services';
import { ISignal, Signal } from '@lumino/signaling';

import { baseOf, ISizedName, label, readName, Refusal, refusalOf } from './sizes';
import { ISizes, StatusError } from '../tokens';

type Specs = KernelSpec.ISpecModels;

const PATIENCE_MS = 1500;

/** Jupyter's own manager of kernelspecs with the sizes added. */
export class KnownSpecs implements KernelSpec.IManager {
  /** `askSizes`: the sizes that the server offers; rejects where it offers none. */
  constructor(
    private readonly _listed: KernelSpec.IManager,
    private readonly _askSizes: () => Promise<ISizes>
  ) {
    // Both requests run side by side: a notebook that attaches to its kernel finds the names of
    // sizes known.
    this.ready = Promise.all([_listed.ready, this.refreshSizes()]).then(() => {
      this._isReady = true;
    });
    _listed.specsChanged.connect(() => {
      if (this._isReady) {
        void this.refreshSizes();
      }
      if (this.specs !== null) {
        this._specsChanged.emit(this.specs);
      }
    });
  }

  readonly ready: Promise<void>;

  /** The last answer with sizes; null without Aliquot on the server. */
  get sizes(): ISizes | null {
    return this._sizes;
  }

  get specs(): Specs | null {
    const listed = this._listed.specs;
    if (listed !== null && this._sizes !== null && (listed !== this._from.listed || this._sizes !== this._from.sizes)) {
      this._from = { listed, sizes: this._sizes };
      this._known = { default: listed.default, kernelspecs: withSizes(listed, this._sizes) };
    }
    return listed === null || this._sizes === null ? listed : (this._withListed ?? this._known);
  }

  /** Request the sizes; null without an answer. Known names stay while the server is away. */
  async refreshSizes(): Promise<ISizes | null> {
    try {
      this._sizes = await this._askSizes();
      return this._sizes;
    } catch (error) {
      if (error instanceof StatusError && error.kind === 'not-installed') {
        this._sizes = null;
      }
      return null;
    }
  }

  /**
   * Request the sizes, or return the last ones if the answer takes long, for the user waits for a
   * dialog.
   */
  latestSizes(patienceMs = PATIENCE_MS): Promise<ISizes | null> {
    const anew = this.refreshSizes();
    const known = this._sizes;
    return known === null
      ? anew
      : Promise.race([anew, new Promise<ISizes>(resolve => setTimeout(() => resolve(known), patienceMs))]);
  }

  /** Whether a kernelspec is installed or an image of the catalogue; a size is neither. */
  lists(name: string): boolean {
    return this._listed.specs?.kernelspecs[name] !== undefined;
  }

  /**
   * The size that a kernelspec's name asks for; null for an installed kernelspec of whatever name.
   */
  sized(name: string): ISizedName | null {
    return readName(name, this._sizes);
  }

  /** The kernelspec without a size; the name itself if it requests none. */
  base(name: string): string {
    return baseOf(name, this._sizes);
  }

  /** The rule of this server that refuses the name; null if none does. */
  refusal(name: string): Refusal | null {
    if (this._sizes === null || this.lists(name)) {
      return null;
    }
    return refusalOf(name, this._sizes, base => this.lists(base.toLowerCase()) || this.lists(base));
  }

  /**
   * Run a synchronous function with this name among the listed kernelspecs, for Lab starts only
   * listed ones.
   */
  listing<T>(name: string, act: () => T): T {
    const known = this.specs;
    const spec = known?.kernelspecs[name];
    if (known === null || spec === undefined) {
      return act();
    }
    this._withListed = { ...known, kernelspecs: { ...known.kernelspecs, [name]: spec } };
    try {
      return act();
    } finally {
      this._withListed = null;
    }
  }

  get specsChanged(): ISignal<this, Specs> {
    return this._specsChanged;
  }

  get connectionFailure(): ISignal<KernelSpec.IManager, ServerConnection.NetworkError> {
    return this._listed.connectionFailure as ISignal<KernelSpec.IManager, ServerConnection.NetworkError>;
  }

  get serverSettings(): ServerConnection.ISettings {
    return this._listed.serverSettings;
  }

  get isActive(): boolean {
    return this._listed.isActive;
  }

  get isReady(): boolean {
    return this._isReady;
  }

  get isDisposed(): boolean {
    return this._listed.isDisposed;
  }

  get disposed(): ISignal<this, void> {
    return this._listed.disposed as unknown as ISignal<this, void>;
  }

  refreshSpecs(): Promise<void> {
    return this._listed.refreshSpecs();
  }

  dispose(): void {
    this._listed.dispose();
    Signal.clearData(this);
  }

  private _sizes: ISizes | null = null;
  private _known: Specs | null = null;
  private _from: { listed: Specs | null; sizes: ISizes | null } = { listed: null, sizes: null };
  private _withListed: Specs | null = null;
  private _isReady = false;
  private _specsChanged = new Signal<this, Specs>(this);
}

/** The listed kernelspecs, where a look-up by name finds every valid size of one of them, too. */
function withSizes(listed: Specs, sizes: ISizes): Specs['kernelspecs'] {
  const derived = new Map<string, KernelSpec.ISpecModel | undefined>();
  return new Proxy(listed.kernelspecs, {
    get: (specs, name) => {
      if (typeof name !== 'string' || name in specs) {
        return Reflect.get(specs, name);
      }
      if (!derived.has(name)) {
        derived.set(name, sizedSpec(name, listed, sizes));
      }
      return derived.get(name);
    }
  });
}

/** The kernelspec that the server would return for this name, as far as the browser needs it. */
function sizedSpec(name: string, listed: Specs, sizes: ISizes): KernelSpec.ISpecModel | undefined {
  const on = baseOf(name, sizes);
  const base = on === name ? undefined : (listed.kernelspecs[on] ?? listed.kernelspecs[on.toLowerCase()]);
  if (base === undefined) {
    return undefined;
  }
  const named = readName(name, sizes);
  const { aliquot, ...metadata } = (base.metadata ?? {}) as Record<string, object | undefined>;
  return {
    ...base,
    name,
    display_name: `${base.display_name} · ${named ? label(named.asked, named.host) : 'no GPU'}`,
    metadata: { ...metadata, aliquot: { ...aliquot, base: on } } as NonNullable<typeof base.metadata>
  };
}
