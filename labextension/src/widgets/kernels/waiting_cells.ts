// The cells of a notebook that wait for a kernel which has not started: run again in the kernel that takes its place.

import { Cell, CodeCell } from '@jupyterlab/cells';
import { NotebookActions, NotebookPanel } from '@jupyterlab/notebook';

import { AliquotClient } from '../../client/client';

export function isRunning(cell: Cell): cell is CodeCell {
  return cell instanceof CodeCell && cell.model.executionState === 'running';
}

/**
 * Return the cells that wait for this kernel: in the order in which the server has them, then those that have not left
 * this page.
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

/** Give the notebook another kernel, and run these cells in it. Rejects where the kernel cannot be had. */
export async function changeKernel(panel: NotebookPanel, name: string, cells: readonly CodeCell[]): Promise<void> {
  const { sessionContext: session, content: notebook } = panel;
  await session.changeKernel({ name });
  // What was sent to the kernel before is cancelled by now, and says so first.
  await new Promise(resolve => setTimeout(resolve, 0));
  const left = cells.filter(cell => !cell.isDisposed);
  if (left.length > 0 && !panel.isDisposed) {
    void NotebookActions.runCells(notebook, left, session);
  }
}
