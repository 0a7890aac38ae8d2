"use strict";(self.rspackChunk_jupyter_aliquot_labextension=self.rspackChunk_jupyter_aliquot_labextension||[]).push([["labextension_style_index_js"],{"./labextension/style/index.js"(o,e,a){var i=a("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),t=a.n(i),r=a("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),l=a.n(r),n=a("./node_modules/style-loader/dist/runtime/insertBySelector.js"),s=a.n(n),d=a("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),u=a.n(d),p=a("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),c=a.n(p),m=a("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),h=a.n(m),x=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"),f={};f.styleTagTransform=h(),f.setAttributes=u(),f.insert=s().bind(null,"head"),f.domAPI=l(),f.insertStyleElement=c(),t()(x.A,f),x.A&&x.A.locals&&x.A.locals},"./node_modules/css-loader/dist/cjs.js!./labextension/style/actions.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* What may be asked of a kernel: the form of its size, and its buttons. */

.aliquot-Actions {
  display: flex;
  flex-direction: column;
  gap: 8px;
}

.aliquot-Actions-row {
  display: flex;
  flex-wrap: wrap;
  gap: 6px;
}

.jp-Button.aliquot-Action {
  padding: 0 8px;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
}

.jp-Button.aliquot-Action:hover {
  background: var(--jp-layout-color2);
}

.jp-Button.aliquot-Action:focus-visible,
.aliquot-Slider-range:focus-visible,
.aliquot-Resize-choice > input:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: 1px;
}

.jp-Button.aliquot-Action.aliquot-mod-main:not(:disabled) {
  border-color: transparent;
  background: var(--jp-accept-color-normal, var(--jp-brand-color1));
  color: var(--jp-ui-inverse-font-color0, white);
}

.jp-Button.aliquot-Action:disabled,
.jp-Button.aliquot-Action[aria-disabled='true'] {
  border-color: var(--jp-border-color2);
  background: none;
  color: var(--jp-ui-font-color3);
  cursor: not-allowed;
}

.aliquot-Actions-failure {
  margin: 0;
  padding-left: 8px;
  border-left: 3px solid var(--jp-error-color1);
  line-height: 1.4;
  overflow-wrap: anywhere;
}

.aliquot-Resize {
  display: flex;
  flex-direction: column;
  gap: 6px;
}

.aliquot-Resize + .aliquot-Actions-row {
  padding-top: 8px;
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.aliquot-Resize-dry-run {
  min-height: 1.4em;
  margin: 0;
  color: var(--jp-ui-font-color2);
  line-height: 1.4;
  overflow-wrap: anywhere;
}

.aliquot-Resize-dry-run[data-outcome] {
  padding-left: 8px;
  border-left: 3px solid var(--jp-success-color1);
  color: var(--jp-ui-font-color1);
}

.aliquot-Resize-dry-run[data-outcome='queued'] {
  border-left-color: var(--jp-warn-color1);
}

.aliquot-Resize-dry-run[data-outcome='never'] {
  border-left-color: var(--jp-error-color1);
}

.aliquot-Resize:has([aria-invalid='true']) > .aliquot-Resize-dry-run {
  visibility: hidden;
}

.aliquot-Resize-waiting {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 4px 8px;
}

.aliquot-Resize-class {
  display: flex;
  flex-wrap: wrap;
  gap: 2px 12px;
  margin: 0;
  padding: 0;
  border: none;
}

.aliquot-Resize-choice {
  display: flex;
  min-height: 24px;
  align-items: center;
  gap: 4px;
}

.aliquot-Resize-choice > input {
  width: 16px;
  height: 16px;
  margin: 0;
  accent-color: var(--jp-brand-color1);
}

.aliquot-Slider {
  display: grid;
  grid-template-columns: minmax(60px, 1fr) 72px auto;
  align-items: center;
  gap: 2px 8px;
}

.aliquot-Slider-label {
  grid-column: 1 / -1;
}

.aliquot-Slider-range {
  width: 100%;
  min-width: 0;
  margin: 0;
  accent-color: var(--jp-brand-color1);
}

input.jp-mod-styled.aliquot-Slider-number {
  width: 100%;
  height: 26px;
  font-size: var(--jp-ui-font-size1);
  font-variant-numeric: tabular-nums;
}

.aliquot-Slider-unit {
  min-width: 28px;
  color: var(--jp-ui-font-color2);
}

.aliquot-Slider .aliquot-Slider-problem {
  grid-column: 1 / -1;
  margin: 0;
  padding-left: 8px;
  border-left: 3px solid var(--jp-error-color1);
  line-height: 1.4;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/admin.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The administrator's view, in Lab and as the gateway's own page: theme variables only. */

.aliquot-Admin {
  display: flex;
  flex-direction: column;
  min-width: 320px;
  padding: 8px 16px 16px;
  overflow: hidden;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
}

.aliquot-Admin h2 {
  margin: 12px 0 8px;
  font-size: var(--jp-ui-font-size2);
  font-weight: 600;
}

.aliquot-Admin button,
.aliquot-Admin input,
.aliquot-Admin select {
  min-height: 24px;
  padding: 2px 10px;
  border: 1px solid var(--jp-border-color0);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font: inherit;
}

.aliquot-Admin button:not(:disabled, [aria-disabled='true']) {
  cursor: pointer;
}

.aliquot-Admin button:disabled,
.aliquot-Admin button[aria-disabled='true'] {
  border-style: dashed;
  color: var(--jp-ui-font-color2);
}

.aliquot-Admin button:hover:not(:disabled, [aria-disabled='true']) {
  background: var(--jp-layout-color2);
}

.aliquot-Admin :focus-visible {
  outline: 2px solid var(--jp-brand-color1);
  outline-offset: -2px;
}

.aliquot-Admin-done,
.aliquot-Admin-note {
  margin: 4px 0;
  line-height: 1.4;
}

.aliquot-Admin-done:empty {
  margin: 0;
}

.aliquot-Admin-tabs {
  display: flex;
  flex: 0 0 auto;
  flex-wrap: wrap;
  gap: 4px;
  border-bottom: 1px solid var(--jp-border-color1);
}

.aliquot-Admin .aliquot-Admin-tabs button {
  margin-bottom: -1px;
  border-radius: var(--jp-border-radius) var(--jp-border-radius) 0 0;
}

.aliquot-Admin .aliquot-Admin-tabs button[aria-selected='true'] {
  border-bottom: 3px solid var(--jp-brand-color1);
  font-weight: 600;
}

.aliquot-Admin-panel {
  display: flex;
  flex: 1 1 0;
  flex-direction: column;
  min-height: 0;
  overflow: auto;
}

.aliquot-Admin-controls {
  display: flex;
  flex: 0 0 auto;
  flex-wrap: wrap;
  align-items: center;
  gap: 8px 16px;
  margin: 8px 0;
}

.aliquot-Admin-controls input {
  width: 280px;
  max-width: 100%;
}

.aliquot-Admin-scroll {
  flex: 0 0 auto;
  overflow-x: auto;
}

.aliquot-Admin table {
  width: 100%;
  border-collapse: collapse;
  font-variant-numeric: tabular-nums;
}

.aliquot-Admin th,
.aliquot-Admin td {
  padding: 3px 8px;
  border-bottom: 1px solid var(--jp-border-color3);
  text-align: right;
  vertical-align: top;
}

.aliquot-Admin th {
  color: var(--jp-ui-font-color1);
  font-weight: 600;
}

.aliquot-Admin th[data-text],
.aliquot-Admin td[data-text] {
  text-align: left;
}

/* The list of kernels: as high as its room, and scrolled in itself. */
.aliquot-Grid {
  position: relative;
  flex: 1 1 0;
  min-height: 140px;
  overflow: auto;
  border: 1px solid var(--jp-border-color2);
  font-variant-numeric: tabular-nums;
}

.aliquot-Grid-head {
  position: sticky;
  z-index: 1;
  top: 0;
  min-width: 915px;
  background: var(--jp-layout-color2);
}

.aliquot-Grid-body {
  position: relative;
  min-width: 915px;
}

.aliquot-Grid-row {
  display: grid;
  grid-template-columns: minmax(160px, 3fr) minmax(80px, 1fr) 90px 100px 105px 120px 70px 90px 100px;
  height: 28px;
  box-sizing: border-box;
  border-bottom: 1px solid var(--jp-border-color3);
}

.aliquot-Grid-body .aliquot-Grid-row {
  position: absolute;
  right: 0;
  left: 0;
  cursor: pointer;
}

.aliquot-Grid-body .aliquot-Grid-row:hover {
  background: var(--jp-layout-color2);
}

.aliquot-Grid-row > * {
  overflow: hidden;
  padding: 0 8px;
  line-height: 27px;
  text-align: right;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.aliquot-Grid-row > [data-column='label'],
.aliquot-Grid-row > [data-column='owner'],
.aliquot-Grid-row > [data-column='state'] {
  text-align: left;
}

.aliquot-Admin .aliquot-Grid-head button {
  width: 100%;
  height: 26px;
  padding: 0;
  border: none;
  background: none;
  font-weight: 600;
  text-align: inherit;
}

.aliquot-Admin-dialog {
  box-sizing: border-box;
  width: 520px;
  max-width: calc(100vw - 32px);
  border: 1px solid var(--jp-border-color0);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
}

.aliquot-Admin-dialog::backdrop {
  background: rgb(0 0 0 / 50%);
}

.aliquot-Admin-facts {
  display: grid;
  grid-template-columns: max-content 1fr;
  gap: 4px 16px;
  margin: 8px 0;
}

.aliquot-Admin-facts dd {
  margin: 0;
  overflow-wrap: anywhere;
}

.aliquot-Admin-actions {
  display: flex;
  flex-wrap: wrap;
  gap: 8px;
  margin-top: 16px;
}

.aliquot-Admin-rowActions {
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
}

.aliquot-Admin-fields label {
  display: flex;
  flex-direction: column;
  gap: 2px;
  margin: 8px 0;
}

.aliquot-Admin .aliquot-Admin-actions button[type='submit'] {
  border-width: 2px;
  border-color: var(--jp-brand-color1);
  font-weight: 600;
}

.aliquot-Admin .aliquot-Admin-actions button[data-act='end'] {
  border-color: var(--jp-error-color1);
}

@media (forced-colors: active) {
  .aliquot-Admin .aliquot-Admin-tabs button[aria-selected='true'] {
    border-bottom-color: Highlight;
  }

  .aliquot-Grid-body .aliquot-Grid-row:hover,
  .aliquot-Grid-body .aliquot-Grid-row:focus {
    outline: 2px solid Highlight;
    outline-offset: -2px;
  }
}

/* The page of folders that users share. */

.aliquot-Folders h3 {
  margin: 12px 0 4px;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.aliquot-Folders-actions {
  display: flex;
  flex-wrap: wrap;
  gap: 4px;
}

.aliquot-Folders-problem {
  display: block;
  color: var(--jp-error-color0);
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/bar.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* Bars: one whole, divided. Parts differ in pattern: solid is in use within guarantees, upright lines beyond them,
   slanted lines are promised and not used, level lines are in host memory. Mine is the brand's colour, others' is grey. */

.aliquot-Bar {
  display: flex;
  height: 10px;
  margin: 4px 0;
  border-radius: var(--jp-border-radius);
  box-shadow: inset 0 0 0 1px var(--jp-border-color1);
  background: var(--jp-layout-color1);
  overflow: hidden;
  contain: layout paint style;
}

.aliquot-Bar.aliquot-mod-thin {
  height: 6px;
}

.aliquot-Bar-part {
  --aliquot-ink: var(--jp-brand-color1);

  flex: 0 0 auto;
  min-width: 1px;
  transition: width 200ms ease-out;
}

.aliquot-Bar-part[class*='aliquot-mod-others'] {
  --aliquot-ink: var(--jp-inverse-layout-color4);
}

.aliquot-Bar-part.aliquot-mod-used,
.aliquot-Bar-part.aliquot-mod-mine {
  background: var(--aliquot-ink);
}

/* A seam through the middle tells others' from mine where colours do not. */
.aliquot-Bar-part.aliquot-mod-others {
  background:
    linear-gradient(var(--jp-layout-color1), var(--jp-layout-color1)) center / 100% 1px no-repeat,
    var(--aliquot-ink);
}

.aliquot-Bar-part.aliquot-mod-tight {
  background: var(--jp-warn-color1);
}

.aliquot-Bar-part.aliquot-mod-mine-burstable,
.aliquot-Bar-part.aliquot-mod-others-burstable {
  background: repeating-linear-gradient(90deg, transparent 0 1.5px, var(--aliquot-ink) 1.5px 3.5px);
}

.aliquot-Bar-part.aliquot-mod-mine-held,
.aliquot-Bar-part.aliquot-mod-others-held {
  background: repeating-linear-gradient(-45deg, var(--aliquot-ink) 0 1.5px, transparent 1.5px 5px);
}

.aliquot-Bar-part.aliquot-mod-mine-swapped,
.aliquot-Bar-part.aliquot-mod-others-swapped {
  background: repeating-linear-gradient(0deg, var(--aliquot-ink) 0 1px, transparent 1px 3px);
}

@media (prefers-reduced-motion: reduce) {
  .aliquot-Bar-part {
    transition: none;
  }
}

.aliquot-Legend {
  display: flex;
  flex-wrap: wrap;
  gap: 2px 10px;
  margin: 0;
  padding: 6px 12px 2px;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  list-style: none;
}

.aliquot-Legend > li {
  display: flex;
  align-items: center;
  gap: 4px;
}

.aliquot-Legend-swatch {
  width: 16px;
  height: 10px;
  outline: 1px solid var(--jp-border-color1);
  outline-offset: -1px;
  border-radius: var(--jp-border-radius);
}

/* Forced colors leave no gradient and one background: bars keep their patterns, in the system's colors. */
@media (forced-colors: active) {
  .aliquot-Bar,
  .aliquot-Legend-swatch {
    --jp-layout-color1: Canvas;
    --jp-warn-color1: Highlight;

    outline: 1px solid CanvasText;
    outline-offset: -1px;
    forced-color-adjust: none;
  }

  .aliquot-Bar-part {
    --aliquot-ink: Highlight;
  }

  .aliquot-Bar-part[class*='aliquot-mod-others'] {
    --aliquot-ink: CanvasText;
  }
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/cell_badge.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* What a cell waits for, between its input and its output: the sign under the prompt, the words under the code. */

.aliquot-CellBadge {
  display: flex;
  align-items: flex-start;
  padding: 4px 0 0 var(--jp-cell-collapser-width);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
  line-height: 20px;
}

.aliquot-CellBadge-sign {
  flex: 0 0 var(--jp-cell-prompt-width);
  box-sizing: border-box;
  padding: 2px var(--jp-cell-prompt-letter-spacing, 0) 0 0;
  padding-right: 8px;
  text-align: right;
}

.aliquot-CellBadge-said {
  display: flex;
  flex: 1 1 auto;
  flex-wrap: wrap;
  align-items: center;
  gap: 0 8px;
  min-width: 0;
  padding-left: 5px;
  font-variant-numeric: tabular-nums;
}

.aliquot-CellBadge-why {
  color: var(--jp-ui-font-color2);
}

.aliquot-CellBadge-bar {
  flex: 0 0 120px;
}

.aliquot-CellBadge-bar[hidden] {
  display: none;
}

/* A cell that waits for the cell that waits: the sign alone, without a line of its own, left of the prompt. */
.aliquot-CellBadge.aliquot-mod-behind {
  position: relative;
  height: 0;
  padding-top: 0;
}

.aliquot-CellBadge.aliquot-mod-behind .aliquot-CellBadge-said {
  display: none;
}

.aliquot-CellBadge.aliquot-mod-behind .aliquot-CellBadge-sign {
  position: absolute;
  top: -24px;
  left: calc(var(--jp-cell-collapser-width) + 4px);
}

/* For screen readers alone. */
.aliquot-Live {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
  white-space: nowrap;
}

.jp-OutputArea-child.aliquot-mod-told {
  display: none;
}

.jp-Cell-outputWrapper:has(.aliquot-mod-told):not(:has(.jp-OutputArea-child:not(.aliquot-mod-told))) {
  display: none;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/coming_back.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* What is said in a cell's output that the kernel did not say. */

.aliquot-remark {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size1);
  font-style: italic;
  padding-left: var(--jp-code-padding);
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/devices.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The devices: lines of the last minutes, and the short form where there are many. */

.aliquot-Sparklines {
  display: grid;
  grid-template-columns: repeat(auto-fit, minmax(90px, 1fr));
  gap: 4px 12px;
  margin: 4px 0 2px;
}

.aliquot-Sparkline-now {
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
}

.aliquot-Sparkline-chart {
  display: block;
  width: 100%;
  height: 22px;
  border-bottom: 1px solid var(--jp-border-color2);
}

.aliquot-Sparkline-line {
  fill: none;
  stroke: var(--jp-brand-color1);
  stroke-width: 1.5px;
  stroke-linejoin: round;
  vector-effect: non-scaling-stroke;
}

.aliquot-Sparkline-area {
  fill: var(--jp-brand-color1);
  opacity: 0.15;
}

.aliquot-Item.aliquot-mod-compact {
  padding: 0 12px;
  border-top: none;
  contain-intrinsic-size: auto 26px;
}

.aliquot-Compact,
.aliquot-Group-head {
  cursor: pointer;
}

.aliquot-Compact {
  display: grid;
  grid-template-columns: 54px minmax(0, 1fr) 36px;
  align-items: center;
  gap: 6px;
  min-height: 26px;
  list-style: none;
}

.aliquot-Compact::-webkit-details-marker {
  display: none;
}

.aliquot-Compact:hover,
.aliquot-Group-head:hover {
  background: var(--jp-layout-color2);
}

.aliquot-Compact:focus-visible,
.aliquot-Group-head:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: -2px;
}

.aliquot-Compact-figure {
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
  text-align: right;
}

.aliquot-Node {
  padding: 0 12px 8px;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/history.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The history: charts in colours that stand out from both themes' background, and the tables below them. */

.aliquot-History {
  display: flex;
  flex-direction: column;
  min-width: 320px;
  padding: 12px 16px 24px;
  overflow: auto;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size1);

  --aliquot-area-0: #1976d2;
  --aliquot-area-1: #c2185b;
  --aliquot-area-2: #00796b;
  --aliquot-area-3: #b25500;
  --aliquot-area-4: #5e35b1;
  --aliquot-area-5: #558b2f;
  --aliquot-area-6: #6d4c41;
  --aliquot-area-7: #616161;
}

[data-jp-theme-light='false'] .aliquot-History {
  --aliquot-area-0: #64b5f6;
  --aliquot-area-1: #f06292;
  --aliquot-area-2: #4db6ac;
  --aliquot-area-3: #ffb74d;
  --aliquot-area-4: #b39ddb;
  --aliquot-area-5: #aed581;
  --aliquot-area-6: #bcaaa4;
  --aliquot-area-7: #bdbdbd;
}

.aliquot-History > * {
  flex-shrink: 0; /* the page scrolls; a chart that gave way would have no height left */
}

.aliquot-History h2 {
  margin: 20px 0 8px;
  font-size: var(--jp-ui-font-size2);
  font-weight: 600;
}

.aliquot-History-controls {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 8px 16px;
}

.aliquot-History-ranges {
  display: flex;
  gap: 0;
  margin: 0;
  padding: 0;
  border: none;
}

.aliquot-History-ranges label {
  padding: 3px 12px;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  cursor: pointer;
}

.aliquot-History-ranges label + label {
  border-left: none;
}

.aliquot-History-ranges label:first-of-type {
  border-radius: var(--jp-border-radius) 0 0 var(--jp-border-radius);
}

.aliquot-History-ranges label:last-of-type {
  border-radius: 0 var(--jp-border-radius) var(--jp-border-radius) 0;
}

.aliquot-History-ranges label[data-chosen] {
  background: var(--jp-layout-color3);
  font-weight: 600;
}

.aliquot-History-ranges input {
  position: absolute;
  opacity: 0;
}

.aliquot-History-ranges label:focus-within {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: 1px;
}

.aliquot-History-space {
  flex: 1 1 auto;
}

.aliquot-History-note {
  margin: 8px 0;
  color: var(--jp-ui-font-color2);
  line-height: 1.4;
}

.aliquot-Chart {
  position: relative;
  height: 220px;
  margin: 8px 0 26px 72px;
}

.aliquot-Chart[data-small] {
  height: 48px;
  margin-bottom: 8px;
}

.aliquot-Chart-plot {
  position: absolute;
  inset: 0;
  border-bottom: var(--jp-border-width) solid var(--jp-border-color1);
  border-left: var(--jp-border-width) solid var(--jp-border-color1);
  cursor: crosshair;
}

.aliquot-Chart-plot:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: 2px;
}

.aliquot-Chart-plot svg {
  display: block;
  width: 100%;
  height: 100%;
}

.aliquot-Chart-marks span,
.aliquot-Chart-times span {
  position: absolute;
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
  white-space: nowrap;
}

.aliquot-Chart-marks span {
  right: 100%;
  padding-right: 6px;
  line-height: 1;
  transform: translateY(50%);
}

.aliquot-Chart[data-small] .aliquot-Chart-marks span:nth-child(2) {
  display: none;
}

.aliquot-Chart-times span {
  top: 100%;
  padding-top: 4px;
  transform: translateX(-50%);
}

.aliquot-Chart-moment {
  position: absolute;
  top: 0;
  bottom: 0;
  width: 0;
  border-left: 1px solid var(--jp-ui-font-color1);
  pointer-events: none;
}

.aliquot-Area-most {
  fill: var(--jp-layout-color3);
}

.aliquot-Area-0 { fill: var(--aliquot-area-0); background: var(--aliquot-area-0); }
.aliquot-Area-1 { fill: var(--aliquot-area-1); background: var(--aliquot-area-1); }
.aliquot-Area-2 { fill: var(--aliquot-area-2); background: var(--aliquot-area-2); }
.aliquot-Area-3 { fill: var(--aliquot-area-3); background: var(--aliquot-area-3); }
.aliquot-Area-4 { fill: var(--aliquot-area-4); background: var(--aliquot-area-4); }
.aliquot-Area-5 { fill: var(--aliquot-area-5); background: var(--aliquot-area-5); }
.aliquot-Area-6 { fill: var(--aliquot-area-6); background: var(--aliquot-area-6); }
.aliquot-Area-7 { fill: var(--aliquot-area-7); background: var(--aliquot-area-7); }

.aliquot-History table {
  width: 100%;
  border-collapse: collapse;
  font-variant-numeric: tabular-nums;
}

.aliquot-History th,
.aliquot-History td {
  padding: 3px 8px;
  border-bottom: var(--jp-border-width) solid var(--jp-border-color3);
  text-align: right;
  vertical-align: top;
}

.aliquot-History td,
.aliquot-History th {
  white-space: nowrap;
}

.aliquot-History th {
  color: var(--jp-ui-font-color2);
  font-weight: normal;
}

.aliquot-History th:first-child,
.aliquot-History td:first-child,
.aliquot-History th[data-text],
.aliquot-History td[data-text] {
  text-align: left;
}

.aliquot-History td:first-child,
.aliquot-History td[data-text] {
  max-width: 160px;
  overflow: hidden;
  text-overflow: ellipsis;
}

.aliquot-History td:first-child {
  width: 100%;
  max-width: 0; /* as wide as the others leave it */
}

.aliquot-History-swatch {
  display: inline-block;
  width: 10px;
  height: 10px;
  margin-right: 8px;
  border-radius: 2px;
  forced-color-adjust: none; /* as the area of the chart that it names */
}

.aliquot-History-device {
  display: flex;
  justify-content: space-between;
  gap: 12px;
  margin: 12px 0 0;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=a.n(r),n=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/panel.css"),s=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/notice.css"),d=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/item.css"),u=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/bar.css"),p=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/devices.css"),c=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/kernels.css"),m=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/actions.css"),h=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/coming_back.css"),x=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/share.css"),f=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/picker.css"),b=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/history.css"),g=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/admin.css"),v=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/cell_badge.css"),q=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/ways_out.css"),j=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/notebook.css"),y=a("./node_modules/css-loader/dist/cjs.js!./labextension/style/launcher.css"),w=l()(t());w.i(n.A),w.i(s.A),w.i(d.A),w.i(u.A),w.i(p.A),w.i(c.A),w.i(m.A),w.i(h.A),w.i(x.A),w.i(f.A),w.i(b.A),w.i(g.A),w.i(v.A),w.i(q.A),w.i(j.A),w.i(y.A),w.push([o.id,`/* Only theme variables in all of these: they follow every theme, light or dark. */
`,""]),a.d(e,{},{A:w})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/item.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* An entry of a list: a device or a kernel. */

.aliquot-List {
  margin: 0;
  padding: 4px 0;
  list-style: none;
}

/* Of a hundred entries only those in sight are laid out. */
.aliquot-Item {
  padding: 6px 12px 8px;
  content-visibility: auto;
  contain-intrinsic-size: auto 84px;
}

.aliquot-Item + .aliquot-Item {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.aliquot-Item-head {
  display: flex;
  align-items: center;
  gap: 6px;
  min-height: 24px;
}

.aliquot-Item-title {
  flex: 1 1 auto;
  min-width: 0;
  overflow: hidden;
  text-overflow: ellipsis;
  white-space: nowrap;
}

.aliquot-Item-badge {
  flex: 0 0 auto;
  font-weight: 600;
}

.aliquot-Item-link {
  margin: 0 -4px;
  padding: 2px 4px;
  border: none;
  border-radius: var(--jp-border-radius);
  background: none;
  color: inherit;
  font: inherit;
  text-align: left;
  cursor: pointer;
}

.aliquot-Item-size,
.aliquot-Item-alarm {
  flex: 0 0 auto;
  padding: 0 6px;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 10px;
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size0);
  line-height: 18px;
}

.aliquot-Item-alarm {
  border-color: var(--jp-error-color1);
  color: var(--jp-error-color1);
}

.aliquot-Item-more,
.aliquot-Item-dismiss {
  flex: 0 0 auto;
  min-width: 24px;
  min-height: 24px;
  padding: 2px 4px;
  border: none;
  border-radius: var(--jp-border-radius);
  background: none;
  color: inherit;
  line-height: 0;
  cursor: pointer;
}

.aliquot-Item-more {
  margin-right: -6px;
}

.aliquot-Item-more[aria-expanded='true'] {
  background: var(--jp-layout-color2);
}

.aliquot-Item-link:hover,
.aliquot-Item-more:hover,
.aliquot-Item-dismiss:hover {
  background: var(--jp-layout-color2);
}

.aliquot-Item-link:focus-visible,
.aliquot-Item-more:focus-visible,
.aliquot-Item-dismiss:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
}

.aliquot-Item-lines {
  display: flex;
  flex-wrap: wrap;
  align-items: baseline;
  gap: 0 10px;
}

.aliquot-Item-line {
  margin: 2px 0 0;
  line-height: 1.4;
  font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
}

.aliquot-Item-line.aliquot-mod-quiet {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

/* A dot before each fact; those at the beginning of a line lie outside. */
.aliquot-Facts {
  overflow: hidden;
}

.aliquot-Item-fact {
  position: relative;
  display: inline-block;
  max-width: 100%;
  margin: 0 8px 0 -8px;
  padding-left: 8px;
}

.aliquot-Item-fact::before {
  content: '\xb7';
  position: absolute;
  left: 1px;
}

.aliquot-Item > .aliquot-Notice {
  margin-top: 6px;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/kernels.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The kernels: quota, owners, and what is folded behind an entry. */

.aliquot-Quota {
  padding: 6px 12px 4px;
}

.aliquot-Item-folded {
  display: flex;
  flex-direction: column;
  gap: 8px;
  margin-top: 6px;
  padding: 8px;
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color0);
  box-shadow: inset 0 0 0 1px var(--jp-border-color2);
}

.aliquot-Item-folded[hidden] {
  display: none;
}

.aliquot-Group-head:hover > .aliquot-Group-sums {
  color: var(--jp-ui-font-color1);
}

.aliquot-Group-head {
  padding: 6px 12px;
  line-height: 1.4;
}

.aliquot-Group-name {
  margin-right: 6px;
  font-weight: 600;
}

.aliquot-Group-sums {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
  font-variant-numeric: tabular-nums;
}

.aliquot-Group + .aliquot-Group {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.aliquot-Move {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 2px 8px;
  font-size: var(--jp-ui-font-size0);
}

.aliquot-Move > progress {
  flex: 1 1 80px;
  height: 6px;
  accent-color: var(--jp-brand-color1);
}

.aliquot-List.aliquot-mod-ended {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/launcher.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The cards of kernels in Lab's launcher: a size stays on one line, as far as the card is wide enough. */

.jp-LauncherCard[data-category='Notebook'] .jp-LauncherCard-label > p,
.jp-LauncherCard[data-category='Console'] .jp-LauncherCard-label > p {
  text-wrap: balance;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/notebook.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* A kernel's GPU in its notebook: the line in toolbar and status bar, and the window that it opens. */

.aliquot-KernelItem {
  font-variant-numeric: tabular-nums;
  white-space: nowrap;
}

.aliquot-KernelItem .jp-ToolbarButtonComponent-label {
  margin-left: 4px;
}

.aliquot-KernelItem:empty {
  display: none;
}

.aliquot-Popover {
  position: fixed;
  z-index: 10000;
  box-sizing: border-box;
  width: 320px;
  max-width: calc(100vw - 8px);
  max-height: calc(100vh - 8px);
  padding: 12px;
  overflow: auto;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  box-shadow: var(--jp-elevation-z6);
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
}

.aliquot-Popover:focus-visible {
  outline: none;
}

.aliquot-Popover-head {
  display: flex;
  align-items: baseline;
  justify-content: space-between;
  gap: 8px;
  margin-bottom: 8px;
}

.aliquot-Popover .aliquot-Actions {
  margin-top: 12px;
  padding-top: 12px;
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.aliquot-Popover-size {
  font-weight: 600;
}

.aliquot-Popover-state {
  color: var(--jp-ui-font-color2);
}

.aliquot-Popover-line {
  margin: 2px 0 0;
  line-height: 1.4;
  font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere;
}

.aliquot-Popover-line.aliquot-mod-quiet {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

.aliquot-Popover-link {
  margin: 12px 0 0;
  padding: 0;
  border: none;
  background: none;
  color: var(--jp-content-link-color);
  font: inherit;
  cursor: pointer;
}

.aliquot-Popover-link:hover {
  text-decoration: underline;
}

.aliquot-Popover-link:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: 2px;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/notice.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* Sentences that ask for attention. */

.aliquot-Notice {
  display: flex;
  gap: 8px;
  padding: 8px 12px;
  line-height: 1.4;
  border-left: 3px solid transparent;
  overflow-wrap: anywhere;
}

.aliquot-Notice-icon {
  flex: 0 0 auto;
  width: 16px;
  height: 16px;
  margin-top: 1px;
}

.aliquot-Notice-icon > svg {
  display: block;
  width: 16px;
  height: 16px;
}

.aliquot-Notice.aliquot-mod-info {
  color: var(--jp-ui-font-color2);
}

.aliquot-Notice.aliquot-mod-warning {
  border-left-color: var(--jp-warn-color1);
  background: var(--jp-layout-color2);
  color: var(--jp-ui-font-color1);
}

.aliquot-Notice-action {
  margin-left: 6px;
  padding: 0 4px;
  border: none;
  border-radius: var(--jp-border-radius);
  background: none;
  color: inherit;
  font: inherit;
  text-decoration: underline;
  cursor: pointer;
}

.aliquot-Notice-action:hover {
  background: var(--jp-layout-color3);
}

.aliquot-Notice-action:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/panel.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The sidebar panel as a whole. */

.aliquot-Panel .jp-SidePanel-header:empty {
  display: none;
}

.aliquot-Panel .jp-SidePanel-header {
  display: block;
  padding: 0;
  border-bottom: none;
  font-size: var(--jp-ui-font-size1);
  font-weight: normal;
  letter-spacing: normal;
  text-transform: none;
}

.aliquot-Section {
  overflow: hidden auto;
}

.aliquot-Section:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: -2px;
}

.aliquot-Empty,
.aliquot-Queue {
  margin: 0;
  padding: 8px 12px;
  color: var(--jp-ui-font-color2);
  line-height: 1.4;
}

.aliquot-Queue {
  padding-block: 4px;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/picker.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* The dialog in which a kernel and its size are picked. */

.aliquot-KernelDialog .jp-Dialog-content {
  width: min(560px, calc(100vw - 32px));
  max-height: min(760px, calc(100vh - 32px));
}

.aliquot-KernelSelector {
  display: flex;
  flex-direction: column;
}

.aliquot-SizeForm {
  display: flex;
  flex-direction: column;
  gap: 12px;
  padding-top: 8px;
  line-height: 1.4;
}

.aliquot-SizeForm p {
  margin: 0;
}

.aliquot-SizeForm-refusal {
  padding: 8px 12px;
  border-left: 3px solid var(--jp-warn-color1);
  background: var(--jp-layout-color2);
  overflow-wrap: anywhere;
}

.aliquot-SizeForm-hint {
  color: var(--jp-ui-font-color2);
}

.aliquot-SizeForm-own {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 8px;
  color: var(--jp-ui-font-color2);
}

.aliquot-SizeForm-presets,
.aliquot-SizeForm-class {
  margin: 0;
  padding: 0;
  border: none;
}

.aliquot-SizeForm-presets {
  display: grid;
  grid-template-columns: repeat(auto-fill, minmax(116px, 1fr));
  gap: 8px;
}

.aliquot-SizeForm-presets > legend,
.aliquot-SizeForm-class > legend {
  padding: 0 0 4px;
}

.aliquot-SizeCard {
  position: relative;
  display: flex;
  flex-direction: column;
  padding: 8px 10px;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: var(--jp-border-radius);
  background: var(--jp-layout-color1);
  cursor: pointer;
}

.aliquot-SizeCard:hover {
  background: var(--jp-layout-color2);
}

.aliquot-SizeCard:has(:checked) {
  border-color: var(--jp-brand-color1);
  box-shadow: inset 0 0 0 1px var(--jp-brand-color1);
}

.aliquot-SizeCard:has(:focus-visible) {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
  outline-offset: 2px;
}

.aliquot-SizeCard > input {
  position: absolute;
  top: 11px;
  right: 10px;
  margin: 0;
  accent-color: var(--jp-brand-color1);
}

.aliquot-SizeCard-title {
  padding-right: 20px;
  font-weight: 600;
}

.aliquot-SizeCard-details {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}

/* A line of its own, also before the words come: the cards keep their places. */
.aliquot-SizeCard-now {
  display: flex;
  gap: 5px;
  align-items: baseline;
  min-height: 1.4em;
  font-size: var(--jp-ui-font-size0);
  overflow-wrap: anywhere;
}

.aliquot-SizeCard-now[data-outcome]::before {
  flex: 0 0 auto;
  width: 7px;
  height: 7px;
  border-radius: 50%;
  background: var(--jp-success-color1);
  content: '';
  forced-color-adjust: none;
}

.aliquot-SizeCard-now[data-outcome='queued']::before {
  background: var(--jp-warn-color1);
}

.aliquot-SizeCard-now[data-outcome='never']::before {
  border-radius: 0;
  background: var(--jp-error-color1);
}

.aliquot-SizeForm-custom {
  display: flex;
  flex-direction: column;
  gap: 10px;
  padding: 10px 12px;
  border: var(--jp-border-width) solid var(--jp-border-color2);
  border-radius: var(--jp-border-radius);
}

.aliquot-SizeForm-class {
  display: flex;
  flex-direction: column;
  gap: 2px;
}

/* In sight wherever the form is scrolled to, as in a small window or a large font. */
.aliquot-SizeForm-dry-run {
  position: sticky;
  bottom: 0;
  min-height: 1.4em;
  padding: 4px 0 4px 10px;
  background: var(--jp-layout-color1);
  border-left: 3px solid transparent;
  overflow-wrap: anywhere;
}

/* It is of the last number that was right. */
.aliquot-SizeForm:has([aria-invalid='true']) > .aliquot-SizeForm-dry-run {
  visibility: hidden;
}

.aliquot-SizeForm-dry-run[data-outcome='starts'] {
  border-left-color: var(--jp-success-color1);
}

.aliquot-SizeForm-dry-run[data-outcome='queued'] {
  border-left-color: var(--jp-warn-color1);
}

.aliquot-SizeForm-dry-run[data-outcome='never'] {
  border-left-color: var(--jp-error-color1);
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/share.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* Kernels that are shared: the dialog, and those of others in the list. */

.aliquot-ShareDialog .jp-Dialog-content {
  width: min(480px, calc(100vw - 32px));
  max-height: min(720px, calc(100vh - 32px));
}

.aliquot-Share,
.aliquot-Share-form {
  display: flex;
  flex-direction: column;
  gap: 10px;
  line-height: 1.4;
}

.aliquot-Share p {
  margin: 0;
}

/* Lab's dialogs give every field the look of a text field, in which a choice is not seen. */
.aliquot-Share-choice input[type='radio'].jp-mod-styled {
  width: 16px;
  height: 16px;
  padding: 0;
  border: none;
  background: none;
  appearance: auto;
}

.aliquot-Share-choice > legend {
  padding: 0 0 4px;
}

.aliquot-Share-choice + .aliquot-Share-name,
input.jp-mod-styled.aliquot-Share-name {
  width: 100%;
  margin: 0;
  font-size: var(--jp-ui-font-size1);
}

.jp-Button.aliquot-Action.aliquot-Share-send {
  align-self: flex-start;
  padding: 0 16px;
}

.aliquot-Share-said {
  min-height: 1.4em;
}

.aliquot-Share-heading {
  margin: 0;
  padding-top: 10px;
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
  font-size: var(--jp-ui-font-size1);
}

.aliquot-Share-unshared {
  color: var(--jp-ui-font-color2);
}

.aliquot-Share-list {
  display: flex;
  flex-direction: column;
  margin: 0;
  padding: 0;
  list-style: none;
}

.aliquot-Share-list > li {
  display: flex;
  align-items: center;
  gap: 8px;
  min-height: 32px;
}

.aliquot-Share-who {
  flex: 1 1 auto;
  min-width: 0;
  overflow-wrap: anywhere;
}

.aliquot-Share-may,
.aliquot-Shared-access {
  flex: 0 0 auto;
  padding: 0 6px;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 10px;
  font-size: var(--jp-ui-font-size0);
  line-height: 18px;
}

.aliquot-Shared {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.aliquot-Shared-heading {
  margin: 0;
  padding: 8px 12px 0;
  font-size: var(--jp-ui-font-size1);
  font-weight: 600;
}

.aliquot-Shared-whose {
  display: flex;
  flex-wrap: wrap;
  gap: 4px 8px;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/ways_out.css"(o,e,a){var i=a("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),t=a.n(i),r=a("./node_modules/css-loader/dist/runtime/api.js"),l=(a.n(r))()(t());l.push([o.id,`/* What can be done about a wait: below a cell's badge, and in the window of the kernel's line. */

.aliquot-WaysOut {
  display: flex;
  flex-direction: column;
  gap: 6px;
  padding: 4px 0;
  color: var(--jp-ui-font-color1);
  font-family: var(--jp-ui-font-family);
  font-size: var(--jp-ui-font-size1);
}

/* Under the badge's words. */
.aliquot-CellWays {
  padding-left: calc(var(--jp-cell-collapser-width) + var(--jp-cell-prompt-width) + 5px);
}

.aliquot-Popover .aliquot-WaysOut {
  margin-top: 12px;
}

.aliquot-WaysOut-head {
  margin: 0;
  color: var(--jp-ui-font-color2);
}

.aliquot-WaysOut-kernels {
  display: flex;
  flex-direction: column;
  gap: 4px;
  margin: 0;
  padding: 0;
  list-style: none;
}

.aliquot-WaysOut-kernels > li {
  display: flex;
  flex-wrap: wrap;
  align-items: center;
  gap: 4px 8px;
}

.aliquot-WaysOut-kernel {
  overflow-wrap: anywhere;
}
`,""]),a.d(e,{},{A:l})},"./node_modules/css-loader/dist/runtime/api.js"(o){o.exports=function(o){var e=[];return e.toString=function(){return this.map(function(e){var a="",i=void 0!==e[5];return e[4]&&(a+="@supports (".concat(e[4],") {")),e[2]&&(a+="@media ".concat(e[2]," {")),i&&(a+="@layer".concat(e[5].length>0?" ".concat(e[5]):""," {")),a+=o(e),i&&(a+="}"),e[2]&&(a+="}"),e[4]&&(a+="}"),a}).join("")},e.i=function(o,a,i,t,r){"string"==typeof o&&(o=[[null,o,void 0]]);var l={};if(i)for(var n=0;n<this.length;n++){var s=this[n][0];null!=s&&(l[s]=!0)}for(var d=0;d<o.length;d++){var u=[].concat(o[d]);i&&l[u[0]]||(void 0!==r&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=r),a&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=a),t&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=t):u[4]="".concat(t)),e.push(u))}},e}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(o){o.exports=function(o){return o[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(o){var e=[];function a(o){for(var a=-1,i=0;i<e.length;i++)if(e[i].identifier===o){a=i;break}return a}function i(o,i){for(var t={},r=[],l=0;l<o.length;l++){var n=o[l],s=i.base?n[0]+i.base:n[0],d=t[s]||0,u="".concat(s," ").concat(d);t[s]=d+1;var p=a(u),c={css:n[1],media:n[2],sourceMap:n[3],supports:n[4],layer:n[5]};if(-1!==p)e[p].references++,e[p].updater(c);else{var m=function(o,e){var a=e.domAPI(e);return a.update(o),function(e){e?(e.css!==o.css||e.media!==o.media||e.sourceMap!==o.sourceMap||e.supports!==o.supports||e.layer!==o.layer)&&a.update(o=e):a.remove()}}(c,i);i.byIndex=l,e.splice(l,0,{identifier:u,updater:m,references:1})}r.push(u)}return r}o.exports=function(o,t){var r=i(o=o||[],t=t||{});return function(o){o=o||[];for(var l=0;l<r.length;l++){var n=a(r[l]);e[n].references--}for(var s=i(o,t),d=0;d<r.length;d++){var u=a(r[d]);0===e[u].references&&(e[u].updater(),e.splice(u,1))}r=s}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(o){var e={};o.exports=function(o,a){var i=function(o){if(void 0===e[o]){var a=document.querySelector(o);if(window.HTMLIFrameElement&&a instanceof window.HTMLIFrameElement)try{a=a.contentDocument.head}catch(o){a=null}e[o]=a}return e[o]}(o);if(!i)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");i.appendChild(a)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(o){o.exports=function(o){var e=document.createElement("style");return o.setAttributes(e,o.attributes),o.insert(e,o.options),e}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(o,e,a){o.exports=function(o){var e=a.nc;e&&o.setAttribute("nonce",e)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(o){o.exports=function(o){if("u"<typeof document)return{update:function(){},remove:function(){}};var e=o.insertStyleElement(o);return{update:function(a){var i,t,r;i="",a.supports&&(i+="@supports (".concat(a.supports,") {")),a.media&&(i+="@media ".concat(a.media," {")),(t=void 0!==a.layer)&&(i+="@layer".concat(a.layer.length>0?" ".concat(a.layer):""," {")),i+=a.css,t&&(i+="}"),a.media&&(i+="}"),a.supports&&(i+="}"),(r=a.sourceMap)&&"u">typeof btoa&&(i+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(r))))," */")),o.styleTagTransform(i,e,o.options)},remove:function(){var o;null===(o=e).parentNode||o.parentNode.removeChild(o)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(o){o.exports=function(o,e){if(e.styleSheet)e.styleSheet.cssText=o;else{for(;e.firstChild;)e.removeChild(e.firstChild);e.appendChild(document.createTextNode(o))}}}}]);