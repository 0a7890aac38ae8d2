// Reconnects this page's kernels when the model finds that the server or its gateway is back.

import { JupyterFrontEnd } from '@jupyterlab/application';

import { IGpuKernels } from '../../gpu_kernels';
import { contextsOf } from '../../widgets/notebook/open_contexts';
import { IConnection, Revival, revive } from '../../sessions/reviving';

export const reviving = ({ serviceManager, shell }: JupyterFrontEnd, { model }: IGpuKernels): void => {
  const revival = new Revival();
  const look = (): void => {
    if (revival.isBack(model.state.problem === null && model.state.status !== null, model.isLive)) {
      void revive(
        () => connections(shell),
        () => serviceManager.kernels.refreshRunning()
      );
    }
  };
  model.changed.connect(look);
  model.liveChanged.connect(look);
};

function* connections(shell: JupyterFrontEnd.IShell): Iterable<IConnection> {
  for (const { session } of contextsOf(shell.widgets('main'))) {
    if (session?.kernel) {
      yield session.kernel;
    }
  }
}
