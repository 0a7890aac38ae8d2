// The gateway's own page of administrators: the same view as in Lab, without Lab. It is built into
// gateway/pages/static, and English, since the gateway has no language packs.

import * as React from 'react';
import { createRoot } from 'react-dom/client';

import { AdminModel } from '../admin/admin_model';
import { ITranslation } from '../tokens';
import { AdminView } from '../widgets/admin/admin_view';
import { FetchSource } from './fetch_source';

const ENGLISH: ITranslation = {
  __: (text, ...values) => text.replace(/%(\d)/g, (_, place) => String(values[Number(place) - 1]))
};

function show(box: HTMLElement): void {
  const { baseUrl = '/', xsrf = '' } = box.dataset;
  const model = new AdminModel(new FetchSource(baseUrl, xsrf));
  const watch = (): void => {
    model.isWatched = !document.hidden;
  };
  document.addEventListener('visibilitychange', watch);
  watch();
  createRoot(box).render(<AdminView model={model} trans={ENGLISH} />);
}

const found = document.getElementById('aliquot-admin');
if (found) {
  show(found);
}
