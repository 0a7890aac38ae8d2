// The page of shared folders as a widget of Lab.

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { IFolderSource } from '../../folders/folder_source';
import { ITranslation } from '../../tokens';
import { FoldersView } from './folders_view';

export class FoldersArea extends ReactWidget {
  constructor(
    private readonly _source: IFolderSource,
    private readonly _trans: ITranslation
  ) {
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
    return <FoldersView source={this._source} trans={this._trans} visits={this._visits} />;
  }

  private _visits = 0;
}
