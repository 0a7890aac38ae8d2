// What a user may do about a wait, where it is seen: give the start up, take a smaller size or no
// GPU, or have an idle kernel of their own leave. A failure is said beside the buttons, in the
// server's words.

import { ISessionContext } from '@jupyterlab/apputils';
import { NotebookPanel } from '@jupyterlab/notebook';
import { TranslationBundle } from '@jupyterlab/translation';
import { Button } from '@jupyterlab/ui-components';
import * as React from 'react';

import { AliquotClient } from '../../client/client';
import { kernelSize } from '../../model/kernel_line';
import { kernelTitle } from '../../model/model';
import { label } from '../../sizes/sizes';
import { requestOf } from '../../sizes/resize_request';
import { ACTION_COMMANDS, IKernel, ISizes, IStatus } from '../../tokens';
import { helpers, IHelper, ISmaller, isQueuedOfMine, plainName, smallerNow } from '../../sizes/ways_out';
import { actionCaption, actionLabel, failureText } from '../elements/action_words';
import { ICommands } from './actions';
import { changeKernel, waitingCells } from './waiting_cells';

/** More of them are in the sidebar. */
const MOST_HELPERS = 4;

export interface IWaysOutProps {
  kernel: IKernel;
  status: IStatus;
  session: ISessionContext;
  /** The notebook whose kernel waits; null for a console. */
  notebook: NotebookPanel | null;
  client: AliquotClient;
  commands: ICommands;
  trans: TranslationBundle;
}

/** Renders nothing if there is no remedy. */
export function WaysOut(props: IWaysOutProps): JSX.Element | null {
  const { kernel, status, session, notebook, trans } = props;
  const [failure, setFailure] = React.useState('');
  const [isBusy, setBusy] = React.useState(false);
  const offers = useOffers(props);
  const found = helpers(kernel, status).slice(0, MOST_HELPERS);
  const isQueued = isQueuedOfMine(kernel);
  if (!isQueued && found.length === 0) {
    return null;
  }
  const run = async (act: () => Promise<unknown>): Promise<void> => {
    setBusy(true);
    setFailure('');
    try {
      await act();
    } catch (error) {
      setFailure(failureText(error, trans));
    }
    setBusy(false);
    if (notebook && !notebook.isDisposed && document.activeElement === document.body) {
      notebook.activate(); // the button is gone
    }
  };
  const button = { isBusy, run };
  return (
    <div className="aliquot-WaysOut" role="group" aria-label={trans.__('Ways out of the wait')}>
      {isQueued && (
        <div className="aliquot-Actions-row">
          <Way
            {...button}
            text={trans.__('Cancel')}
            caption={trans.__('Remove the kernel from the queue; waiting cells are not run')}
            act={async () => {
              await ensureQueued(props);
              await session.shutdown();
            }}
          />
          <Changes {...props} {...offers} {...button} />
        </div>
      )}
      {found.length > 0 && <Helpers found={found} {...props} {...button} />}
      {failure && (
        <p className="aliquot-Actions-failure" role="alert">
          {failure}
        </p>
      )}
    </div>
  );
}

/**
 * Rejects if the kernel has started meanwhile, which the page may not know yet: replacing it would end its running
 * cells and run them twice.
 */
async function ensureQueued({ kernel, client, trans }: IWaysOutProps): Promise<void> {
  const { state } = await client.kernel(kernel.id);
  if (state !== 'queued') {
    throw new Error(trans.__('The kernel has started in the meantime. It keeps its size and runs its cells.'));
  }
}

interface IOffers {
  sizes: ISizes | null;
  smaller: ISmaller | null;
}

