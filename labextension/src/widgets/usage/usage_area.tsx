// The page of GPU-hours as a widget of Lab.

import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { ITranslation } from '../../tokens';
import { IUsageSource } from '../../usage/usage_source';
import { UsageView } from './usage_view';

export class UsageArea extends ReactWidget {
  constructor(
    private readonly _source: IUsageSource,
    private readonly _trans: ITranslation
  ) {
    super();
    this.addClass('aliquot-Admin');
  }

  protected override render(): JSX.Element {
    return <UsageView source={this._source} trans={this._trans} save={save} />;
  }
}

/** Save a text that was requested with Lab's credentials, which a link would not send. */
function save(text: string, name: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}
