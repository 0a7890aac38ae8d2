// Our one icon: a chip of which a part is taken. Coloured by the theme's own icon classes.

import { LabIcon } from '@jupyterlab/ui-components';

const GPU_SVG = `
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M6 4h12a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zm0 2v12h12V6z"/>
    <path d="M8 1h2v3H8zm6 0h2v3h-2zM8 20h2v3H8zm6 0h2v3h-2zM1 8h3v2H1zm0 6h3v2H1zm19-6h3v2h-3zm0 6h3v2h-3z"/>
    <path d="M8 12h4V8h4v8H8z"/>
  </g>
</svg>`;

export const gpuIcon = new LabIcon({ name: 'aliquot:gpu', svgstr: GPU_SVG });
