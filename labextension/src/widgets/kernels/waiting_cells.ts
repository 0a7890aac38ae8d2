// Finds the cells that wait for a kernel that has not started, and runs them in the kernel that
// replaces it.

import { Cell, CodeCell } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';

import { AliquotClient } from '../../client/client';

export function isRunning(cell: Cell): cell is CodeCell {
  return cell instanceof CodeCell && cell.model.executionState === 'running';
}

/**
 * Return the cells that wait for this kernel: in the server's order, then those that this page has not sent
 * yet.
 */
export async function waitingCells(panel: NotebookPanel, kernelId: string, client: AliquotClient): Promise<CodeCell[]> {
  const codes = panel.content.widgets.filter(cell => cell instanceof CodeCell);
  const waiting = new Set<CodeCell>();
  const kept = await client.openCells(kernelId).catch(() => []);
  for (const { cell_id: id } of kept.filter(each => each.is_open)) {
    const cell = codes.find(one => one.model.id === id);
    if (cell !== undefined) {
      waiting.add(cell);
    }
  }
  codes.filter(isRunning).forEach(cell => waiting.add(cell));
  return Array.from(waiting);
}

/**
 * Give the notebook another kernel, and run these cells in it. Rejects if the kernel does not
 * start.
 */
export async function changeKernel(panel: NotebookPanel, name: string, cells: readonly CodeCell[]): Promise<void> {
  const { sessionContext: session, content: notebook } = panel;
  await session.changeKernel({ name });
  // Requests to the former kernel are cancelled by now, and report it first.
  await new Promise(resolve => setTimeout(resolve, 0));
  const left = cells.filter(cell => !cell.isDisposed);
  if (left.length > 0 && !panel.isDisposed) {
    void NotebookActions.runCells(notebook, left, session);
  }
}
