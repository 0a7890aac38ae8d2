// Decides when to reconnect kernels whose connection Lab gave up or retries slowly. Pure.

/** The part of a kernel's connection that this module uses. */
export interface IConnection {
  readonly connectionStatus: string;
  readonly isDisposed: boolean;
  reconnect(): Promise<void>;
}

/** Detects that the server, or the gateway behind it, answers again. */
export class Revival {
  /**
   * Take the result of each status request and the state of the event stream. True if the server
   * was away and is back.
   */
  isBack(isAnswered: boolean, isLive: boolean): boolean {
    const isBack = (isAnswered && this._wasAway) || (isLive && !this._wasLive);
    this._wasAway = !isAnswered;
    this._wasLive = isLive;
    return isBack && isAnswered;
  }

  private _wasAway = false;
  private _wasLive = false;
}

/**
 * Lab stops after some tries, or waits up to half a minute between them. Never rejects: Lab goes on by itself.
 *
 * `refresh` lists the kernels that there are: Lab disposes of the connections of others, and would try each seven times.
 */
export async function revive(connections: () => Iterable<IConnection>, refresh: () => Promise<void>): Promise<void> {
  await refresh().catch(() => undefined);
  for (const connection of connections()) {
    if (!connection.isDisposed && connection.connectionStatus !== 'connected') {
      connection.reconnect().catch(() => undefined);
    }
  }
}
