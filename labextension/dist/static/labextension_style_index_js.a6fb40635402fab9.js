"use strict";(self.rspackChunk_aliquot_lab=self.rspackChunk_aliquot_lab||[]).push([["labextension_style_index_js"],{"./labextension/style/index.js"(e,t,o){var r=o("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),a=o.n(r),i=o("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),n=o.n(i),l=o("./node_modules/style-loader/dist/runtime/insertBySelector.js"),s=o.n(l),d=o("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),u=o.n(d),c=o("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),p=o.n(c),m=o("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),f=o.n(m),h=o("./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"),v={};v.styleTagTransform=f(),v.setAttributes=u(),v.insert=s().bind(null,"head"),v.domAPI=n(),v.insertStyleElement=p(),a()(h.A,v),h.A&&h.A.locals&&h.A.locals},"./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"(e,t,o){var r=o("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),a=o.n(r),i=o("./node_modules/css-loader/dist/runtime/api.js"),n=(o.n(i))()(a());n.push([e.id,`/* Only theme variables: the panel follows every theme, light or dark. */

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
`,""]),o.d(t,{},{A:n})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var o="",r=void 0!==t[5];return t[4]&&(o+="@supports (".concat(t[4],") {")),t[2]&&(o+="@media ".concat(t[2]," {")),r&&(o+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),o+=e(t),r&&(o+="}"),t[2]&&(o+="}"),t[4]&&(o+="}"),o}).join("")},t.i=function(e,o,r,a,i){"string"==typeof e&&(e=[[null,e,void 0]]);var n={};if(r)for(var l=0;l<this.length;l++){var s=this[l][0];null!=s&&(n[s]=!0)}for(var d=0;d<e.length;d++){var u=[].concat(e[d]);r&&n[u[0]]||(void 0!==i&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=i),o&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=o),a&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=a):u[4]="".concat(a)),t.push(u))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function o(e){for(var o=-1,r=0;r<t.length;r++)if(t[r].identifier===e){o=r;break}return o}function r(e,r){for(var a={},i=[],n=0;n<e.length;n++){var l=e[n],s=r.base?l[0]+r.base:l[0],d=a[s]||0,u="".concat(s," ").concat(d);a[s]=d+1;var c=o(u),p={css:l[1],media:l[2],sourceMap:l[3],supports:l[4],layer:l[5]};if(-1!==c)t[c].references++,t[c].updater(p);else{var m=function(e,t){var o=t.domAPI(t);return o.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&o.update(e=t):o.remove()}}(p,r);r.byIndex=n,t.splice(n,0,{identifier:u,updater:m,references:1})}i.push(u)}return i}e.exports=function(e,a){var i=r(e=e||[],a=a||{});return function(e){e=e||[];for(var n=0;n<i.length;n++){var l=o(i[n]);t[l].references--}for(var s=r(e,a),d=0;d<i.length;d++){var u=o(i[d]);0===t[u].references&&(t[u].updater(),t.splice(u,1))}i=s}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,o){var r=function(e){if(void 0===t[e]){var o=document.querySelector(e);if(window.HTMLIFrameElement&&o instanceof window.HTMLIFrameElement)try{o=o.contentDocument.head}catch(e){o=null}t[e]=o}return t[e]}(e);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(o)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,o){e.exports=function(e){var t=o.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(o){var r,a,i;r="",o.supports&&(r+="@supports (".concat(o.supports,") {")),o.media&&(r+="@media ".concat(o.media," {")),(a=void 0!==o.layer)&&(r+="@layer".concat(o.layer.length>0?" ".concat(o.layer):""," {")),r+=o.css,a&&(r+="}"),o.media&&(r+="}"),o.supports&&(r+="}"),(i=o.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(i))))," */")),e.styleTagTransform(r,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}}}]);