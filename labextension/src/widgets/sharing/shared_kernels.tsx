// The kernels that other users share with this user, with owner and access.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { IKernel } from '../../tokens';

interface ISharedKernelsProps {
  kernels: readonly IKernel[];
  trans: TranslationBundle;
  entry: (kernel: IKernel) => JSX.Element;
}

export function SharedKernels({ kernels, trans, entry }: ISharedKernelsProps): JSX.Element | null {
  const id = React.useId();
  if (kernels.length === 0) {
    return null;
  }
  return (
    <section className="aliquot-Shared" aria-labelledby={id}>
      <h3 id={id} className="aliquot-Shared-heading">
        {trans.__('Shared with me')}
      </h3>
      <ul className="aliquot-List" aria-label={trans.__('GPU kernels that are shared with me')}>
        {kernels.map(entry)}
      </ul>
    </section>
  );
}
