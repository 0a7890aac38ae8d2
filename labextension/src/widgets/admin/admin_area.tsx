// The administrator's view as a widget of Lab. It makes requests while it is visible.

import { ReactWidget } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { AdminModel } from '../../admin/admin_model';
import { ITranslation } from '../../tokens';
import { AdminView } from './admin_view';

export class AdminArea extends ReactWidget {
  constructor(
    private readonly _model: AdminModel,
    private readonly _trans: ITranslation
  ) {
    super();
    this.addClass('aliquot-Admin');
  }

  override dispose(): void {
    this._model.dispose();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._model.isWatched = true;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._model.isWatched = this.isVisible;
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._model.isWatched = false;
  }

  protected override render(): JSX.Element {
    return <AdminView model={this._model} trans={this._trans} />;
  }
}
