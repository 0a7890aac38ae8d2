// The page of shared folders as a widget of Lab.

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { FoldersView, IFoldersOptions } from './folders_view';

export class FoldersArea extends ReactWidget {
  constructor(private readonly _options: IFoldersOptions) {
    super();
    this.addClass('aliquot-Admin');
    this.addClass('aliquot-Folders');
  }

  /** Called by Lab when the user turns to the page: read the invitations again. */
  protected override onActivateRequest(message: Message): void {
    super.onActivateRequest(message);
    this._visits += 1;
    this.update();
  }

  protected override render(): JSX.Element {
    return <FoldersView {...this._options} visits={this._visits} />;
  }

  private _visits = 0;
}
