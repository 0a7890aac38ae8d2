"use strict";(self.rspackChunk_aliquot_lab=self.rspackChunk_aliquot_lab||[]).push([["labextension_style_index_js"],{"./labextension/style/index.js"(e,o,t){var r=t("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),i=t.n(r),a=t("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),n=t.n(a),l=t("./node_modules/style-loader/dist/runtime/insertBySelector.js"),s=t.n(l),d=t("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),u=t.n(d),c=t("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),p=t.n(c),m=t("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),f=t.n(m),h=t("./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"),v={};v.styleTagTransform=f(),v.setAttributes=u(),v.insert=s().bind(null,"head"),v.domAPI=n(),v.insertStyleElement=p(),i()(h.A,v),h.A&&h.A.locals&&h.A.locals},"./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"(e,o,t){var r=t("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=t.n(r),a=t("./node_modules/css-loader/dist/runtime/api.js"),n=(t.n(a))()(i());n.push([e.id,`/* Only theme variables: the panel follows every theme, light or dark. */

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

.aliquot-List {
  margin: 0;
  padding: 4px 0;
  list-style: none;
}

.aliquot-Item {
  padding: 6px 12px 8px;
}

.aliquot-Item + .aliquot-Item {
  border-top: var(--jp-border-width) solid var(--jp-border-color3);
}

.aliquot-Item-head {
  display: flex;
  align-items: center;
  gap: 8px;
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

.aliquot-Item-link:hover {
  background: var(--jp-layout-color2);
}

.aliquot-Item-link:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
}

.aliquot-Item-size {
  flex: 0 0 auto;
  padding: 0 6px;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 10px;
  color: var(--jp-ui-font-color1);
  font-size: var(--jp-ui-font-size0);
  line-height: 18px;
}

.aliquot-Item-alarm {
  flex: 0 0 auto;
  padding: 0 6px;
  border: var(--jp-border-width) solid var(--jp-error-color1);
  border-radius: 10px;
  color: var(--jp-error-color1);
  font-size: var(--jp-ui-font-size0);
  line-height: 18px;
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

.aliquot-Item-fact {
  display: inline-block;
  max-width: 100%;
}

.aliquot-Item > .aliquot-Notice {
  margin-top: 6px;
}

.aliquot-Bar {
  display: flex;
  height: 8px;
  margin: 4px 0;
  border-radius: 4px;
  box-shadow: inset 0 0 0 1px var(--jp-border-color1);
  background: var(--jp-layout-color2);
  overflow: hidden;
}

.aliquot-Bar-part {
  flex: 0 0 auto;
  transition: width 200ms ease-out;
}

.aliquot-Bar-part.aliquot-mod-mine,
.aliquot-Bar-part.aliquot-mod-used {
  background: var(--jp-brand-color1);
}

.aliquot-Bar-part.aliquot-mod-others {
  background: var(--jp-ui-font-color3);
}

.aliquot-Bar-part.aliquot-mod-tight {
  background: var(--jp-warn-color1);
}

/* Promised but empty: the brand's colour, hatched, so that it differs from use without relying on colour alone. */
.aliquot-Bar-part.aliquot-mod-held {
  background: repeating-linear-gradient(
    -45deg,
    var(--jp-brand-color1) 0 2px,
    transparent 2px 5px
  );
}

@media (prefers-reduced-motion: reduce) {
  .aliquot-Bar-part {
    transition: none;
  }
}

.aliquot-List.aliquot-mod-ended {
  border-top: var(--jp-border-width) solid var(--jp-border-color2);
}

.aliquot-Item-dismiss,
.aliquot-Notice-action {
  border: none;
  border-radius: var(--jp-border-radius);
  background: none;
  color: inherit;
  font: inherit;
  cursor: pointer;
}

.aliquot-Item-dismiss {
  flex: 0 0 auto;
  padding: 2px 4px;
  line-height: 0;
}

.aliquot-Notice-action {
  margin-left: 6px;
  padding: 0 4px;
  text-decoration: underline;
}

.aliquot-Item-dismiss:hover,
.aliquot-Notice-action:hover {
  background: var(--jp-layout-color3);
}

.aliquot-Item-dismiss:focus-visible,
.aliquot-Notice-action:focus-visible {
  outline: var(--jp-focus-outline-width, 2px) solid var(--jp-focus-outline-color, var(--jp-brand-color1));
}
`,""]),t.d(o,{},{A:n})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var o=[];return o.toString=function(){return this.map(function(o){var t="",r=void 0!==o[5];return o[4]&&(t+="@supports (".concat(o[4],") {")),o[2]&&(t+="@media ".concat(o[2]," {")),r&&(t+="@layer".concat(o[5].length>0?" ".concat(o[5]):""," {")),t+=e(o),r&&(t+="}"),o[2]&&(t+="}"),o[4]&&(t+="}"),t}).join("")},o.i=function(e,t,r,i,a){"string"==typeof e&&(e=[[null,e,void 0]]);var n={};if(r)for(var l=0;l<this.length;l++){var s=this[l][0];null!=s&&(n[s]=!0)}for(var d=0;d<e.length;d++){var u=[].concat(e[d]);r&&n[u[0]]||(void 0!==a&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=a),t&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=t),i&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=i):u[4]="".concat(i)),o.push(u))}},o}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var o=[];function t(e){for(var t=-1,r=0;r<o.length;r++)if(o[r].identifier===e){t=r;break}return t}function r(e,r){for(var i={},a=[],n=0;n<e.length;n++){var l=e[n],s=r.base?l[0]+r.base:l[0],d=i[s]||0,u="".concat(s," ").concat(d);i[s]=d+1;var c=t(u),p={css:l[1],media:l[2],sourceMap:l[3],supports:l[4],layer:l[5]};if(-1!==c)o[c].references++,o[c].updater(p);else{var m=function(e,o){var t=o.domAPI(o);return t.update(e),function(o){o?(o.css!==e.css||o.media!==e.media||o.sourceMap!==e.sourceMap||o.supports!==e.supports||o.layer!==e.layer)&&t.update(e=o):t.remove()}}(p,r);r.byIndex=n,o.splice(n,0,{identifier:u,updater:m,references:1})}a.push(u)}return a}e.exports=function(e,i){var a=r(e=e||[],i=i||{});return function(e){e=e||[];for(var n=0;n<a.length;n++){var l=t(a[n]);o[l].references--}for(var s=r(e,i),d=0;d<a.length;d++){var u=t(a[d]);0===o[u].references&&(o[u].updater(),o.splice(u,1))}a=s}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var o={};e.exports=function(e,t){var r=function(e){if(void 0===o[e]){var t=document.querySelector(e);if(window.HTMLIFrameElement&&t instanceof window.HTMLIFrameElement)try{t=t.contentDocument.head}catch(e){t=null}o[e]=t}return o[e]}(e);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(t)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var o=document.createElement("style");return e.setAttributes(o,e.attributes),e.insert(o,e.options),o}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,o,t){e.exports=function(e){var o=t.nc;o&&e.setAttribute("nonce",o)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var o=e.insertStyleElement(e);return{update:function(t){var r,i,a;r="",t.supports&&(r+="@supports (".concat(t.supports,") {")),t.media&&(r+="@media ".concat(t.media," {")),(i=void 0!==t.layer)&&(r+="@layer".concat(t.layer.length>0?" ".concat(t.layer):""," {")),r+=t.css,i&&(r+="}"),t.media&&(r+="}"),t.supports&&(r+="}"),(a=t.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(r,o,e.options)},remove:function(){var e;null===(e=o).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,o){if(o.styleSheet)o.styleSheet.cssText=e;else{for(;o.firstChild;)o.removeChild(o.firstChild);o.appendChild(document.createTextNode(e))}}}}]);