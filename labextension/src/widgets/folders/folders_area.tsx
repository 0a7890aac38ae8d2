// The page of shared folders as a widget of Lab.

import { ReactWidget } from '@jupyterlab/ui-components';
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

  protected override render(): JSX.Element {
    return <FoldersView source={this._source} trans={this._trans} />;
  }
}
