// Our icons: a partly used chip, and the signs of notices. The theme's icon classes color them.

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

const HISTORY_SVG = `
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M3 3h2v16h16v2H3z"/>
    <path d="M7 17v-4l4-4 4 3 5-6v11z"/>
  </g>
</svg>`;

export const historyIcon = new LabIcon({ name: 'aliquot:history', svgstr: HISTORY_SVG });

const INFO_SVG = `
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" d="M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16zm-1 3v2h2V7zm0 4v6h2v-6z"/>
</svg>`;

const WARNING_SVG = `
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <path class="jp-icon-warn0" fill="#f57c00" d="M12 2 1 21h22zm0 4 7.5 13h-15zm-1 4v5h2v-5zm0 6v2h2v-2z"/>
</svg>`;

export const noteIcon = new LabIcon({ name: 'aliquot:note', svgstr: INFO_SVG });
export const warningIcon = new LabIcon({ name: 'aliquot:warning', svgstr: WARNING_SVG });