/** Sizes that would start now, requested again when the queue or the devices change. */
function useOffers({ kernel, status, client }: IWaysOutProps): IOffers {
  const [offers, setOffers] = React.useState<IOffers>({ sizes: null, smaller: null });
  const { id, queue_position: position, wait_reason: reason } = kernel;
  const reserved = status.devices.map(device => [device.uuid, device.reserved_gpus, device.reserved_bytes]);
  const moment = JSON.stringify([id, position, reason, reserved]);
  const isQueued = isQueuedOfMine(kernel);
  React.useEffect(() => {
    let isOver = !isQueued;
    const ask = async (): Promise<void> => {
      const sizes = await client.sizes();
      const smaller = await smallerNow(kernel, sizes, request => client.dryRun(request, undefined, id));
      if (!isOver) {
        setOffers({ sizes, smaller });
      }
    };
    if (isQueued) {
      ask().catch(() => isOver || setOffers(last => ({ ...last, smaller: null })));
    }
    return () => {
      isOver = true;
    };
  }, [moment, isQueued]);
  return offers;
}

interface IButton {
  isBusy: boolean;
  run: (act: () => Promise<unknown>) => Promise<void>;
}

/** Replace the waiting kernel by one of a smaller size or without a GPU. */
function Changes(props: IWaysOutProps & IOffers & IButton): JSX.Element | null {
  const { kernel, session, notebook, client, trans, sizes, smaller } = props;
  const name = session.session?.kernel?.name;
  if (sizes === null || name === undefined) {
    return null;
  }
  const change = async (to: string): Promise<void> => {
    const cells = notebook === null ? [] : await waitingCells(notebook, kernel.id, client);
    await ensureQueued(props);
    if (notebook === null) {
      await session.changeKernel({ name: to });
    } else {
      await changeKernel(notebook, to, cells);
    }
  };
  const plain = plainName(name, sizes);
  const base = plain.replace(/\.gpu-none$/, '');
  const caption = notebook
    ? trans.__('Replace this kernel; waiting cells run in the new one, in order')
    : trans.__('Replace this kernel; waiting inputs are not run');
  const takeSmaller = async ({ asked, suffix }: ISmaller): Promise<void> => {
    const { outcome, message } = await client.dryRun(requestOf(asked), undefined, kernel.id);
    if (outcome !== 'starts') {
      throw new Error(trans.__('%1 does not start now: %2. The kernel keeps its place in the queue.', label(asked), message));
    }
    await change(`${base}.${suffix}`);
  };
  return (
    <>
      {smaller && (
        <Way
          {...props}
          text={trans.__('Change to %1 (starts now)', label(smaller.asked))}
          caption={caption}
          act={() => takeSmaller(smaller)}
        />
      )}
      {session.specsManager.specs?.kernelspecs[base] && (
        <Way {...props} text={trans.__('Run without GPU')} caption={caption} act={() => change(plain)} />
      )}
    </>
  );
}

function Helpers(props: IWaysOutProps & IButton & { found: readonly IHelper[] }): JSX.Element {
  const { found, commands, trans } = props;
  const offered = found.filter(({ way }) => commands.hasCommand(ACTION_COMMANDS[way]));
  const id = React.useId();
  return (
    <>
      <p className="aliquot-WaysOut-head" id={id}>
        {trans.__('Your idle kernels that hold a GPU')}
      </p>
      <ul className="aliquot-WaysOut-kernels" aria-labelledby={id}>
        {offered.map(({ kernel, way }) => (
          <li key={kernel.id}>
            <span className="aliquot-WaysOut-kernel">
              {kernelTitle(kernel)} · {kernelSize(kernel.gpus, trans)}
            </span>
            <Way
              {...props}
              text={actionLabel(way, trans)}
              of={kernelTitle(kernel)}
              caption={actionCaption(way, trans)}
              act={() => commands.execute(ACTION_COMMANDS[way], { kernelId: kernel.id })}
            />
          </li>
        ))}
      </ul>
    </>
  );
}

interface IWayProps extends IButton {
  text: string;
  caption: string;
  /** The kernel's title, if several buttons have the same text. */
  of?: string;
  act: () => Promise<unknown>;
}

/** A button that keeps the focus while it works. */
function Way({ text, caption, of, act, isBusy, run }: IWayProps): JSX.Element {
  return (
    <Button
      type="button"
      small
      className="aliquot-Action"
      title={caption}
      aria-label={of === undefined ? undefined : `${text} ${of}`}
      aria-disabled={isBusy || undefined}
      onClick={isBusy ? undefined : () => void run(act)}
    >
      {text}
    </Button>
  );
}
