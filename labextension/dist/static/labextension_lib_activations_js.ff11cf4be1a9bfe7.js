"use strict";(self.rspackChunk_jupyter_aliquot_labextension=self.rspackChunk_jupyter_aliquot_labextension||[]).push([["labextension_lib_activations_js"],{"./labextension/lib/activations.js"(e,t,n){n.r(t),n.d(t,{administration:()=>$,cellExecutor:()=>tx,cellWaits:()=>nt,comingBack:()=>nu,history:()=>em,kernelCommands:()=>eJ,kernelNames:()=>nc,kernels:()=>ty,lostCells:()=>ng,missingSize:()=>nX,notifications:()=>sX,panel:()=>i_,picker:()=>ig,prefetch:()=>nQ,reviving:()=>nZ,running:()=>iw,sharedFolders:()=>iv,sizedNotebooks:()=>n4,statusBar:()=>ik,toolbar:()=>sT,usage:()=>iq});var s,i,a,r,o,l,u,d,c=n("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),h=n.n(c),m=n("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),p=n.n(m),_=n("./node_modules/style-loader/dist/runtime/insertBySelector.js"),g=n.n(_),f=n("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),w=n.n(f),y=n("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),b=n.n(y),v=n("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),k=n.n(v),x=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"),q={};q.styleTagTransform=k(),q.setAttributes=w(),q.insert=g().bind(null,"head"),q.domAPI=p(),q.insertStyleElement=b(),h()(x.A,q),x.A&&x.A.locals&&x.A.locals;var E=n("webpack/sharing/consume/default/@jupyterlab/translation"),S=n("./labextension/lib/tokens.js"),j=n("webpack/sharing/consume/default/@jupyterlab/ui-components");let N=`
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M6 4h12a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2H6a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2zm0 2v12h12V6z"/>
    <path d="M8 1h2v3H8zm6 0h2v3h-2zM8 20h2v3H8zm6 0h2v3h-2zM1 8h3v2H1zm0 6h3v2H1zm19-6h3v2h-3zm0 6h3v2h-3z"/>
    <path d="M8 12h4V8h4v8H8z"/>
  </g>
</svg>`,C=new j.LabIcon({name:"aliquot:gpu",svgstr:N}),A=`
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <g class="jp-icon3 jp-icon-selectable" fill="#616161">
    <path d="M3 3h2v16h16v2H3z"/>
    <path d="M7 17v-4l4-4 4 3 5-6v11z"/>
  </g>
</svg>`,z=new j.LabIcon({name:"aliquot:history",svgstr:A}),M=`
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <path class="jp-icon3" fill="#616161" d="M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16zm-1 3v2h2V7zm0 4v6h2v-6z"/>
</svg>`,P=`
<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 24 24">
  <path class="jp-icon-warn0" fill="#f57c00" d="M12 2 1 21h22zm0 4 7.5 13h-15zm-1 4v5h2v-5zm0 6v2h2v-2z"/>
</svg>`,I=new j.LabIcon({name:"aliquot:note",svgstr:M}),U=new j.LabIcon({name:"aliquot:warning",svgstr:P});var G=n("webpack/sharing/consume/default/@jupyterlab/apputils");function D(e){return(t,n,s,i,a)=>{let r=(a??E.nullTranslator).load(S.$N),o=e(r,n),l=new G.WidgetTracker({namespace:o.id}),u=null,d=()=>{u=null};T(t,s,r,o,async()=>{u??(u=async function({shell:e},{id:t,title:n,name:s,icon:i,content:a},r,o){let l=await a(),u=new G.MainAreaWidget({content:l});return l.node.setAttribute("aria-label",s),u.id=t,u.title.label=n,u.title.icon=i,u.title.closable=!0,u.toolbar.hide(),u.disposed.connect(o),await r.add(u),e.add(u,"main"),u}(t,o,l,d));try{t.shell.activateById((await u).id)}catch(e){throw d(),e}}),i?.restore(l,{command:o.command,name:()=>o.id})}}function T({commands:e},t,n,{command:s,title:i,show:a,caption:r,icon:o,isVisible:l},u){e.addCommand(s,{label:e=>e.isPalette?a:i,caption:r,icon:e=>e.isPalette?void 0:o,describedBy:{args:{type:"object",properties:{isPalette:{type:"boolean"}}}},...l?{isVisible:l}:{},execute:u}),t?.addItem({command:s,category:n.__("View"),args:{isPalette:!0}})}let $=(e,t,n,s,i,a)=>{var r,o;let l,u=(i??E.nullTranslator).load(S.$N),d=S.qs.administration;B(e,t,n,s,i),r=t.model,o=()=>{e.commands.notifyCommandChanged(d),a?.add({command:d,category:u.__("Other"),rank:90})},l=()=>{O(r)&&(r.changed.disconnect(l),o())},r.changed.connect(l),l()},B=D((e,{client:t,model:s})=>({id:"aliquot-administration",command:S.qs.administration,title:e.__("GPU Administration"),show:e.__("Show GPU Administration"),caption:e.__("Show nodes, kernels of all users, teams and the queue, and act on them"),name:e.__("GPU administration"),icon:C,isVisible:()=>O(s),content:async()=>{let[{AdminModel:s},{AdminArea:i}]=await Promise.all([n.e("labextension_lib_admin_admin_model_js").then(n.bind(n,"./labextension/lib/admin/admin_model.js")),n.e("labextension_lib_widgets_admin_admin_area_js").then(n.bind(n,"./labextension/lib/widgets/admin/admin_area.js"))]);return new i(new s(t),e)}}));function O(e){return e.state.status?.user.role==="admin"}var R=n("webpack/sharing/consume/default/@lumino/polling"),H=n("webpack/sharing/consume/default/@lumino/signaling");class L{constructor(e){this._source=e,this._state={range:"hour",history:null,problem:null},this._isWatched=!1,this._isDisposed=!1,this._changed=new H.Signal(this),this._poll=new R.Poll({auto:!1,factory:()=>this._ask(),frequency:o.frequency(10),name:"@jupyter-aliquot/labextension:history",standby:()=>!this._isWatched||"when-hidden"})}get state(){return this._state}get changed(){return this._changed}get isDisposed(){return this._isDisposed}set isWatched(e){this._isWatched=e,e&&!this.isDisposed&&this._poll.refresh()}set range(e){e!==this._state.range&&(this._put({range:e,history:null,problem:null}),this._poll.refresh())}async refresh(){await this._poll.refresh()}dispose(){this._isDisposed||(this._isDisposed=!0,this._poll.stop().finally(()=>this._poll.dispose()),H.Signal.clearData(this))}async _ask(){for(let e=!1;!e&&!this.isDisposed;){let{range:t}=this._state,n=await this._source.history(t).catch(o.problemOf);if((e=t===this._state.range)&&n instanceof S.Xs)throw this._put({...this._state,problem:n}),n;!e||n instanceof S.Xs||(this._put({range:t,history:n,problem:null}),this._poll.frequency=o.frequency(n.step_seconds))}}_put(e){this.isDisposed||(this._state=e,this._changed.emit(e))}}(s=o||(o={})).problemOf=function(e){return e instanceof S.Xs?e:new S.Xs("server",String(e))},s.frequency=function(e){let t=1e3*Math.min(Math.max(e,2),60);return{interval:t,backoff:!0,max:4*t}};var F=n("webpack/sharing/consume/default/react");function W(e,t){return new Date(new Date(e.start).getTime()+t*e.step_seconds*1e3)}class K{constructor(e){this._count=e,this._given=new Map}of(e){let t=new Map([...this._given].filter(([t])=>e.includes(t)));for(let n of e.filter(e=>!t.has(e))){let e=new Set(t.values()),s=Array.from({length:this._count},(e,t)=>t).find(t=>!e.has(t));t.set(n,s??t.size%this._count)}return this._given=t,new Map(t)}}var V=l||(l={});function X(e,t){return e.map((e,n)=>null===e?null:Math.max(0,e-(t[n]??0)))}function J(e){return e.reduce((e,t)=>Math.max(e,t??0),0)}V.layer=function(e,t){let{used_bytes:n,swapped_bytes:s}=e.figures,i=function({figures:{own_gpus:e,busy_gpus:t}}){return t.mean.map((t,n)=>e.mean[n]??t)}(e),a={time:i,memory:X(n.mean,s.mean),copies:s.mean};return{key:`${e.id} ${e.owner}`,label:e.label||e.name||e.id.slice(0,8),owner:e.owner,count:1,values:a[t],gpuSeconds:i.reduce((t,n,s)=>t+(n??0)*(e.known_seconds[s]??0),0),peakBytes:J("copies"===t?s.max:X(n.max,s.min))}},V.together=function(e){let t=e.reduce((e,t)=>Math.max(e,t.values.length),0);return{key:"",label:"",owner:"",count:e.length,values:Array.from({length:t},(t,n)=>e.reduce((e,t)=>e+(t.values[n]??0),0)),gpuSeconds:e.reduce((e,t)=>e+t.gpuSeconds,0),peakBytes:e.reduce((e,t)=>Math.max(e,t.peakBytes),0)}},V.greatest=J,V.meanOver=function(e,t){let n=0,s=0;return e.forEach((e,i)=>{null!==e&&(n+=e*(t[i]??0),s+=t[i]??0)}),s>0?n/s:null},V.runs=function(e){let t=[];return e.forEach((e,n)=>{let s=t[t.length-1];e&&s&&s[1]===n?s[1]=n+1:e&&t.push([n,n+1])}),t},V.height=function(e,t){return String(Math.round(10*(100-100*Math.min(Math.max(e,0),t)/t))/10)};var Q=n("./labextension/lib/base/quantities.js");function Y(e){var t;let n,s,i,{known:a}=e,{end:r,marks:o}=(n=Math.max(e.most/(t=e.unit),1e-9),s=10**Math.floor(Math.log10(n)),{end:(i=([1,2,2.5,5,10].find(e=>e*s>=.999*n)??10)*s)*t,marks:[0,.5,1].map(e=>e*i*t)});return F.createElement("div",{className:"aliquot-Chart","data-small":e.isSmall||void 0},F.createElement("div",{className:"aliquot-Chart-marks","aria-hidden":"true"},o.map((t,n)=>F.createElement("span",{key:n,style:{bottom:`${100*t/r}%`}},e.format(t)))),F.createElement(Z,{...e,end:r}),F.createElement("div",{className:"aliquot-Chart-times","aria-hidden":"true"},e.times.map(({step:e,text:t})=>F.createElement("span",{key:e,style:{left:`${100*e/a.length}%`}},t))))}function Z(e){let{areas:t,known:n,end:s,moment:i,onMoment:a}=e,r=n.length,o=F.useMemo(()=>t.map(e=>{var t,i;return t=e.upper,i=e.lower,l.runs(n).map(([e,n])=>{let a=[],r=[];for(let o=e;o<n;o+=1){let e=l.height(t[o]??0,s),n=l.height(i?.[o]??0,s);a.push(`${o},${e} ${o+1},${e}`),r.unshift(`${o+1},${n} ${o},${n}`)}return`M${a.join(" ")} ${r.join(" ")}Z`}).join("")}),[t,n,s]),u=i??r-1;return F.createElement("div",{className:"aliquot-Chart-plot",role:"slider",tabIndex:0,"aria-label":e.label,"aria-valuemin":0,"aria-valuemax":Math.max(r-1,0),"aria-valuenow":Math.max(u,0),"aria-valuetext":e.describe(u),onKeyDown:e=>{var t,n,s;let i,o,l=(t=e.key,n=u,void 0===(o=({ArrowLeft:-1,ArrowRight:1,PageDown:-(i=Math.max(Math.round((s=r)/20),1)),PageUp:i,Home:-s,End:s})[t])?null:Math.min(Math.max(n+o,0),s-1));null!==l&&(e.preventDefault(),a(l))},onMouseMove:e=>{let t=e.currentTarget.getBoundingClientRect();a(Math.min(Math.max(Math.floor(r*(e.clientX-t.left)/t.width),0),r-1))},onMouseLeave:()=>a(null),onBlur:()=>a(null)},F.createElement("svg",{viewBox:`0 0 ${Math.max(r,1)} 100`,preserveAspectRatio:"none","aria-hidden":"true"},t.map((e,t)=>F.createElement("path",{key:e.key,className:e.className,d:o[t]}))),null!==i&&F.createElement("span",{className:"aliquot-Chart-moment",style:{left:`${100*(i+.5)/r}%`}}))}function ee({history:e,figure:t,trans:n,colours:s}){let[i,a]=F.useState(null),r=F.useMemo(()=>{let n,s,i;return n=e.kernels.map(e=>l.layer(e,t)),s=e=>"time"===t?e.gpuSeconds:e.peakBytes,(i=n.filter(e=>e.peakBytes>0||"copies"!==t&&e.gpuSeconds>0).sort((e,t)=>s(t)-s(e)||e.key.localeCompare(t.key))).length<=8?i:[...i.slice(0,7),l.together(i.slice(7))]},[e,t]),o=F.useMemo(()=>{let t;return Array.from({length:(t=[...e.devices,...e.kernels].map(e=>e.known_seconds)).reduce((e,t)=>Math.max(e,t.length),0)},(e,n)=>t.some(e=>(e[n]??0)>0))},[e]),u=s.of(r.map(e=>e.key)),d=r.map(e=>`aliquot-Area-${u.get(e.key)??0}`),c=F.useMemo(()=>{let e,t=(e=Array(o.length).fill(0),r.map(t=>(t.values.forEach((t,n)=>{e[n]=(e[n]??0)+(t??0)}),[...e])));return t.map((e,n)=>({key:r[n]?.key??"",upper:e,lower:t[n-1]??null,className:d[n]??""}))},[r,o]),h=e=>"time"===t?n.__("%1 GPU",(0,Q.T1)(e)):(0,Q.z3)(e),m=function(e,t){switch(e){case"time":return t.__("GPU time of kernels");case"memory":return t.__("GPU memory of kernels");case"copies":return t.__("Host copies of kernels")}}(t,n);if(0===r.length)return F.createElement(F.Fragment,null,F.createElement("h2",null,m),F.createElement("p",{className:"aliquot-History-note"},"copies"===t?n.__("No kernel was swapped out in this time."):n.__("No kernel used a GPU in this time.")));let p=c[c.length-1]?.upper??[];return F.createElement(F.Fragment,null,F.createElement("h2",null,m),F.createElement(Y,{areas:c,known:o,most:Math.max(...p,"time"===t?.1:0x4000000),unit:"time"===t?1:0x40000000,format:h,times:et(e,o.length),label:m,describe:t=>{var s,i,a,o,l;let u;return s=e,i=r,a=t,o=h,l=n,u=i.filter(e=>(e.values[a]??0)>0).map(e=>`${es(e,l)} ${o(e.values[a]??0)}`),`${en(s,a)}: ${u.join(", ")||l.__("nothing")}`},moment:i,onMoment:a}),F.createElement(ei,{history:e,figure:t,layers:r,classes:d,moment:i,format:h,trans:n}),e.omitted>0&&F.createElement("p",{className:"aliquot-History-note"},n._n("%1 kernel or GPU that used less is left out.","%1 kernels and GPUs that used less are left out.",e.omitted)))}function et(e,t){var n;let s={hour:"2-digit",minute:"2-digit"},i={weekday:"short",day:"numeric"};return Array.from({length:n="week"===e.range?7:6},(e,s)=>Math.round((s+.5)*t/n)).filter((e,n,s)=>e<t&&s.indexOf(e)===n).map(t=>({step:t,text:W(e,t).toLocaleString([],"week"===e.range?i:s)}))}function en(e,t){let n={hour:"2-digit",minute:"2-digit"},s={...n,weekday:"short"};return W(e,t).toLocaleString([],"hour"===e.range?{...n,second:"2-digit"}:s)}function es(e,t){return""===e.key?t._n("%1 other kernel","%1 other kernels",e.count):e.label}function ei({history:e,figure:t,layers:n,classes:s,moment:i,format:a,trans:r}){let o=new Set(e.kernels.map(e=>e.owner)).size>1;return F.createElement("table",null,F.createElement("thead",null,F.createElement("tr",null,F.createElement("th",{scope:"col"},r.__("Kernel")),o&&F.createElement("th",{scope:"col","data-text":!0},r.__("Owner")),F.createElement("th",{scope:"col"},null===i?function({step_seconds:e},t){return e<60?t.__("Now"):t.__("Last %1",(0,Q.Xo)(e))}(e,r):en(e,i)),F.createElement("th",{scope:"col"},r.__("GPU time")),F.createElement("th",{scope:"col"},"copies"===t?r.__("Peak host copy"):r.__("Peak GPU memory")))),F.createElement("tbody",null,n.map((e,t)=>{var n,l;return F.createElement("tr",{key:e.key},F.createElement("td",{title:es(e,r)},F.createElement("span",{className:`aliquot-History-swatch ${s[t]}`}),es(e,r)),o&&F.createElement("td",{"data-text":!0,title:e.owner},e.owner),F.createElement("td",null,(n=e.values[i??e.values.length-1],l=a,null==n?"–":l(n))),F.createElement("td",null,(0,Q.Xo)(e.gpuSeconds)),F.createElement("td",null,(0,Q.z3)(e.peakBytes)))})))}function ea({said:e,title:t}){return 0===e.length?null:F.createElement("p",{className:"aliquot-Item-line aliquot-Facts aliquot-mod-quiet",title:t},e.map((e,t)=>F.createElement(F.Fragment,{key:`${t} ${e}`},t>0&&" ",F.createElement("span",{className:"aliquot-Item-fact"},e))))}function er({history:e,trans:t}){let n=F.useMemo(()=>e.devices.map(e=>{let{utilization_percent:t,used_bytes:n}=e.figures;return{uuid:e.uuid,index:e.index,name:e.name,mean:t.mean,most:t.max,meanPercent:l.meanOver(t.mean,e.known_seconds),peakBytes:l.greatest(n.max)}}),[e]);return F.createElement(F.Fragment,null,F.createElement("h2",null,t.__("Utilization of devices")),0===n.length&&F.createElement("p",{className:"aliquot-History-note"},t.__("No GPU was seen in this time.")),n.map((s,i)=>F.createElement(eo,{key:s.uuid,history:e,line:s,isLast:i===n.length-1,trans:t})))}function eo({history:e,line:t,isLast:n,trans:s}){let[i,a]=F.useState(null),r=F.useMemo(()=>t.mean.map(e=>null!==e),[t]),o=F.useMemo(()=>{let e=e=>e.map(e=>e??0);return[{key:"most",upper:e(t.most),lower:null,className:"aliquot-Area-most"},{key:"mean",upper:e(t.mean),lower:null,className:"aliquot-Area-0"}]},[t]),l=e=>`${Math.round(e)}%`,u=null===i?null:t.mean[i]??null,d=s.__("GPU %1",String(t.index)),c=[...null===t.meanPercent?[]:[s.__("mean %1",l(t.meanPercent))],s.__("peak memory %1",(0,Q.z3)(t.peakBytes)),...null===i?[]:[`${en(e,i)}: ${null===u?"–":l(u)}`]];return F.createElement(F.Fragment,null,F.createElement("div",{className:"aliquot-History-device"},F.createElement("span",{title:`${t.name}
${t.uuid}`},d," \xb7 ",t.name),F.createElement(ea,{said:c})),F.createElement(Y,{areas:o,known:r,most:100,unit:1,format:l,times:n?et(e,r.length):[],label:s.__("Utilization of GPU %1",String(t.index)),describe:n=>{let i=t.mean[n]??null;return`${en(e,n)}: ${null===i?s.__("not known"):l(i)}`},moment:i,onMoment:a,isSmall:!0}))}class el extends j.ReactWidget{constructor(e,t,n){super(),this._model=e,this._trans=t,this._download=n,this._colours=new K(8),this.addClass("aliquot-History")}dispose(){this._model.dispose(),super.dispose()}onAfterShow(e){super.onAfterShow(e),this._model.isWatched=!0}onAfterAttach(e){super.onAfterAttach(e),this._model.isWatched=this.isVisible}onAfterHide(e){super.onAfterHide(e),this._model.isWatched=!1}render(){return F.createElement(j.UseSignal,{signal:this._model.changed,initialArgs:this._model.state},()=>F.createElement(eu,{model:this._model,trans:this._trans,download:this._download,colours:this._colours}))}}function eu({model:e,trans:t,download:n,colours:s}){let[i,a]=F.useState("time"),{history:r}=e.state;return F.createElement(F.Fragment,null,F.createElement(ed,{model:e,trans:t,download:n,figure:i,setFigure:a}),F.createElement(eh,{state:e.state,trans:t}),null===r&&!e.state.problem&&F.createElement("p",{className:"aliquot-History-note"},t.__("Reading …")),r&&F.createElement(ee,{history:r,figure:i,trans:t,colours:s}),r&&F.createElement(er,{history:r,trans:t}))}function ed({model:e,trans:t,download:n,figure:s,setFigure:i}){let[a,r]=F.useState("");return F.createElement("div",{className:"aliquot-History-controls"},F.createElement(ec,{model:e,trans:t}),F.createElement(j.HTMLSelect,{"aria-label":t.__("Values shown of the kernels"),value:s,onChange:e=>i(e.target.value)},F.createElement("option",{value:"time"},t.__("GPU time")),F.createElement("option",{value:"memory"},t.__("GPU memory")),F.createElement("option",{value:"copies"},t.__("Host copies"))),F.createElement("span",{className:"aliquot-History-space"}),F.createElement(j.Button,{className:"jp-mod-styled",onClick:()=>{r(""),n(e.state.range).catch(e=>r(e instanceof Error?e.message:String(e)))},title:t.__("The same figures as a CSV file")},t.__("Download CSV")),a&&F.createElement("p",{className:"aliquot-History-note",role:"alert"},t.__("The CSV could not be read: %1",a)))}function ec({model:e,trans:t}){let n={hour:t.__("Hour"),day:t.__("Day"),week:t.__("Week")};return F.createElement("fieldset",{className:"aliquot-History-ranges","aria-label":t.__("How far back")},Object.keys(n).map(t=>F.createElement("label",{key:t,"data-chosen":e.state.range===t||void 0},F.createElement("input",{type:"radio",name:"aliquot-history-range",checked:e.state.range===t,onChange:()=>{e.range=t}}),n[t])))}function eh({state:e,trans:t}){let{problem:n}=e;if(null===n)return null;let s=n.message||t.__("this server has no Aliquot, or one that keeps no history");return F.createElement("p",{className:"aliquot-History-note",role:"alert"},e.history?t.__("Not up to date: %1",s):t.__("There is no history to show: %1",s))}let em=D((e,{client:t})=>({id:"aliquot-history",command:S.qs.history,title:e.__("GPU History"),show:e.__("Show GPU History"),caption:e.__("Show who used which GPU over the last hour, day or week"),name:e.__("GPU history"),icon:z,content:()=>new el(new L(t),e,e=>(async function(e,t){let n=URL.createObjectURL(new Blob([await e.historyCsv(t)],{type:"text/csv"})),s=document.createElement("a");s.href=n,s.download=`aliquot-${t}.csv`,s.click(),URL.revokeObjectURL(n)})(t,e))}));var ep=n("webpack/sharing/consume/default/@jupyterlab/services");let e_=["read","write","own"];function eg(e){return e.access??"own"}function ef(e,t){return e_.indexOf(eg(e))>=e_.indexOf(t)}function ew(e){return"own"!==eg(e)}function ey(e){return e.kernels.some(t=>t.owner!==e.user.name&&!ew(t))}function eb(e){return[...e].sort((e,t)=>t.kind.localeCompare(e.kind)||e.name.localeCompare(t.name))}function ev(e,t){return/\.ipynb$/i.test(e.label)&&!e.label.startsWith("/")&&e.owner===t.user.name?e.label:null}function ek(e){let t=e.label.trim();return(/\.ipynb$/i.test(t)?t.split("/").pop():t)||e.name||e.id.slice(0,8)}let ex={open:"own",newNotebook:"read",follow:"read",resize:"own",swapOut:"own",restore:"write",postponeCulling:"own",share:"own",restart:"write",shutDown:"own"},eq={ended:"ended"},eE={queued:"queued",starting:"starting",...eq},eS={on_gpu:null,swapped_out:null,restoring:null,checkpointed:null},ej={open:{queued:null,starting:null,...eS,ended:null},newNotebook:{...eE,...eS},follow:{...eE,...eS},resize:{...eE,...eS},swapOut:{...eE,on_gpu:null,swapped_out:"already-swapped-out",restoring:"wanted",checkpointed:"already-swapped-out"},restore:{...eE,on_gpu:"already-on-gpu",swapped_out:null,restoring:"already-restoring",checkpointed:null},postponeCulling:{...eE,...eS},share:{queued:null,starting:null,...eS,...eq},restart:{...eE,...eS},shutDown:{queued:null,starting:null,...eS,...eq}},eN=["resize","swapOut","restore"],eC=["restart","shutDown"],eA=["share","newNotebook","follow"];function ez(e,t,n){var s,i,a,r,o,l;let u=(s=e,!ew(i=t)||ef(i,ex[s])?null:"write"===ex[s]?"read-only":"owners-alone");if(null!==u)return u;let d=ej[e][t.state];return null!==d?d:eN.includes(e)?(a=e,r=t,o=n,0===r.gpus?"no-gpu":"unavailable"===o.node.agent?"agent-away":"swapOut"!==a?null:r.residency?.mode==="off"?"never-swapped":null===r.idle_since||"busy"===r.execution_state?"busy":null):eC.includes(e)?""===t.name?"of-another-program":null:eA.includes(e)?""===t.name?"not-shareable":null:t.owner!==n.user.name?"not-mine":"postponeCulling"===e?(l=t).scheduled_termination?l.scheduled_termination.can_postpone?null:"of-age":"not-announced":null===ev(t,n)?"no-notebook":null}function eM(e){return["swapped_out","restoring","checkpointed"].includes(e.state)?"restore":"swapOut"}function eP(e,t){switch(e){case"open":return t.__("Open Notebook");case"newNotebook":return t.__("New Notebook on This Kernel");case"follow":return t.__("Watch in Console");case"resize":return t.__("Resize");case"swapOut":return t.__("Swap Out Now");case"restore":return t.__("Restore");case"postponeCulling":return t.__("Keep Running");case"share":return t.__("Share…");case"restart":return t.__("Restart…");case"shutDown":return t.__("Shut Down…")}}function eI(e,t){switch(e){case"open":return t.__("Open the notebook of this kernel");case"newNotebook":return t.__("Open a new notebook that is attached to this kernel");case"follow":return t.__("Open a console that shows the cells that all users run in this kernel, with their output");case"resize":return t.__("Change share, memory limit or priority without a restart");case"swapOut":return t.__("Move its memory to the host to free the GPU; the next use restores it");case"restore":return t.__("Restore its memory as soon as the GPU has free memory");case"postponeCulling":return t.__("Do not end this kernel for now");case"share":return t.__("Let another user or a team see this kernel, or use it");case"restart":return t.__("Restart the kernel at its size; all variables are lost");case"shutDown":return t.__("Shut down the kernel and free its GPU share")}}function eU(e,t,n){switch(e){case"agent-away":return n.__("The node agent does not answer.");case"already-on-gpu":return n.__("Its memory is on the GPU already.");case"already-swapped-out":return n.__("Its memory is in the host already.");case"already-restoring":return n.__("Its memory is being restored already.");case"busy":return n.__("It is busy: it can be swapped out when nothing runs in it.");case"ended":return n.__("It has ended.");case"never-swapped":return t.residency?.refusal?n.__("It is never swapped: %1",t.residency.refusal):n.__("It is never swapped.");case"no-gpu":return n.__("It has no GPU.");case"no-notebook":return n.__("It belongs to no notebook.");case"not-announced":return n.__("No termination is scheduled.");case"not-mine":return n.__("It is a kernel of %1.",t.owner);case"not-shareable":return n.__("Another program started it: no notebook can be attached to it.");case"of-age":return n.__("It ends because of its age, which cannot be changed.");case"of-another-program":return n.__("Another program started it: end it there.");case"owners-alone":return n.__("It is a kernel of %1, who alone can do this.",t.owner);case"queued":return n.__("It is queued and has not started.");case"read-only":return n.__("%1 shares it with you read-only.",t.owner);case"starting":return n.__("It is starting.");case"wanted":return n.__("It is about to be used: its memory is being restored.")}}function eG(e,t){return e instanceof S.Xs&&!e.message?"not-installed"===e.kind?t.__("The server does not know this kernel any more."):t.__("The server refused and gave no reason."):e instanceof Error?e.message:String(e)}function eD(e,t){return eT(e,e=>e.path===t)}function eT(e,t){for(let n of e$(e))if(t(n))return n;return null}function*e$(e){for(let[,t]of eB(e))yield t}function*eB(e){for(let t of e){let e=t.sessionContext??t.context?.sessionContext;e&&(yield[t,e])}}function eO({kind:e,name:t},n){return"team"===e?n.__("team %1",t):t}function eR(e,t){return"read"===e?t.__("read"):t.__("write")}function eH(e,t){switch(eg(e)){case"read":return t.__("%1 shares it with you read-only: you see its figures and what its cells show. No cell can be run in it.",e.owner);case"write":return t.__("%1 shares it with you: you can run cells, interrupt and restart it. Its size, and its end, are up to %1.",e.owner);case"own":return null}}class eL extends G.Dialog{handleEvent(e){let t=e instanceof KeyboardEvent&&"keydown"===e.type&&"Enter"===e.key,{target:n}=e;t&&n instanceof Element&&n.closest("form")||super.handleEvent(e)}}let eF={kind:"user",name:"",access:"read"};function eW(e){let{kernel:t,client:n,model:s,trans:i}=e,[a,r]=F.useState(null),[o,l]=F.useState(""),[u,d]=F.useState(""),[c,h]=F.useState(!1),m=t.owner===s.state.status?.user.name,p=F.useRef(null),_=async(e,a)=>{h(!0),d(""),l("");try{return await e(),r(await n.shares(t.id)),l(a),!0}catch(e){return d(eG(e,i)),!1}finally{h(!1),s.refresh()}};return F.useEffect(()=>void _(()=>Promise.resolve(),""),[t.id]),F.createElement("div",{className:"aliquot-Share"},F.createElement(eK,{trans:i,isUnderWay:c,add:e=>_(()=>n.share(t.id,e),i.__("Shared with %1: %2.",eO(e,i),eR(e.access,i)))}),u&&F.createElement("p",{className:"aliquot-Actions-failure",role:"alert"},u),F.createElement("p",{className:"aliquot-Share-said",role:"status"},o),F.createElement("h3",{ref:p,tabIndex:-1,className:"aliquot-Share-heading"},i.__("Users and teams with access")),a&&F.createElement(eX,{shares:a,trans:i,isUnderWay:c,isMine:m,takeBack:e=>void(async e=>{await _(()=>n.unshare(t.id,e),i.__("No longer shared with %1.",eO(e,i)))&&p.current?.focus()})(e)}))}function eK({trans:e,isUnderWay:t,add:n}){let s,[i,a]=F.useState(eF),r=F.useRef(null),o=F.useId(),l=""===(s=i.name.trim())?null:{...i,name:s};return F.createElement("form",{className:"aliquot-Share-form","aria-label":e.__("Share with"),onSubmit:e=>void(async e=>{e.preventDefault(),null!==l&&!t&&await n(l)&&(r.current?.focus(),a({...i,name:""}))})(e)},F.createElement(eV,{legend:e.__("Share with"),options:[{value:"user",text:e.__("a user")},{value:"team",text:e.__("a team")}],chosen:i.kind,choose:e=>a({...i,kind:e})}),F.createElement("label",{htmlFor:o,className:"jp-sr-only"},"user"===i.kind?e.__("Name of the user"):e.__("Name of the team")),F.createElement("input",{ref:r,id:o,type:"text",className:"jp-mod-styled aliquot-Share-name",autoComplete:"off",spellCheck:!1,value:i.name,onChange:e=>a({...i,name:e.target.value})}),F.createElement(eV,{legend:e.__("Access"),options:[{value:"read",text:e.__("read: see its status and the outputs of its cells")},{value:"write",text:e.__("write: also run cells, interrupt and restart")}],chosen:i.access,choose:e=>a({...i,access:e})}),F.createElement(j.Button,{type:"submit",small:!0,className:"aliquot-Action aliquot-mod-main aliquot-Share-send",disabled:null===l,"aria-disabled":null===l||t},e.__("Share")))}function eV({legend:e,options:t,chosen:n,choose:s}){let i=F.useId();return F.createElement("fieldset",{className:"aliquot-Resize-class aliquot-Share-choice"},F.createElement("legend",null,e),t.map(({value:e,text:t})=>F.createElement("label",{key:e,className:"aliquot-Resize-choice"},F.createElement("input",{type:"radio",name:i,checked:n===e,onChange:()=>s(e)}),t)))}function eX({shares:e,trans:t,isUnderWay:n,isMine:s,takeBack:i}){if(0===e.length){let e=s?t.__("Only you and administrators."):t.__("Only its owner and administrators.");return F.createElement("p",{className:"aliquot-Share-unshared"},e)}return F.createElement("ul",{className:"aliquot-Share-list","aria-label":t.__("Users and teams with access")},eb(e).map(e=>F.createElement("li",{key:`${e.kind} ${e.name}`},F.createElement("span",{className:"aliquot-Share-who"},eO(e,t)),F.createElement("span",{className:"aliquot-Share-may"},eR(e.access,t)),F.createElement(j.Button,{type:"button",small:!0,className:"aliquot-Action","aria-label":t.__("Stop sharing with %1",eO(e,t)),"aria-disabled":n,onClick:()=>n||i(e)},t.__("Stop Sharing")))))}let eJ=(e,{model:t,client:n},s,i)=>{let a=(i??E.nullTranslator).load(S.$N),r=s??new G.SessionContextDialogs({translator:i??E.nullTranslator}),o={open:t=>e.commands.execute("docmanager:open",{path:t.label}),newNotebook:t=>e.commands.execute("notebook:create-new",{kernelId:t.id}),follow:t=>(async function({commands:e},t){let n={id:t.id,name:t.name};await e.execute("console:create",{kernelPreference:n,name:ek(t),activate:!0}),e.hasCommand(eQ)&&!e.isToggled(eQ)&&await e.execute(eQ)})(e,t),swapOut:e=>n.swapOut(e.id),restore:e=>n.restore(e.id),postponeCulling:e=>n.postponeCulling(e.id),share:e=>(async function(e){let{kernel:t,trans:n}=e,s=new eL({title:n.__("Share %1",ek(t)),body:F.createElement(eW,{...e}),buttons:[G.Dialog.okButton({label:n.__("Close")})],focusNodeSelector:'.aliquot-Share input[type="text"]'});s.addClass("aliquot-ShareDialog"),await s.launch()})({kernel:e,client:n,model:t,trans:a}),restart:t=>(async function(e,t,n,s){var i,a;let r=(i=e.shell.widgets("main"),a=n.id,eT(i,e=>e.session?.kernel?.id===a));if(r)return void await t.restart(r);let o=s.__("Do you want to restart the kernel of %1? All variables will be lost.",ek(n));await eZ(s.__("Restart Kernel?"),o,s.__("Restart"))&&await ep.KernelAPI.restartKernel(n.id,e.serviceManager.serverSettings)})(e,r,t,a),shutDown:t=>(async function(e,t,n){let s=ek(t),i="queued"===t.state?n.__("%1 is queued for a GPU and has not started. It loses its place in the queue.",s):n.__("Do you want to shut down the kernel of %1? All variables will be lost.",s);if(!await eZ(n.__("Shut Down Kernel?"),i,n.__("Shut Down")))return;let{sessions:a,kernels:r}=e.serviceManager;await a.refreshRunning();let o=Array.from(a.running()).find(e=>e.kernel?.id===t.id);await (o?a.shutdown(o.id):r.shutdown(t.id))})(e,t,a)},l=e=>t.state.status?.kernels.find(t=>t.id===e.kernelId),u=(e,n)=>{let s=t.state.status,i=n&&s?ez(e,n,s):null;return n&&i?eU(i,n,a):null};for(let n of Object.keys(o))e.commands.addCommand(S.Aq[n],{label:eP(n,a),caption:e=>u(n,l(e))??eI(n,a),describedBy:{args:eY},isEnabled:e=>{let t=l(e);return void 0!==t&&null===u(n,t)},execute:async e=>{let s=l(e);if(!s)throw Error(a.__("There is no kernel %1 any more.",String(e.kernelId)));await o[n](s),await t.refresh()}})},eQ="console:toggle-show-all-kernel-activity",eY={type:"object",properties:{kernelId:{type:"string",description:"The id of the kernel."}},required:["kernelId"]};async function eZ(e,t,n){let s=[G.Dialog.cancelButton(),G.Dialog.warnButton({label:n})];return(await (0,G.showDialog)({title:e,body:t,buttons:s})).button.accept}var e0=n("./labextension/lib/client/client.js"),e1=n("webpack/sharing/consume/default/@lumino/disposable"),e2=n("./labextension/lib/base/clock.js");class e4{constructor(){this._last=null}read(e){let t=new Map(e.kernels.filter(e3).map(e=>[e.id,e])),n=new Set(e.kernels.map(e=>e.id)),s=[];for(let e of t.values()){let t=this._last?.get(e.id),n=null!==this._last&&(void 0===t||eg(t)!==eg(e));s.push({news:{kind:"shared",key:`shared ${e.id} ${eg(e)}`,kernel:e},isAgain:n})}for(let e of this._last?.values()??[])n.has(e.id)||s.push({news:{kind:"unshared",key:`unshared ${e.id}`,kernel:e},isAgain:!0});return this._last=t,s}}function e3(e){return ew(e)&&"ended"!==e.state}class e6{constructor(e){this._memory=e;let t=u.parse(e.get());this._texts=new Set(t??[]),this.isNew=null===t}has(e){return this._texts.has(e)}add(e){let t=e.filter(e=>!this._texts.has(e));if(t.length>0||null===this._memory.get()){let e=u.parse(this._memory.get())??[];this._texts=new Set([...new Set([...e,...this._texts,...t])].slice(-500)),this._memory.set(JSON.stringify([...this._texts]))}}}class e8{constructor(e){this._shares=new e4,this._limits=new Map,this._waiting=new Map,this._queued=new Map,this._used=new Map,this._told=new e6(e),this._isFirst=this._told.isNew}read(e,t){let n=[...e5(e),...this._served(e,t.getTime()),...this._resized(e)],s=e=>this._isFirst&&("ended"===e.kind||"restarted"===e.kind)||this._isShrunk(e),i=n.filter(e=>!this._told.has(e.key)&&!s(e)),a=this._shares.read(e).filter(({news:e,isAgain:t})=>t||!this._told.has(e.key)),r=[...n,...a.map(({news:e})=>e)];return this._told.add(r.map(e=>e.key)),this._isFirst=!1,this._limits=new Map(e9(e).map(e=>[e7(e),e.memory_limit_bytes])),[...i,...a.map(({news:e})=>e)]}standing(e){let t=new Set,n=new Map;for(let s of e5(e)){if("short"!==s.kind){t.add(s.key);continue}let e=Math.max(this._used.get(s.key)??0,s.kernel.used_bytes);n.set(s.key,e),(s.kernel.used_bytes>e/2||0===e)&&t.add(s.key)}return this._used=n,t}_isShrunk(e){return"short"===e.kind&&e.kernel.memory_limit_bytes<(this._limits.get(e7(e.kernel))??0)}_resized(e){let t=[],n=new Map;for(let a of e9(e)){var s,i;let e=this._queued.get(a.id);a.resize?n.set(a.id,a.resize):void 0!==e&&"ended"!==a.state&&(s=a,i=e,s.requested_memory_bytes===i.requested_memory_bytes&&s.gpus===i.gpus&&s.priority===i.priority)&&t.push({kind:"resized",key:`resized ${a.id} ${e.since}`,kernel:a})}return this._queued=n,t}_served(e,t){let n=[],s=new Map;for(let a of e9(e)){var i;let e=this._waiting.get(a.id);if("queued"===(i=a).state||"restoring"===i.state&&(i.residency?.queued??null)!==null){let n=(a.residency?.queued?.seconds??0)*1e3;s.set(a.id,Math.min(e??t,t-n))}else void 0!==e&&t-e>3e4&&"ended"!==a.state&&n.push({kind:"served",key:`served ${a.id} ${e}`,kernel:a})}return this._waiting=s,n}}function e5(e){let t=[];for(let n of e9(e)){let{termination:s,last_crash:i,scheduled_termination:a,owner_message:r}=n;s&&s.by!==e.user.name&&("stopped"!==s.code||"admin"!==e.user.role)&&t.push({kind:"ended",key:`ended ${n.id} ${s.at}`,kernel:n,termination:s}),i&&t.push({kind:"restarted",key:`restarted ${n.id} ${i.at}`,kernel:n,termination:i}),a&&t.push({kind:"soon",key:`soon ${n.id} ${a.at}`,kernel:n,soon:a}),r&&t.push({kind:"message",key:`message ${n.id} ${r.at}`,kernel:n,message:r});let o=n.required_bytes??0;if(o>n.memory_limit_bytes&&n.memory_limit_bytes>0&&"ended"!==n.state){let e=`short ${n.id} ${n.memory_limit_bytes} ${n.last_failed_allocation_at??""}`;t.push({kind:"short",key:e,kernel:n,needed:o})}}return t}function e7(e){return`${e.id} ${e.last_failed_allocation_at??""}`}function e9(e){return e.kernels.filter(t=>t.owner===e.user.name)}(u||(u={})).parse=function(e){try{let t=JSON.parse(e??"null");return Array.isArray(t)?t.filter(e=>"string"==typeof e):null}catch{return null}};class te{constructor(e=e2.w){this._clock=e,this.hid=new H.Signal(this),this.cameBack=new H.Signal(this),this._turn=()=>{document.hidden?(this._hidAt=this._clock.now(),this.hid.emit()):this.cameBack.emit(this._clock.now()-this._hidAt>12e4?"awake":"shown")},this._return=()=>this.cameBack.emit("online"),this._hidAt=0,this._timer=null,this._isDisposed=!1,document.addEventListener("visibilitychange",this._turn),window.addEventListener("online",this._return),this._lookAgain()}get isHidden(){return document.hidden}get isDisposed(){return this._isDisposed}dispose(){this._isDisposed=!0,this._timer?.dispose(),document.removeEventListener("visibilitychange",this._turn),window.removeEventListener("online",this._return),H.Signal.clearData(this)}_lookAgain(){let e=this._clock.now();this._timer=this._clock.after(5e3,()=>{!document.hidden&&this._clock.now()-e>2e4&&this.cameBack.emit("awake"),this._lookAgain()})}}class tt{constructor(){this.isHidden=!1,this.hid=new H.Signal(this),this.cameBack=new H.Signal(this)}}function tn(e,t,n){let s=e.kernels.map(e=>e.id===t.kernel_id?function(e,t,n){var s,i,a,r,o;let l,{reason:u,gpus:d,memory_limit_bytes:c,used_bytes:h,over_limit_bytes:m}=t,p=t.resize?.state==="granted"?t.resize:null;return{...e,state:t.state,reason:"paused"===t.kind||"evicted"===t.kind?e.reason:u,..."queued"===t.state?null:ti,...{gpus:d,memory_limit_bytes:c,used_bytes:h,over_limit_bytes:m},requested_memory_bytes:p?p.requested_memory_bytes:e.requested_memory_bytes,priority:p?ta(p.priority,e):e.priority,residency:(s=e.residency,i=t,s&&{...s,swapped_bytes:i.swapped_bytes,queued:i.queued}),resize:(a=e,r=t,o=n,null===(l=r.resize)||"queued"!==l.state?null:{...l,state:"queued",priority:ta(l.priority,a),reason:l.reason??"",position:l.position??1,queue_length:Math.max(a.resize?.queue_length??1,l.position??1),wait_reason:a.resize?.wait_reason??ts,expected_start:a.resize?.expected_start??null,since:a.resize?.since??o.toISOString()})}}(e,t,n):e);return{...e,kernels:s}}let ts={code:"not_planned",requested:{gpus:0,memory_bytes:null},free:{gpus:null,memory_bytes:null,device:null},host_memory:null},ti={queue_position:null,queue_length:null,wait_reason:null,expected_start:null,predicted_start:null};function ta(e,t){return"normal"===e||"low"===e?e:t.priority}function tr(e,t){var n,s;let i,a;return Object.is(e,t)?t:Array.isArray(e)&&Array.isArray(t)?(n=e,s=t,i=new Map(n.map(e=>[tl(e),e])),(a=s.map((e,t)=>{let s=tl(e);return tr(null===s?n[t]:i.get(s),e)})).length===n.length&&a.every((e,t)=>e===n[t])?n:a):to(e)&&to(t)?function(e,t){let n=Object.keys(t),s={};for(let i of n)s[i]=tr(e[i],t[i]);return n.length===Object.keys(e).length&&n.every(t=>{var n,i,a;return n=e,i=t,a=s[t],Object.prototype.hasOwnProperty.call(n,i)&&n[i]===a})?e:s}(e,t):t}function to(e){return"object"==typeof e&&null!==e&&!Array.isArray(e)}function tl(e){return to(e)?e.id??e.uuid??null:null}function tu(e){return"object"==typeof e&&null!==e&&!Array.isArray(e)}function td(e){return Array.isArray(e)&&e.every(tu)}let tc={figures:0,news:15,live:60};class th{constructor(e){this._options=e,this._intervalSeconds=2,this._pace="figures",this._isHopeless=!1,this._began=0,this._underWay=null,this._isOld=!1,this._soon=null,this._poll=new R.Poll({auto:!1,factory:()=>this._ask(),frequency:this._frequency(),name:"@jupyter-aliquot/labextension:status",standby:()=>!e.isNeeded()})}get isDisposed(){return this._poll.isDisposed}set intervalSeconds(e){this._intervalSeconds=e,this._poll.frequency=this._frequency()}set pace(e){this._pace=e,this._poll.frequency=this._frequency()}set isHopeless(e){this._isHopeless=e,this._poll.frequency=this._frequency()}async refresh(){null===this._underWay?await this._poll.schedule({interval:R.Poll.IMMEDIATE,phase:"refreshed"}):this._isOld=!0}refreshSoon(){let{clock:e}=this._options,t=Math.max(100,this._began+1e3-e.now());this._soon??(this._soon=e.after(t,()=>{this._soon=null,this.refresh()}))}async askAnew(){await this._underWay?.catch(()=>void 0),await this._ask().catch(()=>void 0)}dispose(){this._soon?.dispose(),this._poll.stop(),this._poll.dispose()}_ask(){return this._underWay??(this._underWay=this._askUntilNew().finally(()=>{this._underWay=null})),this._underWay}async _askUntilNew(){let{ask:e,clock:t,isNeeded:n}=this._options;do this._isOld=!1,this._began=t.now(),this._poll.frequency=this._frequency(),await e().catch(e=>{if(!this._isOld)throw e});while(this._isOld&&n())}_frequency(){let e=1+.1*(2*this._options.clock.chance()-1),t=Math.round(1e3*Math.max(this._intervalSeconds,tc[this._pace])*e);return{interval:t,backoff:!0,max:Math.max(this._isHopeless&&"figures"!==this._pace?3e5:15e3,t)}}}let tm={__:e=>e},tp={get:()=>null,set:()=>void 0};class t_{constructor(e){this._changed=new H.Signal(this),this._kernelChanged=new H.Signal(this),this._happened=new H.Signal(this),this._liveChanged=new H.Signal(this),this._here={watchers:0,waiters:0},this._state={status:null,problem:null},this._text="",this._heardMeanwhile=[],this._hiding=null,this._isAway=!1,this._isDisposed=!1,this._source=e.source,this._stream=e.stream??null,this._page=e.page??new tt,this._clock=e.clock??e2.w,this._trans=e.trans??tm,this._dismissed=new e6(e.dismissed??tp),this._poll=new th({ask:()=>this._ask(),isNeeded:()=>this._isNeeded&&!this._page.isHidden,clock:this._clock}),this._poll.intervalSeconds=e.intervalSeconds??t_.DEFAULT_INTERVAL_SECONDS,this._stream?.received.connect((e,t)=>this._hear(t)),this._stream?.liveChanged.connect((e,t)=>this._turn(t)),this._page.hid.connect(()=>this._hide()),this._page.cameBack.connect((e,t)=>this._comeBack(t))}get state(){return this._state}get changed(){return this._changed}get kernelChanged(){return this._kernelChanged}get happened(){return this._happened}get liveChanged(){return this._liveChanged}get isLive(){return this._stream?.isLive??!1}get isDisposed(){return this._isDisposed}kernel(e){return this._state.status?.kernels.find(t=>t.id===e)??null}set intervalSeconds(e){this._poll.intervalSeconds=e}watch(){return this._join("watchers")}waitForNews(){return this._join("waiters")}isDismissed(e){return null!==e.termination&&this._dismissed.has(d.endKey(e))}dismiss(e){this._dismissed.add([d.endKey(e)]),this._changed.emit(this._state)}async postponeCulling(e){await this._source.postponeCulling(e),await this.refresh()}async refresh(){await this._poll.refresh()}async readAnew(){await this._poll.askAnew()}dispose(){this._isDisposed||(this._isDisposed=!0,this._poll.dispose(),this._hiding?.dispose(),this._stream?.close(),H.Signal.clearData(this))}get _isNeeded(){return this._here.watchers+this._here.waiters>0}_join(e){return this._here[e]+=1,this._arrange(),this.refresh(),new e1.DisposableDelegate(()=>{this._here[e]-=1,this._arrange()})}_arrange(){this._isDisposed||(this._poll.pace=this._here.watchers>0||!this._isNeeded?"figures":this.isLive?"live":"news",this._poll.isHopeless=this._state.problem?.kind==="not-installed",this._isNeeded&&null!==this._state.status&&!this._isAway?this._stream?.open(()=>this._poll.askAnew()):this._stream?.close())}async _ask(){this._heardMeanwhile=[];try{let e=await this._source.fetchText();this._take(e)}catch(n){let e=n instanceof S.Xs?n:new S.Xs("server",String(n)),t="not-installed"===e.kind?null:this._state.status;throw this._replace({status:t,problem:e}),e}}_take(e){let{status:t}=this._state;if(null===t||e!==this._text){let n=this._heardMeanwhile,s=n.reduce((e,t)=>tn(e,t,this._now),function(e,t){let n=function(e){try{return JSON.parse(e)}catch{return}}(e);if(!(tu(n)&&tu(n.user)&&tu(n.node)&&tu(n.queue)&&td(n.devices)&&td(n.kernels)&&n.kernels.every(e=>td(e.devices))))throw new S.Xs("server",t.__("The answer of /aliquot/api/v1/status has an unknown form: the server and this extension differ in version."));return n}(e,this._trans));this._text=n.length>0?"":e,this._replace({status:tr(t,s),problem:null})}else null!==this._state.problem&&this._replace({status:t,problem:null})}_hear(e){let{status:t,problem:n}=this._state;null===t||this._isDisposed||(this._heardMeanwhile.push(e),this._text="",this._replace({status:tr(t,tn(t,e,this._now)),problem:n}),this._happened.emit(e),"queued"!==e.kind&&this._poll.refreshSoon())}_turn(e){this._arrange(),e&&this._poll.refreshSoon(),this._liveChanged.emit(e)}_hide(){this._hiding?.dispose(),this._hiding=this._clock.after(1e3*t_.AWAY_SECONDS,()=>{this._isAway=!0,this._arrange()})}_comeBack(e){this._hiding?.dispose(),"shown"!==e&&this._stream?.reconnect(),this._isAway=!1,this._arrange(),this.refresh()}get _now(){return new Date(this._clock.now())}_replace(e){let t=this._state;this._isDisposed||d.isSame(e,t)||(this._state=e,(null===e.status!=(null===t.status)||e.problem!==t.problem)&&this._arrange(),this._changed.emit(e),d.changes(t.status,e.status).forEach(e=>this._kernelChanged.emit(e)))}}function tg(e){return{get:()=>{try{return window.localStorage.getItem(e)}catch{return null}},set:t=>{try{window.localStorage.setItem(e,t)}catch(e){console.warn("aliquot: the browser keeps nothing, so that things may be told twice.",e)}}}}(i=t_||(t_={})).DEFAULT_INTERVAL_SECONDS=2,i.AWAY_SECONDS=60,(a=d||(d={})).endKey=function(e){return`${e.id} ${e.termination?.at??""}`},a.isSame=function(e,t){return e.status===t.status&&e.problem?.kind===t.problem?.kind&&e.problem?.message===t.problem?.message},a.changes=function(e,t){let n=new Map((e?.kernels??[]).map(e=>[e.id,e])),s=[];for(let e of t?.kernels??[])n.get(e.id)!==e&&s.push({id:e.id,kernel:e}),n.delete(e.id);return s.concat([...n.keys()].map(e=>({id:e,kernel:null})))};var tf=n("webpack/sharing/consume/default/@jupyterlab/coreutils");class tw{constructor(e,t=e2.w){this._settings=e,this._clock=t,this._received=new H.Signal(this),this._liveChanged=new H.Signal(this),this._catchUp=null,this._socket=null,this._timer=null,this._failures=0,this._isLive=!1}get isLive(){return this._isLive}get liveChanged(){return this._liveChanged}get received(){return this._received}open(e){null===this._catchUp&&(this._catchUp=e,this._connect())}close(){this._catchUp=null,this._failures=0,this._drop()}reconnect(){null!==this._catchUp&&(this._failures=0,this._drop(),this._connect())}_connect(){let e,t=this._clock.now();try{e=new this._settings.WebSocket(this._url())}catch(e){console.warn("aliquot: the stream of events cannot be opened.",e),this._wait();return}this._socket=e,this._timer=this._clock.after(15e3,()=>this._lost(e,t,0)),e.onopen=()=>{this._timer?.dispose(),this._setLive(!0)},e.onmessage=e=>this._read(e.data),e.onclose=n=>this._lost(e,t,n.code)}_url(){let{wsUrl:e,token:t,appendToken:n}=this._settings,s=tf.URLExt.join(e,"aliquot","api","v1","events");return n&&""!==t?`${s}?token=${encodeURIComponent(t)}`:s}_read(e){try{var t;let n=JSON.parse(String(e));t=n,"object"==typeof t&&null!==t&&"kernel_id"in t&&"state"in t&&"kind"in t&&this._received.emit(n)}catch(e){console.warn("aliquot: an event could not be read.",e)}}_lost(e,t,n){if(e!==this._socket)return;let s=this._isLive&&this._clock.now()-t>=1e4;if(this._failures=s?0:this._failures,this._drop(),1013!==n)return void this._wait();let i=this._catchUp;i?.().finally(()=>{i===this._catchUp&&null===this._socket&&null===this._timer&&this._wait()})}_wait(){let e=Math.min(1e3*2**this._failures,12e4);this._failures+=1,this._timer=this._clock.after(e*(.5+this._clock.chance()/2),()=>this._connect())}_drop(){this._timer?.dispose(),this._timer=null;let e=this._socket;this._socket=null,null!==e&&(e.onopen=e.onmessage=e.onclose=null,e.close()),this._setLive(!1)}_setLive(e){e!==this._isLive&&(this._isLive=e,this._liveChanged.emit(e))}}let ty=(e,t)=>{let n=(t??E.nullTranslator).load(S.$N),{serverSettings:s}=e.serviceManager,i=new e0.H(s,n),a=tg(`${S.s_}:dismissed:${s.baseUrl}`),r=new tw(s),o=new t_({source:i,stream:r,page:new te,dismissed:a,trans:n});return{client:i,model:o}};var tb=n("webpack/sharing/consume/default/@jupyterlab/cells"),tv=n("webpack/sharing/consume/default/@jupyterlab/notebook");function tk(e){let t=e.session?.kernel;return e.isTerminating?"none":e.isRestarting?"coming":t?"connected"===t.connectionStatus&&"starting"!==t.status&&"starting"===e.kernelDisplayStatus?"coming":"here":["initializing","starting"].includes(e.kernelDisplayStatus)?"coming":"none"}let tx=(e,t,n)=>new tq(t?.model??null,(n??E.nullTranslator).load(S.$N));class tq{constructor(e,t){this._kernels=e,this._trans=t,this._dropped=0}async runCell(e){let{cell:t,sessionContext:n}=e,{model:s}=t;if(n&&(0,tb.isCodeCellModel)(s)&&s.sharedModel.getSource().trim()){if("coming"===tk(n)){if(s.executionState="running",!await new Promise(e=>{let t=[n.kernelChanged,n.sessionChanged,n.statusChanged],s=s=>{t.forEach(e=>e.disconnect(a)),n.disposed.disconnect(i),e(s)},i=()=>s(!1),a=()=>{let e=tk(n);"coming"!==e&&s("here"===e)};t.forEach(e=>e.connect(a)),n.disposed.connect(i),a()}))return this._drop(s),!1;if(t.isDisposed)return!1}let e=this._refusal(n.session?.kernel?.id);if(null!==e)return s.clearExecution(),s.outputs.add({output_type:"error",ename:"",evalue:e,traceback:[e]}),!1}return(0,tv.runCell)(e)}_refusal(e){let t=void 0===e?null:this._kernels?.kernel(e)??null;return null===t||ef(t,"write")?null:eH(t,this._trans)}_drop(e){e.isDisposed||(e.executionState="idle",this._dropped+=1),1===this._dropped&&setTimeout(()=>this._tell(),0)}_tell(){let e=this._dropped;this._dropped=0,G.Notification.warning(this._trans._n("A cell was not run: its notebook has got no kernel. Pick one, then run the cell again.","%1 cells were not run: their notebook has got no kernel. Pick one, then run them again.",e),{autoClose:!1})}}class tE{constructor(e,t){this._model=e,this.session=t,this._changed=new H.Signal(this),this._id=null,this._isTold=!1,this._isAsked=!1,this._kernel=null,this._attachment="unknown",this._isDisposed=!1,e.changed.connect(this._look,this),t.kernelChanged.connect(this._onKernelChanged,this),t.disposed.connect(this.dispose,this),this._onKernelChanged()}get kernel(){return this._kernel}get attachment(){return this._attachment}get user(){return this._model.state.status?.user.name??""}get changed(){return this._changed}get isDisposed(){return this._isDisposed}dispose(){this._isDisposed||(this._isDisposed=!0,H.Signal.clearData(this))}_onKernelChanged(){let e=this.session.session?.kernel?.id??null;null!==e&&e!==this._id&&(this._id=e,this._isTold=this._isAsked=!1,this._model.readAnew().then(()=>{this._isAsked=this._isAsked||this._id===e,this._look()})),this._look()}_look(){if(this._isDisposed)return;let{status:e,problem:t}=this._model.state;this._isAsked&&null===t&&(this._isTold=!0);let n=null===this._id?null:this._model.kernel(this._id),s=null!==n&&n.gpus>0,i=!!this.session.session?.kernel,a=s?"ours":t?.kind==="not-installed"?"elsewhere":null!==e&&i&&(this._isTold||null!==n)?"none":"unknown";this._replace(a,s?n:null)}_replace(e,t){(e!==this._attachment||t!==this._kernel)&&(this._attachment=e,this._kernel=t,this._changed.emit())}}function tS(e,t){var n,s,i,a;if(null===e||0===e.gpus)return null;if(e.interrupted_at&&(["restoring","swapped_out","checkpointed"].includes(e.state)||tz(e)))return{kind:"stopping",text:t.__("is stopping"),why:null,ahead:null,progress:null};switch(e.state){case"queued":let r;return n=e,s=t,{kind:"queue",text:tC((r=null===n.queue_position?null:n.queue_position-1)?s._n("waits for a GPU: %1 kernel ahead","waits for a GPU: %1 kernels ahead",r):0===r?s.__("waits for a GPU: next in the queue"):s.__("waits for a GPU"),n,s),why:n.reason,ahead:r,progress:null};case"restoring":return function(e,t){let n=e.residency?.moving;if(n&&n.total_bytes>0){let e=Math.min(n.done_bytes,n.total_bytes);return{kind:"copy",text:t.__("waits while its GPU memory is restored: %1 of %2",...(0,Q.l1)(e,n.total_bytes)),why:null,ahead:null,progress:{done:e,total:n.total_bytes}}}let{queued:s,state:i}=e.residency??{};return s&&"swapping_in"!==i?tA(s,t):{kind:"copy",text:tM(t.__("waits while its GPU memory is restored"),s?.expected_seconds??null,t),why:null,ahead:null,progress:null}}(e,t);case"swapped_out":case"checkpointed":return e.residency?.queued?tA(e.residency.queued,t):(i=e,{kind:"asleep",text:tM((a=t).__("GPU memory is swapped out; it is restored when the cell uses the GPU"),i.residency?.restore_seconds??null,a),why:null,ahead:null,progress:null});case"on_gpu":return tz(e)?tA(e.residency.queued,t):null;default:return null}}let tj=/^\[Aliquot: .*waiting for GPU memory.*\]$/;class tN{constructor(e){this._trans=e,this._told=null,this._since=null}next(e,t){if(null===e)return this._over();this._since??(this._since=t);let n=this._told,s=null===n||n.ahead!==e.ahead||n.kind!==e.kind,i=null===n?t-this._since>=tN.QUIET_MS:t-n.at>=tN.BETWEEN_MS;return s&&i&&"asleep"!==e.kind?(this._told={ahead:e.ahead,kind:e.kind,at:t},this._trans.__("The cell %1",e.text)):null}_over(){let e=null!==this._told;return this._told=null,this._since=null,e?this._trans.__("The cell goes on"):null}}function tC(e,t,n){let s=null===t.expected_start?"":(0,Q.fU)(t.expected_start,new Date);if(s)return n.__("%1; expected to start at %2",e,s);let i=t.predicted_start;return i?n.__("%1; probably starts in %2",e,(0,Q.uT)(i.earliest,i.latest,new Date)):e}function tA(e,t){let{ahead:n,expected_seconds:s}=e;return{kind:"memory",text:tM(n>0?t._n("waits for GPU memory: %1 kernel ahead","waits for GPU memory: %1 kernels ahead",n):t.__("waits for GPU memory"),s,t),why:e.reason||null,ahead:n,progress:null}}function tz(e){return"on_gpu"===e.state&&!!e.residency?.queued}function tM(e,t,n){return null===t?e:n.__("%1, about %2",e,tP(t))}function tP(e){return e<60?`${Math.max(1,Math.ceil(e))} s`:(0,Q.Xo)(e)}(r=tN||(tN={})).QUIET_MS=1e3,r.BETWEEN_MS=1e4;var tI=n("webpack/sharing/consume/default/@lumino/widgets");let tU="aliquot-mod-told";class tG extends tI.Widget{constructor(e){super(),this._cell=e,this._sign=document.createElement("span"),this._text=document.createElement("span"),this._why=document.createElement("span"),this._bar=document.createElement("span"),this._part=document.createElement("span"),this.addClass("aliquot-CellBadge"),C.element({container:this._sign,tag:"span",className:"aliquot-CellBadge-icon"}),this._sign.className="aliquot-CellBadge-sign",this._sign.setAttribute("aria-hidden","true"),this._text.className="aliquot-CellBadge-text",this._why.className="aliquot-CellBadge-why",this._bar.className="aliquot-Bar aliquot-CellBadge-bar",this._bar.setAttribute("role","progressbar"),this._part.className="aliquot-Bar-part aliquot-mod-used",this._bar.append(this._part);let t=document.createElement("div");t.className="aliquot-CellBadge-said",t.append(this._text,this._bar,this._why),this.node.append(this._sign,t),e.outputArea.model.changed.connect(this._onOutputs,this),this._onOutputs()}dispose(){this.isDisposed||(this._cell.outputArea.model.changed.disconnect(this._onOutputs,this),this._cell.outputArea.widgets.forEach(e=>e.removeClass(tU)),super.dispose())}static into(e){let t=e.layout,n=e.isPlaceholder()?-1:t.widgets.findIndex(e=>e.hasClass("jp-Cell-outputWrapper"));if(n<0)return null;let s=new tG(e);return t.insertWidget(n,s),s}tell(e,t){if(this.toggleClass("aliquot-mod-behind",!t),this.node.dataset.kind=e.kind,this.node.title=t?"":e.text,tD(this._text,e.text),tD(this._why,e.why??""),this._bar.hidden=null===e.progress,null!==e.progress){let{done:t,total:n}=e.progress;this._part.style.width=(0,Q.KN)(t,n),this._bar.setAttribute("aria-label",e.text),this._bar.setAttribute("aria-valuenow",String(Math.round(100*t/n)))}}_onOutputs(){let{model:e,widgets:t}=this._cell.outputArea;t.forEach((t,n)=>{var s;let i=n<e.length?e.get(n):null;t.toggleClass(tU,i?.type==="stream"&&""!==(s=String(i.data["application/vnd.jupyter.stderr"]??"")).trim()&&s.split("\n").every(e=>""===e||tj.test(e)))})}}function tD(e,t){e.textContent!==t&&(e.textContent=t)}function tT(e){return e instanceof tb.CodeCell&&"running"===e.model.executionState}function t$(e,t){return null===e?t.__("queued"):e>1?t.__("queued: %1 ahead",String(e-1)):t.__("queued: next")}function tB(e,t){return 0===e?t.__("No GPU"):e>1?t.__("%1 GPUs",(0,Q.T1)(e)):t.__("%1 GPU",(0,Q.T1)(e))}function tO(e,t){switch(e.state){case"queued":return t$(e.queue_position,t);case"starting":return t.__("starting");case"on_gpu":var n,s;return n=e,s=t,0===n.gpus?s.__("running"):function(e,t){if(e.residency?.state!=="swapping_out")return null;let n=tR(e);return null===n?t.__("swapping out"):t.__("swapping out: %1%",n)}(n,s)??(tz(n)?tL(n.residency.queued,s):s.__("on GPU"));case"swapped_out":return t.__("swapped out");case"checkpointed":return t.__("checkpointed");case"restoring":return function(e,t){let n=tR(e);if(null!==n)return t.__("restoring: %1%",n);let{queued:s,state:i}=e.residency??{};return s&&"swapping_in"!==i?tL(s,t):t.__("restoring")}(e,t);case"ended":return t.__("ended");default:return String(e.state)}}function tR(e){let t=e.residency?.moving;return!t||t.total_bytes<=0?null:Math.min(100,Math.max(0,Math.floor(100*t.done_bytes/t.total_bytes)))}function tH(e){return["on_gpu","swapped_out","restoring","checkpointed"].includes(e.state)}function tL({ahead:e},t){return e>0?t$(e+1,t):t.__("queued for memory")}var tF=n("./labextension/lib/sizes/sizes.js");function tW(e){let t=e.requested_memory_bytes;return{gpus:e.gpus,memoryGib:null===t?null:t/0x40000000,priority:e.priority}}function tK(e){let t=tQ(e.memoryGib);return{gpus:tY(e.gpus),memory:t,priority:e.priority}}function tV(e,t,n){let s=tJ(e);if(null===s)return"no-number";if(s<n.min||s>n.max)return s<n.min?"too-small":"too-large";let i=s*Math.round(1/t);return Math.abs(i-Math.round(i))>1e-6?"off-step":null}function tX(e,t,n){let s=tJ(e);if(null===s)return null;let i=Math.round(1/t);return Math.min(Math.max(Math.round(s*i)/i,n.min),n.max)}function tJ(e){let t=Number(e.trim().replace(",","."));return""!==e.trim()&&Number.isFinite(t)?t:null}function tQ(e){return null===e?null:Math.round(0x40000000*e)}function tY(e){return Math.round(100*e)/100}function tZ(e){return"queued"===e.state&&!ew(e)}function t0(e,t,n,s,i){let a=t.flatMap(e=>e.devices).filter(t=>t.uuid===e.uuid),r=a.reduce((e,t)=>e+t.gpus,function(e,t,n){let{free:s}=t.wait_reason;return s.device===e.index?s.gpus??0:t1(e,n)-e.reserved_gpus}(e,s,i)),o=a.reduce((e,t)=>e+t.guaranteed_memory_bytes,function(e,t,n){let{free:s}=t.wait_reason,i=t1(e,n)*e.memory_bytes-e.reserved_bytes;return s.device===e.index?s.memory_bytes??0:i}(e,s,i));return r+1e-6>=n.gpus&&o>=n.bytes}function t1(e,t){return e.overcommit??t.node.overcommit}function t2(e){let{kernel:t,status:n,session:s,notebook:i,trans:a}=e,[r,o]=F.useState(""),[l,u]=F.useState(!1),d=function({kernel:e,status:t,client:n}){let[s,i]=F.useState({sizes:null,smaller:null}),{id:a,queue_position:r,wait_reason:o}=e,l=JSON.stringify([a,r,o,t.devices.map(e=>[e.uuid,e.reserved_gpus,e.reserved_bytes])]),u=tZ(e);return F.useEffect(()=>{let t=!u;return u&&(async()=>{let s=await n.sizes(),r=await async function(e,t,n){let s=tW(e);for(let i of(0,tF.Xi)(s,t))if(function(e,t,n){if(e.gpus<t.gpus-1e-6)return!0;let s=(0,tF.rU)(e.gpus,n);return null===e.memoryGib&&null!==t.memoryGib&&null!==s&&s<0x40000000*t.memoryGib}(i,s,t)&&function(e,t){let n=t.wait_reason;return n?.code!=="gpu"||null===n.free.device||null===n.free.gpus||e.gpus<=n.free.gpus+1e-6}(i,e)){let{outcome:e,suffix:t}=await n(tK(i));if("starts"===e)return{asked:i,suffix:t}}return null}(e,s,e=>n.dryRun(e,void 0,a));t||i({sizes:s,smaller:r})})().catch(()=>t||i(e=>({...e,smaller:null}))),()=>{t=!0}},[l,u]),s}(e),c=(function(e,t){if(ew(e))return[];let n=t.kernels.filter(n=>{var s,i;let a,r;return s=n,i=t,a=null!==s.idle_since&&"busy"!==s.execution_state,r=s.owner===i.user.name&&!ew(s),a&&r&&s.devices.length>0&&null===ez("shutDown",s,i)&&n.id!==e.id});return"queued"===e.state?function(e,t,n){let s=e.wait_reason?.code;if("host_memory"===s)return t.map(e=>({kernel:e,way:"shutDown"}));if("gpu"!==s&&"gpu_memory"!==s)return[];let i=function(e){let{gpus:t,memory_bytes:n}=e.wait_reason.requested,s=Math.max(1,Math.ceil(t-1e-6));return{devices:s,gpus:Math.min(t,1),bytes:(n??0)/s}}(e),a=n.devices.filter(s=>!s.lost&&t0(s,t,i,e,n));if(a.length<i.devices)return[];let r=t.filter(e=>e.devices.some(({uuid:e})=>a.some(t=>t.uuid===e))),o=t=>a.filter(s=>t0(s,[t],i,e,n)).length>=i.devices?0:1,l=e=>Date.parse(e.idle_since??"");return r.sort((e,t)=>o(e)-o(t)||l(e)-l(t)),r.map(e=>({kernel:e,way:"shutDown"}))}(e,n,t):function(e,t,n){if(!e.residency?.queued)return[];let s=new Set(e.devices.map(e=>e.uuid));return t.filter(e=>e.devices.some(e=>s.has(e.uuid)&&e.used_bytes>0)).map(e=>({one:e,why:ez("swapOut",e,n)})).filter(({why:e})=>null===e||"never-swapped"===e).map(({one:e,why:t})=>({kernel:e,way:null===t?"swapOut":"shutDown"}))}(e,n,t)})(t,n).slice(0,4),h=tZ(t);if(!h&&0===c.length)return null;let m={isBusy:l,run:async e=>{u(!0),o("");try{await e()}catch(e){o(eG(e,a))}u(!1),i&&!i.isDisposed&&document.activeElement===document.body&&i.activate()}};return F.createElement("div",{className:"aliquot-WaysOut",role:"group","aria-label":a.__("Ways out of the wait")},h&&F.createElement("div",{className:"aliquot-Actions-row"},F.createElement(t8,{...m,text:a.__("Cancel"),caption:a.__("Remove the kernel from the queue; waiting cells are not run"),act:async()=>{await t4(e),await s.shutdown()}}),F.createElement(t3,{...e,...d,...m})),c.length>0&&F.createElement(t6,{found:c,...e,...m}),r&&F.createElement("p",{className:"aliquot-Actions-failure",role:"alert"},r))}async function t4({kernel:e,client:t,trans:n}){let{state:s}=await t.kernel(e.id);if("queued"!==s)throw Error(n.__("The kernel has started in the meantime. It keeps its size and runs its cells."))}function t3(e){let t,{kernel:n,session:s,notebook:i,client:a,trans:r,sizes:o,smaller:l}=e,u=s.session?.kernel?.name;if(null===o||void 0===u)return null;let d=async t=>{let r=null===i?[]:await async function(e,t,n){let s=e.content.widgets.filter(e=>e instanceof tb.CodeCell),i=new Set;for(let{cell_id:e}of(await n.openCells(t).catch(()=>[])).filter(e=>e.is_open)){let t=s.find(t=>t.model.id===e);void 0!==t&&i.add(t)}return s.filter(tT).forEach(e=>i.add(e)),Array.from(i)}(i,n.id,a);await t4(e),null===i?await s.changeKernel({name:t}):await async function(e,t,n){let{sessionContext:s,content:i}=e;await s.changeKernel({name:t}),await new Promise(e=>setTimeout(e,0));let a=n.filter(e=>!e.isDisposed);a.length>0&&!e.isDisposed&&tv.NotebookActions.runCells(i,a,s)}(i,t,r)},c=(t=(0,tF.bx)(u,o),"plain"===(0,tF.m2)(o).kind?t:`${t}.gpu-none`),h=c.replace(/\.gpu-none$/,""),m=i?r.__("Replace this kernel; waiting cells run in the new one, in order"):r.__("Replace this kernel; waiting inputs are not run");return F.createElement(F.Fragment,null,l&&F.createElement(t8,{...e,text:r.__("Change to %1 (starts now)",(0,tF.Pf)(l.asked)),caption:m,act:()=>(async({asked:e,suffix:t})=>{let{outcome:s,message:i}=await a.dryRun(tK(e),void 0,n.id);if("starts"!==s)throw Error(r.__("%1 does not start now: %2. The kernel keeps its place in the queue.",(0,tF.Pf)(e),i));await d(`${h}.${t}`)})(l)}),s.specsManager.specs?.kernelspecs[h]&&F.createElement(t8,{...e,text:r.__("Run without GPU"),caption:m,act:()=>d(c)}))}function t6(e){let{found:t,commands:n,trans:s}=e,i=t.filter(({way:e})=>n.hasCommand(S.Aq[e])),a=F.useId();return F.createElement(F.Fragment,null,F.createElement("p",{className:"aliquot-WaysOut-head",id:a},s.__("Your idle kernels that hold a GPU")),F.createElement("ul",{className:"aliquot-WaysOut-kernels","aria-labelledby":a},i.map(({kernel:t,way:i})=>F.createElement("li",{key:t.id},F.createElement("span",{className:"aliquot-WaysOut-kernel"},ek(t)," \xb7 ",tB(t.gpus,s)),F.createElement(t8,{...e,text:eP(i,s),of:ek(t),caption:eI(i,s),act:()=>n.execute(S.Aq[i],{kernelId:t.id})})))))}function t8({text:e,caption:t,of:n,act:s,isBusy:i,run:a}){return F.createElement(j.Button,{type:"button",small:!0,className:"aliquot-Action",title:t,"aria-label":void 0===n?void 0:`${e} ${n}`,"aria-disabled":i||void 0,onClick:i?void 0:()=>void a(s)},e)}class t5{constructor(e,t){this._panel=e,this._options=t,this._widget=null,this._isDisposed=!1}get isDisposed(){return this._isDisposed}dispose(){this._isDisposed=!0,this._widget?.dispose()}follow(e){let t=e?.parent?.layout;if(null===e||!(t instanceof tI.PanelLayout)){this._widget?.dispose(),this._widget=null;return}(null===this._widget||this._widget.isDisposed)&&(this._widget=this._make()),this._widget.parent!==e.parent&&t.insertWidget(t.widgets.indexOf(e)+1,this._widget)}_make(){let{model:e,...t}=this._options,{sessionContext:n}=this._panel,s=j.ReactWidget.create(F.createElement(j.UseSignal,{signal:e.changed,initialArgs:e.state},()=>{let s=n.session?.kernel?.id,i=void 0===s?null:e.kernel(s),{status:a}=e.state;return i&&a&&F.createElement(t2,{...t,kernel:i,status:a,session:n,notebook:this._panel})}));return s.addClass("aliquot-CellWays"),s.node.dataset.lmSuppressShortcuts="",s}}class t7{constructor(e,t){this._panel=e,this._options=t,this._badges=new Map,this._unseen=new WeakSet,this._live=document.createElement("div"),this._order=[],this._timer=0,this._watch=null,this._isDisposed=!1,this._attached=new tE(t.model,e.sessionContext),this._teller=new tN(t.trans),this._ways=new t5(e,t),this._live.className="aliquot-Live",this._live.setAttribute("role","status"),e.node.append(this._live),this._attached.changed.connect(this._look,this),tv.NotebookActions.executionScheduled.connect(this._onExecution,this),tv.NotebookActions.executed.connect(this._onExecution,this),e.content.modelChanged.connect(this._followCells,this),e.disposed.connect(this.dispose,this),this._followCells()}get isDisposed(){return this._isDisposed}dispose(){this._isDisposed||(this._isDisposed=!0,clearTimeout(this._timer),this._watch?.dispose(),this._attached.dispose(),this._ways.dispose(),this._badges.forEach(e=>e.dispose()),this._live.remove(),H.Signal.clearData(this))}_onExecution(e,{notebook:t}){t===this._panel.content&&this._look()}_look(){if(this._isDisposed)return;let e=tS(this._attached.kernel,this._options.trans),t=null===e?[]:this._runningCells();this._show(t,e);let[n]=t;this._ways.follow(void 0===n?null:this._badges.get(n)??null),this._say(t.length>0?e:null),this._follow(t.length>0)}_runningCells(){let e=new Set(this._panel.content.widgets.filter(tT)),t=this._order.filter(t=>e.has(t));return t.forEach(t=>e.delete(t)),this._order=[...t,...Array.from(e)],this._order}_show(e,t){let n=new Set(e);for(let[e,t]of[...this._badges])n.has(e)||(t.dispose(),this._badges.delete(e));e.forEach((e,n)=>{null!==t&&this._badgeOf(e)?.tell(t,0===n)})}_badgeOf(e){let t=this._badges.get(e)??null;return null===t&&(null!==(t=tG.into(e))?(this._badges.set(e,t),e.disposed.connect(()=>this._badges.delete(e))):this._unseen.has(e)||(this._unseen.add(e),e.ready.then(()=>this._look()))),t}_say(e){clearTimeout(this._timer);let t=this._teller.next(e,performance.now());null!==t?this._live.textContent=t:null!==e&&(this._timer=window.setTimeout(()=>this._say(e),tN.QUIET_MS))}_follow(e){e&&this._panel.isVisible?this._watch??(this._watch=this._options.model.watch()):(this._watch?.dispose(),this._watch=null)}_followCells(){let e=this._panel.content.model?.cells;for(let t of(e?.changed.connect(this._onCells,this),e??[]))t.stateChanged.connect(this._onCellState,this);this._look()}_onCells(e,{newValues:t}){t.forEach(e=>e?.stateChanged.connect(this._onCellState,this))}_onCellState(e,{name:t}){"executionState"===t&&this._look()}}function t9(e,t){e.forEach(t),e.widgetAdded.connect((e,n)=>void t(n))}function ne(e,t){t9(e,e=>{let{sessionContext:n}=e,s=()=>void 0,i=n=>{s(),s=null===n||n.isDisposed?()=>void 0:t(e,n)},a=(e,{oldValue:t,newValue:n})=>{(null===n||n!==t)&&i(n)};n.kernelChanged.connect(a),e.disposed.connect(()=>{n.kernelChanged.disconnect(a),i(null)}),i(n.session?.kernel??null)})}let nt=({commands:e},{model:t,client:n},s,i)=>{let a=(i??E.nullTranslator).load(S.$N);t9(s,s=>new t7(s,{model:t,client:n,commands:e,trans:a}))};class nn{constructor(e){this._stage=e,this._runs=new Map,this._heard=[],this._moment=0,this._seen=new ns({ranges:{},ids:[]})}get isWaiting(){return[...this._runs.values()].some(e=>e.isOpen)}get isEmpty(){return 0===this._runs.size}hear(e){null!==this._heard?this._heard.push(e):this._seen.has(e.header.msg_id)||this._route(e)}begin(e,t){let n=[];for(let[s,i]of function(e,t){let n=new Map(t.cells.map(e=>[e.id,e])),s=[];for(let i of e){let e=n.get(i.cell_id??"")??(t.hasLastingIds?void 0:function(e,t){let n=null===e.cell_id?void 0:function(e){let t=e.messages.find(ni);return void 0===t?void 0:function(e,t){return e[t]}(t.content,"code")}(e),s=t.filter(e=>e.code===n);return 1===s.length?s[0]:void 0}(i,t.cells));void 0!==e&&!function(e,t,n){if(e.is_open)return!1;let s=function(e){let t=e.messages.find(ni),n=void 0===t?null:function(e,t){return e[t]}(t.content,"execution_count");return"number"==typeof n?n:null}(e),i=null!==e.ended&&Date.parse(e.ended)<n,a=e.omitted_messages>0&&t.hasOutput&&e.messages.every(ni);return i||a||null!==s&&s===t.executionCount}(i,e,t.savedAt)&&s.push([i,e])}return s.filter(([,e],t)=>!s.slice(t+1).some(([,t])=>t.id===e.id))}(e.cells,t))if(this._stage.take(i.id,s,e.is_own)){let e=s.omitted_messages,t={...{cellId:i.id,code:i.code,executionCount:null,mayLack:e},...{isOpen:!0,isAsking:!1,hasCode:!1,askedId:void 0,overAt:void 0}};this._runs.set(s.msg_id,t),n.push([s,t])}for(let[e,t]of n)this._replay(e,t);let s=this._heard??[];this._heard=null,this._seen=new ns(e.seen),s.forEach(e=>this.hear(e))}get moment(){return this._moment}look(e){this._runs.forEach((t,n)=>{let s=e.find(e=>e.msg_id===n);void 0!==s&&s.is_open?this._ask(t,s.input):t.overAt===this._moment?this._settle(t):t.overAt=this._moment})}leave(e){this._runs.delete(e)}end(){[...this._runs.values()].forEach(e=>this._settle(e)),this._runs.clear()}_replay(e,t){e.messages.forEach(e=>this._route(e)),(e.messages.length>0||!e.is_open)&&this._missed(t),e.is_open?this._ask(t,e.input):this._settle(t)}_ask(e,t){null===t||(void 0===t.id?e.isAsking:t.id===e.askedId)||this._stage.ask(e.cellId,t),e.isAsking=null!==t,e.askedId=t?.id??e.askedId}_missed(e){e.mayLack>0&&(this._stage.remark(e.cellId,{kind:"omitted",messages:e.mayLack}),e.mayLack=0)}_route(e){let t,n=this._runs.get(String(e.parent_header.msg_id)),s=e.header.msg_type;if("update_display_data"===s||"display_data"===s&&void 0!==("object"==typeof(t=function(e,t){return e[t]}(e.content,"transient"))&&null!==t?function(e,t){return e[t]}(t,"display_id"):void 0)){let t={...e,header:{...e.header,msg_type:"update_display_data"}};this._runs.forEach(e=>e!==n&&this._stage.show(e.cellId,t))}void 0!==n&&(this._moment+=1,n.isAsking=!1,"execute_input"===s?this._begun(n,e):"status"===s?"idle"===e.content.execution_state&&this._settle(n):(this._missed(n),this._stage.show(n.cellId,e)))}_begun(e,t){let n=t.content.execution_count,s=t.content.code;e.hasCode||"string"!=typeof s||s===e.code||this._stage.remark(e.cellId,{kind:"other-code"}),e.hasCode||(e.hasCode="string"==typeof s),e.executionCount="number"==typeof n?n:null,null===this._heard&&(e.mayLack=0)}_settle(e){e.isOpen&&(e.isOpen=!1,this._stage.settle(e.cellId,e.executionCount))}}class ns{constructor(e){this._ranges=e.ranges,this._ids=new Set(e.ids)}has(e){let t=e.lastIndexOf("_")+1,n=Number(e.slice(t)),s=this._ranges[e.slice(0,t)]??[];return this._ids.has(e)||s.some(([e=0,t=-1])=>e<=n&&n<=t)}}function ni(e){return"execute_input"===e.header.msg_type}var na=n("webpack/sharing/consume/default/@lumino/coreutils");class nr{constructor(e,t,n){this._kernel=t,this._left=n,this.onReply=()=>void 0,this.onIOPub=()=>void 0,this.onStdin=()=>void 0,this._done=new na.PromiseDelegate,this._hooks=[],this._isDisposed=!1,this.msg=ep.KernelMessage.createMessage({msgType:"execute_request",channel:"shell",session:t.clientId,msgId:e.msgId,metadata:{cellId:e.cellId},content:{code:e.code}}),this._done.promise.catch(()=>void 0)}get done(){return this._done.promise}get isDisposed(){return this._isDisposed}dispose(){this._isDisposed||(this._isDisposed=!0,this._done.reject(Error("Canceled future for execute_request message before replies were done")),this._left())}finish(e){this._done.resolve(ep.KernelMessage.createMessage({msgType:"execute_reply",channel:"shell",session:this._kernel.clientId,parentHeader:this.msg.header,content:{status:"ok",execution_count:e,user_expressions:{}}}))}registerMessageHook(e){this._hooks.unshift(e)}removeMessageHook(e){this._hooks=this._hooks.filter(t=>t!==e)}show(e){this._hooks.every(t=>!1!==t(e))&&this.onIOPub(e)}sendInputReply(e,t){this._kernel.sendInputReply(e,t)}}class no{constructor(e,t,n,s){this._panel=e,this._kernel=t,this._trans=n,this._left=s,this._futures=new Map}notebook(){let{content:e,context:t}=this._panel,n=e.widgets.flatMap(({model:e})=>(0,tb.isCodeCellModel)(e)?[{id:e.sharedModel.getId(),code:e.sharedModel.getSource(),hasOutput:e.outputs.length>0,executionCount:e.executionCount}]:[]),s=Date.parse(t.contentsModel?.last_modified??"")||0,{nbformat:i,nbformatMinor:a}=t.model;return{cells:n,savedAt:s,hasLastingIds:i>4||a>=5}}take(e,t,n){let s=this._cell(e);if(void 0===s||s.outputArea.future&&!s.outputArea.future.isDisposed)return!1;let{sharedModel:i}=s.model,a=new nr({msgId:t.msg_id,cellId:e,code:i.getSource()},this._kernel,()=>{this._futures.delete(e),this._left(t.msg_id)});return i.transact(()=>s.model.clearExecution(),!1),s.outputHidden=!1,s.model.trusted=n,s.outputArea.future=a,s.model.executionState="running",this._futures.set(e,a),!0}show(e,t){let n={channel:"iopub",buffers:[],metadata:{},...t};this._futures.get(e)?.show(n)}remark(e,t){let n=this._words(t),s=document.createElement("div");s.className="aliquot-remark",s.textContent=n,this.show(e,{header:{msg_id:"",msg_type:"display_data"},parent_header:{},content:{data:{"text/html":s.outerHTML,"text/plain":n},metadata:{}}})}ask(e,t){let n=this._futures.get(e);if(void 0!==n){let e=ep.KernelMessage.createMessage({msgType:"input_request",channel:"stdin",session:this._kernel.clientId,parentHeader:n.msg.header,content:{...t}});this._kernel.hasPendingInput=!0,n.onStdin(e)}}settle(e,t){let n=this._cell(e);void 0!==n&&(n.model.executionCount=t,n.model.executionState="idle"),this._futures.get(e)?.finish(t)}leave(){[...this._futures.values()].forEach(e=>e.dispose())}_cell(e){let t=this._panel.isDisposed?void 0:this._panel.content.widgets.find(({model:t})=>t.id===e);return t instanceof tb.CodeCell?t:void 0}_words(e){return"other-code"===e.kind?this._trans.__("This is the output of the code as it was when it was run; the cell has another one now."):1===e.messages?this._trans.__("The beginning of this output was not kept."):this._trans.__("The beginning of this output was not kept (%1 messages).",e.messages)}}let nl=["restarting","autorestarting","terminating","dead"],nu=(e,{client:t},n,s)=>{let i=(s??E.nullTranslator).load(S.$N);ne(n,(e,n)=>new nd(e,n,t).follow(i))};class nd{constructor(e,t,n){this._panel=e,this._kernel=t,this._client=n,this._isLeft=!1}follow(e){let t=this._kernel,n=new no(this._panel,t,e,e=>s.leave(e)),s=new nn(n),i=(e,t)=>s.hear(t),a=(e,t)=>void(nl.includes(t)&&s.end()),r=()=>{t.iopubMessage.disconnect(i),t.statusChanged.disconnect(a)};return t.iopubMessage.connect(i),t.statusChanged.connect(a),this._begin(s,n).then(e=>e?this._look(s):r()),()=>{this._isLeft=!0,r(),s.end(),n.leave()}}get _isHere(){return!this._isLeft&&!this._panel.isDisposed&&this._panel.sessionContext.session?.kernel===this._kernel}async _begin(e,t){var n;await this._panel.context.ready,await (n=this._kernel,new Promise(e=>{let t=()=>{("connected"===n.connectionStatus||n.isDisposed)&&(n.connectionStatusChanged.disconnect(t),n.disposed.disconnect(t),e())};n.connectionStatusChanged.connect(t),n.disposed.connect(t),t()}));let s=await this._ask();return null!==s&&!!this._isHere&&(e.begin(s,t.notebook()),!e.isEmpty)}_look(e){let t=new R.Poll({factory:async()=>{let t=e.moment,n=await this._client.openCells(this._kernel.id);e.moment===t&&this._isHere&&e.look(n)},frequency:{interval:2e3,backoff:!0,max:3e4},name:`@jupyter-aliquot/labextension:coming-back:${this._kernel.id}`,standby:()=>!e.isWaiting||document.hidden});t.ticked.connect(()=>void(this._isHere&&e.isWaiting||t.dispose()))}async _ask(){for(let e=0,t=500;e<5&&this._isHere;e+=1,t*=2)try{return await this._client.runningCells(this._kernel.id)}catch(e){if(!(e instanceof S.Xs)||"not-installed"===e.kind||"forbidden"===e.kind)return null;await new Promise(e=>setTimeout(e,t))}return null}}let nc=({serviceManager:e,shell:t},{model:n})=>{let{kernels:s,sessions:i,kernelspecs:a}=e,r=()=>{Promise.allSettled([s.refreshRunning(),i.refreshRunning()])};n.happened.connect((e,{kind:t,resize:n})=>{"resize"===t&&n?.state==="granted"&&r()}),n.kernelChanged.connect((e,{id:t,kernel:n})=>{let i=Array.from(s.running()).find(e=>e.id===t);null!==n&&void 0!==i&&n.name!==i.name&&r()}),s.runningChanged.connect((e,n)=>(e=>{let n=new Map(Array.from(e,({id:e,name:t})=>[e,t]));for(let[e,s]of eB(t.widgets("main"))){let t=n.get(s.session?.kernel?.id??"");void 0!==t&&function(e,t,n,s){var i,a,r,o;let l=e.session?.kernel;return!!l&&l.name!==t&&(function(e,t,n){Object.defineProperties(e,{name:{configurable:!0,get:()=>t},spec:{configurable:!0,get:()=>Promise.resolve(n.specs?.kernelspecs[t])}})}(l,t,n),e.kernelPreference={...e.kernelPreference,name:t},s&&(i=e.kernelChanged,a={name:"kernel",oldValue:l,newValue:l},i.emit(a)),r=e.statusChanged,o=l.status,r.emit(o),!0)}(s,t,a,e instanceof tv.NotebookPanel)&&function(e){let{toolbar:t}=e;for(let e of t?.children()??[])e.hasClass("jp-KernelName")&&e.update()}(e)}})(n))};class nh{constructor(e=!1){this._sent=new Map,this._connection=0,this._isAnswered=e}send({msg_id:e,msg_type:t},n){if("kernel_info_request"===t)return;let s=[...this._sent.values()].some(({connection:e})=>null===e),i=n&&this._isAnswered&&!s,a="execute_request"===t;(a||!i)&&this._sent.set(e,{connection:i?this._connection:null,isCell:a})}hear({msg_type:e},t){if(this._isAnswered=this._isAnswered||"kernel_info_reply"===e,!this._sent.has(t))return!1;for(let[e,{connection:n,isCell:s}]of[...this._sent])if(e!==t&&s?this._sent.set(e,{connection:n??0,isCell:s}):this._sent.delete(e),e===t)break;return!0}connect(){this._connection+=1}get doubtful(){return[...this._sent].filter(([,{connection:e}])=>null!==e&&e<this._connection).map(([e])=>e)}get waiting(){return[...this._sent].filter(([,{connection:e,isCell:t}])=>t&&null===e).map(([e])=>e)}settle(e){e.forEach(e=>this._sent.delete(e))}clear(){this._sent.clear(),this._isAnswered=!1}}let nm="CellNotRun",np=["restarting","autorestarting"],n_=["idle","busy"],ng=(e,{client:t},n,s)=>{let i=(s??E.nullTranslator).load(S.$N);ne(n,(e,n)=>new nf(e,n,t,i).watch())};class nf{constructor(e,t,n,s){this._panel=e,this._kernel=t,this._client=n,this._trans=s,this._cells=new Map,this._isAsking=!1,this._isLeft=!1}watch(){let e=this._kernel,t=()=>"connected"===e.connectionStatus&&n_.includes(e.status),n=new nh(t()),s=()=>void this._askWhileInDoubt(n),i=(e,{msg:i,direction:a})=>{if("send"===a){n.send(i.header,t());let{cellId:e}=i.metadata;"execute_request"===i.header.msg_type&&"string"==typeof e&&this._cells.set(i.header.msg_id,e)}else n.hear(i.header,String(i.parent_header.msg_id))&&s()},a=(e,t)=>{"connected"===t&&(n.connect(),s())},r=(e,t)=>{np.includes(t)&&n.clear()};return"connected"===e.connectionStatus&&n.connect(),e.anyMessage.connect(i),e.connectionStatusChanged.connect(a),e.statusChanged.connect(r),()=>{this._isLeft=!0,e.anyMessage.disconnect(i),e.connectionStatusChanged.disconnect(a),e.statusChanged.disconnect(r),this._giveUp(n.waiting)}}_giveUp(e){let t=new Set(e.map(e=>this._cells.get(e)));t.size>0&&setTimeout(()=>!this._panel.isDisposed&&function(e,t,n){for(let s of e.content.widgets){let e=s instanceof tb.CodeCell?s.outputArea.future:null;if(!(s instanceof tb.CodeCell)||!t.has(s.model.id)||e&&!e.isDisposed)continue;let i=n.__("The kernel was lost before this cell could be sent to it. It was not run: run it again.");s.model.clearExecution(),s.model.outputs.add({output_type:"error",ename:nm,evalue:i,traceback:[`${nm}: ${i}`]})}}(this._panel,t,this._trans),0)}get _isHere(){return!this._isLeft&&!this._panel.isDisposed&&!this._kernel.isDisposed}async _askWhileInDoubt(e){if(this._isAsking)return;this._isAsking=!0;let t=0;for(;t<10&&this._isHere&&"connected"===this._kernel.connectionStatus&&e.doubtful.length>0;){let n=e.doubtful.slice(0,50),s=await this._ask(n);if(void 0===s)break;null!==s&&this._isHere?(e.settle(n),s.forEach(e=>(function(e,t,n,s){for(let i of e.content.widgets){let e=i instanceof tb.CodeCell?i.outputArea.future:null;if(!e||e.isDisposed||e.msg.header.msg_id!==n)continue;let a=s.__("The connection was lost while this cell was sent, and the kernel does not have it. It was not run: run it again.");e.onIOPub(ep.KernelMessage.createMessage({msgType:"error",channel:"iopub",session:t.clientId,parentHeader:e.msg.header,content:{ename:nm,evalue:a,traceback:[`${nm}: ${a}`]}})),e.dispose()}})(this._panel,this._kernel,e,this._trans)),t=0):(await new Promise(e=>setTimeout(e,Math.min(500*2**t,8e3))),t+=1)}this._isAsking=!1}async _ask(e){try{return await this._client.notReceived(this._kernel.id,this._kernel.clientId,e)}catch(e){return e instanceof S.Xs&&"not-installed"!==e.kind&&"forbidden"!==e.kind?null:void 0}}}let nw=RegExp("CUDA_ERROR_NO_DEVICE|cudaErrorNoDevice|cudaErrorInsufficientDriver|no CUDA-capable device|No CUDA GPUs are available|no NVIDIA driver|NVIDIA display driver|CUDA driver version is insufficient|libcuda\\.so","i");class ny{constructor(){this._told=new Set}hear(e,t){if("error"!==t.header.msg_type||this._told.has(e))return!1;let{ename:n,evalue:s}=t.content;return!!nw.test(`${String(n)}: ${String(s)}`)&&(this._told.add(e),!0)}}async function nb(e,t,n){let s=t.refusal(e),i=t.sized(e);if(null===i||null!==s&&"too-large"!==s.kind)return s;try{let t=await n.dryRun(tK(i.asked));if("never"===t.outcome)return{kind:"never",...i,message:t.message};let a=i.host&&await n.sessionOptions?.(e,i.host);return a?.problem?{kind:"never",...i,message:a.problem}:s}catch{return s}}class nv{constructor(e,t,n=250){this._ask=e,this._tell=t,this._pauseMs=n,this._timer=void 0,this._wanted=null,this._isAsking=!1,this._round=0}want(e){this.forget(),this._wanted={question:e},this._timer=setTimeout(()=>void this._next(),this._pauseMs)}forget(){clearTimeout(this._timer),this._timer=void 0,this._wanted=null,this._round+=1}async _next(){if(this._timer=void 0,this._isAsking||null===this._wanted)return;let{question:e}=this._wanted,t=this._round;this._wanted=null,this._isAsking=!0;let n=null,s=null;try{n=await this._ask(e)}catch(e){s=e??Error("no reason given")}this._isAsking=!1,t===this._round?this._tell(e,n,s):void 0===this._timer&&await this._next()}}class nk{constructor(e,t=150){this._ask=e,this._options=null,this._failure=null,this._chosen=tF.Xu,this._kernelspec=null,this._changed=new H.Signal(this),this._latest=new nv(({kernelspec:t,chosen:n})=>e(t,n),({chosen:e},t,n)=>this._tell(e,t,n),t)}get options(){return this._options}get failure(){return this._failure}get chosen(){return this._chosen}get changed(){return this._changed}begin(e){this._chosen=e}follow(e){(e!==this._kernelspec||null!==this._failure)&&(this._kernelspec=e,null===e?(this._latest.forget(),this._tell(this._chosen,null,null)):this._latest.want({kernelspec:e,chosen:this._chosen}))}choose(e){this._chosen={...this._chosen,...e},this._changed.emit()}async named(e){let{cpus:t,ramGib:n,folders:s}=this._chosen;return null===t&&null===n&&null===s||null===this._kernelspec?e:(await this._ask(e,this._chosen)).name}dispose(){this._latest.forget(),H.Signal.clearData(this)}_tell(e,t,n){if(this._options=t,this._failure=n,null!==t&&e!==this._chosen&&null!==this._kernelspec)this._latest.want({kernelspec:this._kernelspec,chosen:this._chosen});else if(null!==t){let{cpus:e,ram_bytes:n,folders:s}=t.chosen;this._chosen={cpus:e,ramGib:null===n?null:Math.round(n/0x40000000),folders:s}}this._changed.emit()}}class nx{constructor(e,t,n=150){this.sizes=e,this._ask=t,this._target=null,this._choice={kind:"plain"},this._isTouched=!1,this._wanted=null,this._dryRun=null,this._failure=null,this._isAnswered=!1,this._changed=new H.Signal(this),this._custom={gpus:(0,tF.YL)(.25,e),memoryGib:null,priority:e.may_use_normal_priority?"normal":"low"},this._latest=new nv(e=>t(e.request,e.kernelId),(e,t,n)=>this._tell(e,t,n),n)}get target(){return this._target}get presets(){return null===this._target?[]:(0,tF._N)(this._target.base,this.sizes)}get choice(){return this._choice}get custom(){return this._custom}get dryRun(){return this._dryRun}get failure(){return this._failure}get changed(){return this._changed}moveTo(e){if(this._target=e,null===e)this._take(this._choice);else if(null!==e.running)this._take((0,tF.FH)(e.running.has,(0,tF._N)(e.base,this.sizes)));else{let{sizes:t,_choice:n,_isTouched:s}=this;this._take(s?(0,tF.RE)(n,e.base,t):(0,tF.d2)(null,e.base,t))}}begin(e,t){this._target={base:e,running:null},this._isTouched=null!==t,this._take((0,tF.d2)(t,e,this.sizes))}propose(e,t){this._target={base:e,running:null},this._isTouched=!0,this._take(null===t?(0,tF.m2)(this.sizes):(0,tF.FH)(t,(0,tF._N)(e,this.sizes)))}choose(e){this._isTouched=!0,this._take(e)}draft(e){this.choose({kind:"custom",asked:{...this._custom,...e}})}askAgain(){null!==this._wanted&&this._isAnswered&&this._latest.want(this._wanted)}async kernelName(){let e=this._target?.base??"",{_choice:t}=this;if("plain"===t.kind)return e;if("none"===t.kind)return`${e}.gpu-none`;if("preset"===t.kind)return t.size.name;let n=this._dryRun??await this._ask(tK(t.asked));return`${e}.${n.suffix}`}get sizedName(){let{_choice:e,_target:t}=this;if(null===t||null!==t.running)return null;if("preset"===e.kind)return e.size.name;let n="custom"===e.kind?this._dryRun?.suffix:void 0;return void 0===n?null:`${t.base}.${n}`}get change(){let e=(0,tF.$d)(this._choice,this.sizes),t=this._target?.running??null;return null===e||null===t||(0,tF.Ft)(e,t.has)?null:tK(e)}dispose(){this._latest.forget(),H.Signal.clearData(this)}_take(e){this._choice=e;let t=(0,tF.$d)(e,this.sizes);null!==t&&(this._custom=t),this._look()}_look(){let e=null===this._target?null:(0,tF.$d)(this._choice,this.sizes);this._wanted=e&&{request:tK(e),kernelId:this._target?.running?.id},this._dryRun=null,this._failure=null,this._isAnswered=!1,null===this._wanted?this._latest.forget():this._latest.want(this._wanted),this._changed.emit()}_tell(e,t,n){e===this._wanted&&(this._isAnswered=!0,this._dryRun=t,this._failure=null===t?n:null,this._changed.emit())}}class nq{constructor(e,t,n=50){this._sizes=e,this._key="",this._wanted=null,this._found=new Map,this._isAnswered=!1,this._hasNone=!1,this._changed=new H.Signal(this),this._latest=new nv(e=>t(e.suffixes,e.kernelId),(e,t,n)=>this._tell(e,t,n),n)}of(e){return this._found.get(e)??null}get changed(){return this._changed}follow(e){let t=null===e?"":`${e.base} ${e.running?.id??""}`;if(t===this._key)return;this._key=t,this._found=new Map;let n=null===e?[]:this._suffixesOf(e);this._wanted=0===n.length?null:{suffixes:n,kernelId:e?.running?.id},this._ask(),this._changed.emit()}askAgain(){this._isAnswered&&this._ask()}dispose(){this._latest.forget(),H.Signal.clearData(this)}_suffixesOf(e){let{default_size:t}=this._sizes,n=(0,tF._N)(e.base,this._sizes).map(tF.jT);return[...new Set(t&&null===e.running?[...n,`gpu-${t}`]:n)].filter(e=>/^gpu-/i.test(e)).slice(0,64)}_ask(){this._isAnswered=!1,null===this._wanted||this._hasNone?this._latest.forget():this._latest.want(this._wanted)}_tell(e,t,n){this._isAnswered=!0,this._hasNone=n instanceof S.Xs&&"not-installed"===n.kind,this._found=new Map((t??[]).map((t,n)=>[e.suffixes[n],t])),this._changed.emit()}}function nE(e){return(0,Q.z3)(e).replace(".0 "," ")}function nS(e,t){return"normal"===e?t.__("normal"):t.__("low")}function nj(e,t){return"normal"===e?t.__("protected from low-priority kernels"):t.__("uses spare GPU time and memory, and waits when there is none")}function nN(e,t,n=!1){var s;let i,{outcome:a,memory_limit_bytes:r,message:o}=e;if("starts"===a&&!n&&null!==r){let n=t.__("Starts at once, with up to %1 of GPU memory",nE(r)),s=function({memory_sharing:e,keeps_memory:t},n){if(t)return n.__("keeps its memory on the GPU");if(!e)return null;let{idle_kernels:s,busy_kernels:i,restore_seconds:a}=e,r=s>0&&i>0?n.__("shares memory with %1 idle and %2 busy kernels",String(s),String(i)):i>0?n._n("shares memory with %1 busy kernel","shares memory with %1 busy kernels",i):n._n("shares memory with %1 idle kernel","shares memory with %1 idle kernels",s);return null===a?r:n.__("%1; about %2 s to restore",r,String(a))}(e,t);return null===s?`${n}.`:`${n}; ${s}.`}return i=(s=o).slice(0,1).toUpperCase()+s.slice(1),/[.!?]$/.test(i)?i:`${i}.`}function nC(e,t,n){let{unit:s,step:i,min:a,max:r}=t;switch(tV(e,i,t)){case null:return null;case"no-number":return n.__("Enter a number from %1 to %2.",String(a),String(r));case"too-small":return n.__("%1 %2 is too small. Enter %3 to %4.",e,s,String(a),String(r));case"too-large":return n.__("%1 %2 is too large. Enter %3 to %4.",e,s,String(a),String(r));case"off-step":return n.__("%1 %2 is between two steps of %3. Enter %4, for example.",e,s,String(i),String(tX(e,i,t)))}}function nA(e){let{label:t,value:n,min:s,max:i,step:a,disabled:r,unit:o,trans:l,onChange:u}=e,d=e.largest??i,c=F.useId(),h=F.useRef(null),[m,p]=F.useState(null),_={unit:o,step:a,min:s,max:d},g=null===m?null:nC(m,_,l),f=function(e){let[t,n]=F.useState(null);return F.useEffect(()=>{let t=setTimeout(()=>n(e),300);return()=>clearTimeout(t)},[e]),null===e?null:t}(g);F.useEffect(()=>{h.current?.dispatchEvent(new Event("input",{bubbles:!0}))},[null===g]);let w=e=>{let t=tX(e,a,_);null!==t&&t!==n&&u(t)};return F.createElement("div",{ref:h,className:"aliquot-Slider"},F.createElement("label",{className:"aliquot-Slider-label",htmlFor:c},t),F.createElement("input",{min:s,max:i,step:a,disabled:r,type:"range",className:"aliquot-Slider-range","aria-label":t,"aria-valuetext":e.text,value:n,onChange:e=>{p(null),w(e.target.value)}}),F.createElement("input",{min:s,disabled:r,max:d,step:null===m&&"off-step"===tV(String(n),a,_)?"any":a,id:c,type:"number",required:!0,className:"aliquot-Slider-number jp-mod-styled","aria-invalid":null!==f,"aria-describedby":null===f?void 0:`${c}-problem`,value:m??String(n),onChange:e=>{p(e.target.value),null===nC(e.target.value,_,l)&&w(e.target.value)},onBlur:()=>null===g&&p(null)}),F.createElement("span",{className:"aliquot-Slider-unit"},o),null!==f&&F.createElement("p",{id:`${c}-problem`,className:"aliquot-Slider-problem",role:"alert"},f))}function nz({host:e,trans:t}){let{options:n,failure:s}=e,i=s instanceof S.Xs&&"not-installed"===s.kind;if(null!==s&&!i)return F.createElement("p",{className:"aliquot-SizeForm-refusal",role:"alert"},eG(s,t));if(null===n||!(n.cpus||n.ram_bytes||n.folders?.length||n.image))return null;let a={host:e,options:n,trans:t};return F.createElement("div",{className:"aliquot-SizeForm-custom",role:"group","aria-label":t.__("CPUs, memory and folders")},n.image&&F.createElement("p",{className:"aliquot-SizeForm-hint"},t.__("Image: %1",n.image)),F.createElement(nM,{...a}),F.createElement(nP,{...a}),F.createElement(nI,{...a}))}function nM({host:e,options:t,trans:n}){let{cpus:s}=t;if(null===s)return null;let i=Math.max(Math.ceil(s.least/s.step),1)*s.step,a=Math.max(Math.floor(s.most/s.step)*s.step,i),r=Math.min(Math.max(Math.round(s.by_default/s.step)*s.step,i),a),o=e.chosen.cpus;return F.createElement(F.Fragment,null,F.createElement(nU,{label:n.__("Set CPUs"),hint:n.__("(its share is %1)",String(s.by_default)),isOn:null!==o,turn:t=>e.choose({cpus:t?r:null})}),null!==o&&F.createElement(nA,{trans:n,min:i,max:a,value:o,label:n.__("CPUs"),unit:n.__("CPUs"),step:s.step,text:n.__("%1 CPUs",String(o)),onChange:t=>e.choose({cpus:t})}))}function nP({host:e,options:t,trans:n}){let{ram_bytes:s}=t;if(null===s)return null;let i=Math.max(Math.ceil(s.least/0x40000000),1),a=Math.max(Math.floor(s.most/0x40000000),i),r=Math.min(Math.max(Math.round(s.by_default/0x40000000),i),a),o=e.chosen.ramGib;return F.createElement(F.Fragment,null,F.createElement(nU,{label:n.__("Set memory (RAM)"),hint:n.__("(its share is %1)",nE(s.by_default)),isOn:null!==o,turn:t=>e.choose({ramGib:t?r:null})}),null!==o&&F.createElement(nA,{trans:n,min:i,max:a,value:o,label:n.__("Memory (RAM)"),unit:n.__("GiB"),step:1,text:n.__("%1 GiB",String(o)),onChange:t=>e.choose({ramGib:t})}))}function nI({host:e,options:t,trans:n}){let s=t.folders??[];if(0===s.length)return null;let i=e.chosen.folders;return F.createElement(F.Fragment,null,F.createElement(nU,{label:n.__("Choose shared folders"),hint:n.__("(else all of yours: %1)",s.join(", ")),isOn:null!==i,turn:t=>e.choose({folders:t?s:null})}),null!==i&&F.createElement("fieldset",{className:"aliquot-SizeForm-class"},F.createElement("legend",null,n.__("Shared folders")),s.map(t=>F.createElement(nU,{key:t,label:t,isOn:i.includes(t),turn:n=>e.choose({folders:s.filter(e=>e===t?n:i?.includes(e))})}))))}function nU({label:e,hint:t,isOn:n,turn:s}){return F.createElement("label",{className:"aliquot-Resize-choice"},F.createElement("input",{type:"checkbox",checked:n,onChange:e=>s(e.target.checked)}),e,t&&F.createElement("span",{className:"aliquot-SizeForm-hint"},t))}let nG=["normal","low"];function nD(e){let{choice:t,status:n,trans:s}=e,{custom:i,sizes:a}=t;return F.createElement("div",{className:"aliquot-SizeForm-custom",role:"group","aria-label":s.__("Custom")},F.createElement(nA,{trans:s,label:s.__("GPU share"),unit:s.__("GPU"),min:a.step,max:(0,tF.SD)(a,n),largest:a.largest_gpus,step:a.step,value:i.gpus,text:s.__("%1 GPU",(0,Q.T1)(i.gpus)),onChange:e=>t.draft({gpus:e})}),F.createElement(nT,{...e}),F.createElement(n$,{...e}))}function nT({choice:e,trans:t}){let{custom:n,sizes:s}=e,i=(0,tF.rU)(n.gpus,s),a=null===i?1:Math.max(Math.ceil(i/0x40000000),1),r=Math.max((0,tF.mU)(n.gpus,s)??80,n.memoryGib??1);return F.createElement(F.Fragment,null,F.createElement("label",{className:"aliquot-Resize-choice"},F.createElement("input",{type:"checkbox",checked:null!==n.memoryGib,onChange:t=>e.draft({memoryGib:t.target.checked?Math.min(a,r):null})}),t.__("Set memory limit separately"),null!==i&&F.createElement("span",{className:"aliquot-SizeForm-hint"},t.__("(its share is %1)",nE(i)))),null!==n.memoryGib&&F.createElement(nA,{trans:t,label:t.__("GPU memory"),unit:t.__("GiB"),min:1,max:r,step:1,value:n.memoryGib,text:t.__("%1 GiB",String(n.memoryGib)),onChange:t=>e.draft({memoryGib:t})}))}function n$({choice:e,trans:t}){let n=F.useId(),{custom:s,sizes:i}=e;return F.createElement("fieldset",{className:"aliquot-SizeForm-class"},F.createElement("legend",null,t.__("Priority")),nG.map(a=>{let r="normal"===a&&!i.may_use_normal_priority,o=r?t.__("not available to you"):nj(a,t);return F.createElement("label",{key:a,className:"aliquot-Resize-choice"},F.createElement("input",{type:"radio",name:n,disabled:r,checked:s.priority===a,onChange:()=>e.draft({priority:a})}),nS(a,t),F.createElement("span",{className:"aliquot-SizeForm-hint"},o))}))}class nB extends j.ReactWidget{constructor(e){super(),this._options=e,this.addClass("aliquot-SizeForm")}render(){let{choice:e}=this._options;return F.createElement(j.UseSignal,{signal:e.changed},()=>F.createElement(nO,{...this._options}))}}function nO({choice:e,host:t,dryRuns:n,known:s,model:i,refusal:a,trans:r,isOwn:o,pickNew:l}){var u,d;let c,h=s.specs?.kernelspecs[e.target?.base??""]?.metadata?.aliquot;return F.createElement(F.Fragment,null,a&&F.createElement("p",{className:"aliquot-SizeForm-refusal",role:"alert"},(u=a.why,d=null!==a.nearest,c=d?r.__("The nearest available size is selected."):r.__("Choose another."),`${function(e,t){var n;let{kind:s}=e,i=(n=e.base).length>60?`${n.slice(0,60)}…`:n;if("unreadable"===s)return t.__("This document requests a size of %1 that cannot be read.",i);let a=null===e.asked?t.__("no GPU"):(0,tF.Pf)(e.asked);switch(s){case"no-base":return t.__("This document requests %1 on %2, and no kernel of that name is installed here.",a,i);case"too-large":return t.__("This document requests %1; the largest available size is %2.",a,tB(e.largest,t));case"priority":return t.__("This document requests %1 with normal priority, which you may not have here.",a);case"never":return t.__("This document requests %1, which is not available here (%2).",a,e.message)}}(u,r)} ${c}`)),null===e.target&&o()&&F.createElement(nR,{pickNew:l,trans:r}),null!==e.target&&F.createElement(F.Fragment,null,h?.description&&F.createElement("p",{className:"aliquot-SizeForm-hint"},h.description),F.createElement(j.UseSignal,{signal:n.changed},()=>F.createElement(nL,{choice:e,dryRuns:n,trans:r})),"custom"===e.choice.kind&&F.createElement(nD,{choice:e,status:i.state.status,trans:r}),F.createElement(j.UseSignal,{signal:t.changed},()=>F.createElement(nz,{host:t,trans:r}))),F.createElement(nF,{choice:e,trans:r}))}function nR({pickNew:e,trans:t}){return F.createElement("div",{className:"aliquot-SizeForm-own"},F.createElement("span",null,t.__("This kernel stays as it is. Another size takes a new kernel.")),F.createElement(j.Button,{type:"button",small:!0,className:"aliquot-Action",onClick:e},t.__("Choose a Size")))}function nH({group:e,title:t,details:n,isChosen:s,now:i="",dryRun:a=null,pick:r}){let o=F.useId();return F.createElement("label",{className:"aliquot-SizeCard"},F.createElement("input",{type:"radio",name:e,checked:s,"aria-label":n?`${t}, ${n}`:t,"aria-describedby":i?o:void 0,onChange:r}),F.createElement("span",{className:"aliquot-SizeCard-title"},t),F.createElement("span",{className:"aliquot-SizeCard-details"},n),F.createElement("span",{id:o,className:"aliquot-SizeCard-now","data-outcome":a?.outcome,title:a?.message},i))}function nL({choice:e,dryRuns:t,trans:n}){let s=F.useId(),{choice:i,presets:a,custom:r,sizes:o,target:l}=e,u=l?.running??null,[d,c]=[(0,tF.HA)(o),(0,tF.m2)(o)],h=(t,n=i.kind===t.kind)=>({group:s,isChosen:n,pick:()=>e.choose(t)}),m=e=>{let s=t.of(e);return{dryRun:s,now:null===s?"":function(e,t,n){let{outcome:s,position:i,message:a,memory_sharing:r,keeps_memory:o}=e;switch(s){case"starts":if(n)return t.__("changes now");return r?t.__("starts now, shares memory"):o?t.__("starts now, keeps its memory"):t.__("starts now");case"queued":return t$(i,t);case"never":return a.replace(/:.*/s,"")}}(s,n,null!==u)}};return F.createElement("fieldset",{className:"aliquot-SizeForm-presets"},F.createElement("legend",null,u?n.__("Size of this kernel (changes without a restart)"):n.__("Size")),!u&&null!==d&&F.createElement(nH,{...h({kind:"plain"}),...m(`gpu-${o.default_size??""}`),title:n.__("Server's default"),details:(0,tF.Pf)(d)}),!u&&F.createElement(nH,{...h(c),title:n.__("No GPU"),details:n.__("CPU only")}),a.map(t=>{var s,a;let r;return F.createElement(nH,{key:t.name,...h({kind:"preset",size:t},"preset"===i.kind&&(0,tF.Ft)((0,tF.iN)(i.size),(0,tF.iN)(t))),...u&&(0,tF.Ft)((0,tF.iN)(t),u.has)?{now:n.__("its size now")}:m((0,tF.jT)(t)),title:function(e,t,n){var s;let i=(s=e.gpus,s>1?n.__("%1 GPUs",(0,Q.T1)(s)):n.__("%1 GPU",(0,Q.T1)(s)));return"low"===e.priority&&t.sizes.may_use_normal_priority?n.__("%1, low priority",i):i}(t,e,n),details:(s=t,a=e,null===(r=s.requested_memory_bytes??(0,tF.rU)(s.gpus,a.sizes))?"":nE(r))})}),F.createElement(nH,{...h({kind:"custom",asked:r}),title:n.__("Custom"),details:n.__("share, memory, priority")}))}function nF({choice:e,trans:t}){var n,s;let i,{dryRun:a}=e,r=F.useRef(null),o=a?.outcome==="never";return F.useEffect(()=>{r.current?.dispatchEvent(new Event("input",{bubbles:!0}))}),F.useEffect(()=>{let e=document.activeElement;o&&(e===document.body||e?.matches(":disabled"))&&r.current?.parentElement?.querySelector("input:checked")?.focus()},[o]),F.createElement("p",{ref:r,className:o?"aliquot-SizeForm-dry-run jp-mod-error":"aliquot-SizeForm-dry-run",role:"status","data-outcome":a?.outcome},a?nN(a,t,e.target?.running!==null):(n=e.failure,s=t,i=n instanceof S.Xs&&"not-installed"===n.kind,null===n||i?"":eG(n,s)))}class nW extends tI.Panel{constructor(e){super(),this._options=e,this._select=document.createElement("select");let{known:t,client:n,model:s,translator:i,refusal:a}=e;this.addClass("aliquot-KernelSelector"),this._choice=new nx(t.sizes,(e,t)=>n.dryRun(e,t,this._replacedId)),this._dryRuns=new nq(t.sizes,(e,t)=>n.dryRuns(e,t,this._replacedId)),this._host=new nk((e,t)=>n.sessionOptions(e,t)),this._choice.changed.connect(()=>{this._dryRuns.follow(this._choice.target),this._followSize()});let r=new tI.Widget;r.node.append(...this._listNodes()),this.addWidget(r);let o=i.load(S.$N),l=()=>this._isOwnKernel,u=()=>this.pickNew(),{_choice:d,_dryRuns:c,_host:h}=this;this.addWidget(new nB({choice:d,host:h,dryRuns:c,known:t,model:s,refusal:a,trans:o,isOwn:l,pickNew:u})),this._begin(),this._watching=s.watch(),s.changed.connect(d.askAgain,d),s.changed.connect(c.askAgain,c),this._select.addEventListener("change",()=>this._choice.moveTo(this._target()))}getValue(){let e=this._option();return e?.id!==void 0?{id:e.id,change:this._choice.change}:e?.name===void 0?null:{name:null===this._choice.target?Promise.resolve(e.name):this._kernelName()}}async _kernelName(){let e=await this._choice.kernelName();return null===this._options.known.sized(e)?e:this._host.named(e)}_followSize(){let{choice:e,target:t,sizedName:n}=this._choice,s=null!==t&&null===t.running;null===n&&s&&"plain"!==e.kind&&"none"!==e.kind||this._host.follow(n)}dispose(){this._watching.dispose(),this._choice.dispose(),this._host.dispose(),this._dryRuns.dispose(),super.dispose()}_listNodes(){let{context:e,translator:t}=this._options,n=document.createElement("label");n.textContent=`${t.load("jupyterlab").__("Select kernel for:")} "${e.name}"`;let s=G.SessionContextDialogs.kernelOptions(e,t);for(let e of(this._select.disabled=s.disabled??!1,s.groups)){let t=document.createElement("optgroup");for(let{text:n,title:s,value:i,selected:a}of(t.label=e.label,e.options)){let e=new Option(n,i,a,a);e.title=s??"",this._isSizeOfListed(JSON.parse(i))||t.append(e)}t.childElementCount>0&&this._select.append(t)}return n.append(this._select),[n]}get _replacedId(){let{context:e,model:t}=this._options,n=e.session?.kernel?.id;return void 0===n||null===t.kernel(n)?void 0:n}get _isOwnKernel(){let e=this._option()?.id;return void 0!==e&&e===this._options.context.session?.kernel?.id&&null!==this._baseOfOwn}get _baseOfOwn(){let{context:e,known:t}=this._options,n=e.session?.kernel?.name,s=void 0===n?null:t.base(n);return null!==s&&(0,tF._N)(s,t.sizes).length>0?s:null}pickNew(){this._point(this._baseOfOwn??""),this._choice.moveTo(this._target()),this._select.focus()}_begin(){let{context:e,known:t,refusal:n}=this._options,s=e.session?.kernel?.name,i=s??e.kernelPreference.name??null,a=n?.why.base??(null===i?null:t.base(i));void 0===s&&null!==a&&this._point(a),this._host.begin((void 0===s&&null!==i?t.sized(i)?.host:null)??tF.Xu);let r=this._target();null!==n&&null!==r?this._choice.propose(r.base,n.nearest):(this._choice.begin(a??r?.base??"",i),this._choice.moveTo(r))}_point(e){for(let t of Array.from(this._select.options))JSON.parse(t.value)?.name?.toLowerCase()===e.toLowerCase()&&(t.selected=!0)}_option(){return JSON.parse(this._select.value)}_target(){let{current:e,known:t}=this._options,n=this._option();if(n?.id!==void 0)return n.id===e?.running?.id?e:null;let s=n?.name;return void 0!==s&&(0,tF._N)(s,t.sizes).length>0?{base:s,running:null}:null}_isSizeOfListed(e){let{known:t}=this._options,n=e?.name===void 0?void 0:t.sized(e.name)?.base;return void 0!==n&&(t.lists(n)||t.lists(n.toLowerCase()))}}class nK extends G.SessionContextDialogs{constructor(e){super({translator:e.translator,...e.settingRegistry&&{settingRegistry:e.settingRegistry}}),this._options=e,this._wantsSize=!1}async selectKernel(e){await this._select(e),!e.isDisposed&&e.hasNoKernel&&await e.shutdown()}async selectSize(e){this._wantsSize=!0;try{await this.selectKernel(e)}finally{this._wantsSize=!1}}async _select(e){if(e.isDisposed)return;let t=await this._options.known.latestSizes();if(null===t||e.isDisposed)return super.selectKernel(e);let n=e.session?.kernel?null:e.kernelPreference.name??null,s=null===n?null:await this._refusal(n,t),i=await this._ask(e,s,await this._current(e));if(void 0!==i&&!e.isDisposed){if(null===i)return e.hasNoKernel?void 0:e.shutdown();await this._change(e,i)}}async _refusal(e,t){let{known:n,client:s}=this._options,i=await nb(e,n,s);return i&&{why:i,nearest:"asked"in i&&null!==i.asked?await async function(e,t,n){for(let s of(0,tF.Xi)(e,t))try{if("never"!==(await n.dryRun(tK(s))).outcome)return s}catch{return(0,tF.pA)(e,t)}return null}(i.asked,t,s):null}}async _current(e){let t=e.session?.kernel,n=t&&this._options.known.sized(t.name)?.base;if(!t||!n)return null;let{model:s}=this._options;null===s.kernel(t.id)&&await s.readAnew();let{status:i}=s.state,a=i?.kernels.find(e=>e.id===t.id&&null===ez("resize",e,i));return a?{base:n,running:{id:a.id,has:tW(a)}}:null}async _ask(e,t,n){let{known:s,client:i,model:a,translator:r}=this._options,o=r.load("jupyterlab"),l=new nW({context:e,known:s,client:i,model:a,translator:r,refusal:t,current:n});this._wantsSize&&l.pickNew();let{autoStartDefault:u}=e.kernelPreference,d=new G.Dialog({title:o.__("Select Kernel"),body:l,buttons:[G.Dialog.cancelButton({label:e.hasNoKernel?e.kernelDisplayName:o.__("Cancel")}),G.Dialog.okButton({label:o.__("Select"),ariaLabel:o.__("Select Kernel")})],checkbox:"boolean"==typeof u?{label:o.__("Always start the preferred kernel"),caption:o.__("Remember my choice and always start the preferred kernel"),checked:u}:null});d.addClass("aliquot-KernelDialog");let{button:c,value:h,isChecked:m}=await d.launch();if(c.accept&&!e.isDisposed)return"boolean"==typeof u&&null!==m&&(e.kernelPreference={...e.kernelPreference,autoStartDefault:m}),h}async _change(e,t){let n,s=this._options.translator.load(S.$N);try{if("id"in t&&null!==t.change)return await this._options.client.resize(t.id,t.change),this._options.model.refresh();n="name"in t?{name:await t.name}:{id:t.id}}catch(e){return(0,G.showErrorMessage)(s.__("This size is not available"),eG(e,s))}await e.changeKernel(n)}}async function nV(e,t){await (e instanceof nK?e.selectSize(t):e?.selectKernel(t))}let nX=(e,{model:t},n,s,i)=>{let a=(i??E.nullTranslator).load(S.$N),r=new ny;t9(n,({sessionContext:e})=>{let n=new tE(t,e);e.iopubMessage.connect((e,t)=>{let i=e.session?.kernel?.id;if(void 0===i||"none"!==n.attachment||!r.hear(i,t))return;let o=a.__("The kernel of %1 has no GPU: it was started without a size.",e.name),l=[{label:a.__("Choose a Size"),displayType:"accent",callback:()=>void nV(s,e)}];G.Notification.warning(o,{autoClose:!1,actions:l})})})};class nJ{constructor(){this._last=new Map}mayPrefetch(e,t,n){let s=null!==e&&(e.owner===t||ew(e)&&ef(e,"write"));if(null===e||!s||!["swapped_out","checkpointed"].includes(e.state))return!1;let i=this._last.get(e.id);return(void 0===i||!(n-i<nJ.BETWEEN_MS))&&(this._forget(n),this._last.set(e.id,n),!0)}_forget(e){for(let[t,n]of[...this._last])e-n>=nJ.BETWEEN_MS&&this._last.delete(t)}}(nJ||(nJ={})).BETWEEN_MS=1e3;let nQ=(e,{model:t,client:n},s)=>{let i=new nJ;t9(s,e=>{let s=s=>{s.target instanceof Element&&s.target.closest(".jp-CodeCell")&&(e=>{let{status:s}=t.state,a=e.sessionContext.session?.kernel?.id,r=void 0===a?null:t.kernel(a);r&&s&&i.mayPrefetch(r,s.user.name,performance.now())&&n.prefetch(r.id).catch(()=>void 0)})(e)};e.content.node.addEventListener("pointerdown",s),e.content.node.addEventListener("keydown",s)})};class nY{constructor(){this._wasAway=!1,this._wasLive=!1}isBack(e,t){let n=e&&this._wasAway||t&&!this._wasLive;return this._wasAway=!e,this._wasLive=t,n&&e}}let nZ=({serviceManager:e,shell:t},{model:n})=>{let s=new nY,i=()=>{s.isBack(null===n.state.problem&&null!==n.state.status,n.isLive)&&async function(e,t){for(let n of(await t().catch(()=>void 0),e()))n.isDisposed||"connected"===n.connectionStatus||n.reconnect().catch(()=>void 0)}(()=>(function*(e){for(let{session:t}of e$(e.widgets("main")))t?.kernel&&(yield t.kernel)})(t),()=>e.kernels.refreshRunning())};n.changed.connect(i),n.liveChanged.connect(i)};var n0=n("./labextension/lib/sizes/known_specs.js");let n1=["user","withdrawn","culled"];class n2{constructor(e,t,n,s){this._model=e,this._client=t,this._trans=s,this._kernels=null,this._comesBack=null!==n||function(){let[e]=performance.getEntriesByType("navigation");return void 0!==e&&"reload"===e.type}(),n?.restored.then(()=>this._comesBack=!1)}hold(e,t){if(!this._comesBack)return;let n=e.startKernel.bind(e);e.startKernel=async()=>{e.startKernel=n;let s=await this._shutDown(t);return null===s?n():(this._tell(s,e),!1)}}async _shutDown(e){var t;let n,s;this._kernels??(this._kernels=this._client.kernels().catch(()=>[]));let[i]=await Promise.all([this._kernels,this._model.state.status??this._model.readAnew()]);return t=this._model.state.status?.user.name??"",n=e=>Date.parse(e.termination?.at??""),(s=i.filter(n=>null!==n.termination&&n.owner===t&&n.label===e).sort((e,t)=>n(t)-n(e))[0])&&s.gpus>0&&n1.includes(s.termination?.code??"")?s:null}_tell(e,t){let n=(e.termination?.message??"").replace(/\.$/,""),s=this._trans.__("%1 has no kernel: %2. Run a cell to start one.",ek(e),n);G.Notification.info(s,{autoClose:15e3,actions:[{label:this._trans.__("Start a kernel"),callback:()=>void t.startKernel()}]})}}let n4=(e,{client:t,model:n},s,i)=>{let a=new n2(n,t,s,(i??E.nullTranslator).load(S.$N)),r=e.serviceManager.kernelspecs;r instanceof n0.M&&e.docRegistry.addWidgetExtension("Notebook",{createNew:(n,s)=>{var i,o,l;let u;i=s.sessionContext,o=r,l=e=>nb(e,r,t),u=i.startKernel.bind(i),i.startKernel=async()=>{let{id:e,name:t}=i.kernelPreference;return e||!t||o.lists(t)?u():(await o.ready,await l(t)!==null||o.listing(t,u))},a.hold(s.sessionContext,e.serviceManager.contents.localPath(s.path)),s.model.metadataChanged.connect(()=>(function(e,t){let n=e.getMetadata("kernelspec"),s=n?.name;if(void 0===s||t.lists(s)||t.base(s)===s)return;let i=t.specs?.kernelspecs[s];void 0!==i&&(n?.display_name!==i.display_name||n?.language!==i.language)&&e.setMetadata("kernelspec",{name:s,display_name:i.display_name,language:i.language})})(s.model,r))}})};var n3=n("webpack/sharing/consume/default/@jupyterlab/statusbar");class n6 extends j.ReactWidget{constructor(e){super(),this._options=e,this._attached=null,this._watch=null,this._isOpen=!1,this.addClass("aliquot-KernelItem"),this.addClass("toolbar"===e.place?"jp-ToolbarButton":"jp-mod-highlighted"),this.attached=e.attached??null}get attached(){return this._attached}set attached(e){this._attached?.changed.disconnect(this._onChanged,this),this._attached=e,e?.changed.connect(this._onChanged,this),this._onChanged()}get button(){return this.node.querySelector('jp-button, button, [role="button"]')??this.node}set isOpen(e){this._isOpen=e,this.toggleClass("jp-mod-clicked",e&&"status-bar"===this._options.place),this.update()}dispose(){this.isDisposed||(this._unwatch(),this._attached?.changed.disconnect(this._onChanged,this),super.dispose())}render(){let e,t,n,s,{trans:i,place:a}=this._options,{attachment:r,kernel:o}=this._attached??{};if(!r||"unknown"===r||"elsewhere"===r)return null;let l={text:o?(e=function(e){if(!tH(e)||e.memory_limit_bytes<=0)return null;let[t,n]=(0,Q.l1)(e.used_bytes,e.memory_limit_bytes).map(e=>e.replace(/\.0(?= |$)/,""));return`${t} / ${n}`}(o),t=ew(o)?ef(o,"write")?i.__("shared"):i.__("shared, read-only"):null,[tB(o.gpus,i),e,tO(o,i),t].filter(e=>null!==e).join(" \xb7 ")):tB(0,i),hint:o?(n=[i.__("GPU of this kernel: %1",tB(o.gpus,i))],tH(o)&&o.memory_limit_bytes>0&&n.push(i.__("%1 of %2 of memory used",...(0,Q.l1)(o.used_bytes,o.memory_limit_bytes))),n.push(tO(o,i)),ew(o)&&n.push(i.__("shared by %1",o.owner)),(s=o.termination?.message??o.reason)?`${n.join(", ")}. ${s}`:n.join(", ")):i.__("This kernel has no GPU: choose one that has"),state:o?.state??"none",isOpen:this._isOpen,press:()=>this._options.press(this)};return"toolbar"===a?F.createElement(n8,{...l}):F.createElement(n5,{...l})}onAfterShow(e){super.onAfterShow(e),this._follow()}onAfterAttach(e){super.onAfterAttach(e),this._follow()}onAfterHide(e){super.onAfterHide(e),this._unwatch()}onBeforeDetach(e){this._unwatch(),super.onBeforeDetach(e)}_onChanged(){this._follow(),this.update()}_follow(){let e=this._attached,t=e?.attachment==="ours"?e.kernel?.state!=="ended":e?.attachment==="unknown"&&!!e.session.session?.kernel;this.isVisible&&t?this._watch??(this._watch=this._options.model.watch()):this._unwatch()}_unwatch(){this._watch?.dispose(),this._watch=null}}function n8({text:e,hint:t,state:n,isOpen:s,press:i}){return F.createElement(j.ToolbarButtonComponent,{className:"aliquot-KernelItem-button",icon:C,label:e,tooltip:t,dataset:{"data-state":n},"aria-haspopup":"dialog","aria-expanded":s,onClick:()=>{window.event?.type==="keydown"&&window.event.preventDefault(),i()}})}function n5({text:e,hint:t,state:n,isOpen:s,press:i}){return F.createElement(n3.TextItem,{role:"button",tabIndex:0,source:e,title:t,"data-state":n,"aria-haspopup":"dialog","aria-expanded":s,onClick:i,onKeyDown:e=>{("Enter"===e.key||" "===e.key)&&(e.preventDefault(),i())}})}let n7=["normal","low"];function n9(e){var t,n,s;let i,a,{kernel:r,model:o,client:l,trans:u}=e,[d,c]=F.useState({}),[h,m]=F.useState(""),[p,_]=F.useState(!1),g={...tW(r),...d},f=(i=tW(r),a={},tY(g.gpus)!==tY(i.gpus)&&(a.gpus=tY(g.gpus)),(null===g.memoryGib?null!==i.memoryGib:g.memoryGib!==i.memoryGib)&&(a.memory=tQ(g.memoryGib)),g.priority!==i.priority&&(a.priority=g.priority),Object.keys(a).length>0?a:null),w=function(e,t,n,s){let[i,a]=F.useState(null),{id:r,used_bytes:o}=t,l=F.useMemo(()=>new nv(t=>e.dryRun(t,r),(e,t,n)=>{var i,r;return a(t?{text:function(e,t,n){let{outcome:s,memory_limit_bytes:i}=e,a="starts"===s?n.__("Changes at once."):nN(e,n);if("never"===s||null===i||t<=i)return a;let r=[(0,Q.z3)(t),(0,Q.z3)(i)];return n.__("%1 The kernel uses %2: new allocations fail until it uses less than %3.",a,...r)}(t,o,s),outcome:t.outcome}:(i=n,r=s,i instanceof S.Xs&&"not-installed"===i.kind?null:{text:eG(i,r),outcome:"never"}))}),[e,r,o,s]),u=JSON.stringify(n);return F.useEffect(()=>(null===n?(a(null),l.forget()):l.want(n),()=>l.forget()),[l,u]),i}(l,r,f&&tK(g),u),y=async e=>{_(!0),m("");try{await e(),await o.readAnew(),c({})}catch(e){m(eG(e,u)),o.refresh()}_(!1)};return F.createElement("form",{className:"aliquot-Resize","aria-label":u.__("Size of %1",ek(r)),onSubmit:e=>{e.preventDefault(),f&&!p&&y(()=>l.resize(r.id,f))}},F.createElement(se,{...e,chosen:g,choose:e=>c({...d,...e})}),F.createElement("p",{className:"aliquot-Resize-dry-run",role:"status","data-outcome":w?.outcome},f?w?.text:u.__("Changes without a restart.")),F.createElement("div",{className:"aliquot-Actions-row"},F.createElement(j.Button,{type:"submit",small:!0,className:"aliquot-Action aliquot-mod-main",disabled:!f||p},u.__("Resize")),f&&F.createElement(j.Button,{type:"button",small:!0,className:"aliquot-Action",onClick:()=>c({})},u.__("Reset"))),r.resize&&F.createElement("div",{className:"aliquot-Resize-waiting"},F.createElement("span",null,(t=r.resize.gpus,n=r.resize.position,(s=u).__("Resize to %1 GPU %2.",(0,Q.T1)(t),t$(n,s)))),F.createElement(j.Button,{type:"button",small:!0,className:"aliquot-Action",disabled:p,onClick:()=>void y(()=>l.withdrawResize(r.id))},u.__("Cancel Resize"))),h&&F.createElement("p",{className:"aliquot-Actions-failure",role:"alert"},h))}function se({kernel:e,status:t,trans:n,chosen:s,choose:i}){var a;let r,o,l=(0,Q.T1)(s.gpus),u=F.useId();return F.createElement(F.Fragment,null,F.createElement(nA,{trans:n,label:n.__("GPU share"),unit:n.__("GPU"),...{min:tY((r=Math.max(1,e.devices.length||Math.ceil(e.gpus)))-1+.01),max:r},step:.01,value:s.gpus,text:n.__("%1 GPU",l),onChange:e=>i({gpus:e})}),F.createElement("label",{className:"aliquot-Resize-choice"},F.createElement("input",{type:"checkbox",checked:null!==s.memoryGib,onChange:t=>i({memoryGib:t.target.checked?Math.max(1,Math.ceil(e.memory_limit_bytes/0x40000000)):null})}),n.__("Set memory limit separately")),null!==s.memoryGib&&F.createElement(nA,{trans:n,label:n.__("Memory limit"),unit:n.__("GiB"),...(a=t.devices,o=new Set(e.devices.map(e=>e.uuid)),{min:1,max:Math.max(1,Math.floor(Math.max(a.filter(e=>o.has(e.uuid)).reduce((e,t)=>e+t.memory_bytes,0),e.memory_limit_bytes)/0x40000000))}),step:1,value:s.memoryGib,text:n.__("%1 GiB",String(s.memoryGib)),onChange:e=>i({memoryGib:e})}),F.createElement("fieldset",{className:"aliquot-Resize-class"},F.createElement("legend",null,n.__("Priority")),n7.map(e=>F.createElement("label",{key:e,className:"aliquot-Resize-choice",title:nj(e,n)},F.createElement("input",{type:"radio",name:u,checked:s.priority===e,onChange:()=>i({priority:e})}),nS(e,n)))))}function st(e){let{kernel:t,status:n,commands:s,trans:i}=e,[a,r]=F.useState(""),[o,l]=F.useState(null);F.useEffect(()=>r(""),[t.state]);let u=(function(e,t){if(ew(e)){let n;return n=t?[]:["newNotebook","follow"],ef(e,"write")&&n.push(...e.gpus>0&&"restore"===eM(e)?["restore"]:[],"restart"),n}let n=t?[]:["open"];return e.gpus>0&&n.push(eM(e)),e.scheduled_termination&&n.push("postponeCulling"),[...n,"share","restart","shutDown"]})(t,e.withoutOpen??!1).filter(e=>s.hasCommand(S.Aq[e]));return F.createElement("div",{className:"aliquot-Actions",role:"group","aria-label":i.__("Actions for %1",ek(t))},ew(t)?F.createElement("p",{className:"aliquot-Resize-dry-run"},eH(t,i)):F.createElement(sn,{...e}),F.createElement("div",{className:"aliquot-Actions-row"},u.map(e=>F.createElement(ss,{key:e,action:e,kernel:t,status:n,trans:i,underWay:o,run:()=>void(async e=>{l(e),r("");try{await s.execute(S.Aq[e],{kernelId:t.id})}catch(e){r(eG(e,i))}l(null)})(e)}))),a&&F.createElement("p",{className:"aliquot-Actions-failure",role:"alert"},a))}function sn(e){let{kernel:t,status:n,trans:s}=e,i=ez("resize",t,n);return null===i?F.createElement(n9,{...e}):"no-gpu"===i||"ended"===i?null:F.createElement("p",{className:"aliquot-Resize-dry-run"},s.__("This kernel cannot be resized now: %1",eU(i,t,s)))}function ss({action:e,kernel:t,status:n,trans:s,underWay:i,run:a}){let r=ez(e,t,n),o=null===r?eI(e,s):eU(r,t,s),l=null!==r||null!==i,u=F.useId();return F.createElement(F.Fragment,null,F.createElement(j.Button,{type:"button",small:!0,className:"aliquot-Action",title:o,"aria-describedby":null===r?void 0:u,"aria-disabled":l||void 0,"aria-busy":i===e||void 0,onClick:l?void 0:a},eP(e,s)),null!==r&&F.createElement("span",{id:u,hidden:!0},o))}function si(e){return F.createElement("div",{className:`aliquot-Bar${e.isThin?" aliquot-mod-thin":""}`,role:"meter","aria-label":e.label,"aria-valuemin":0,"aria-valuemax":e.whole,"aria-valuenow":Math.min(e.value,e.whole),"aria-valuetext":e.text,title:e.text},e.parts.map(t=>t.amount>0&&F.createElement(sa,{key:t.kind,...t,whole:e.whole})))}function sa({kind:e,amount:t,whole:n}){return F.createElement("span",{className:`aliquot-Bar-part aliquot-mod-${e}`,style:{width:(0,Q.KN)(t,n)}})}function sr(e){return e.devices.filter(e=>!!e.compute&&(e.compute?.share_used!==null||e.compute?.fair_share!==null))}function so(e){let t=100*e;return t>0&&t<1?"<1%":`${Math.round(t)}%`}function sl(e){return Math.min(Math.max(100*e,0),100)}function su({kernel:e,trans:t}){return F.createElement(F.Fragment,null,sr(e).map(n=>F.createElement(sd,{key:n.uuid,kernel:e,device:n,trans:t})))}function sd({kernel:e,device:t,trans:n}){var s,i;let a,r,o,{compute:l}=t,{used:u,held:d}=(r=sl(l.share_used??0),o=Math.max(0,sl(l.fair_share??0)-r),{used:r,held:o,free:100-r-o}),c=(e.devices.length>1?`${n.__("GPU %1",String(t.index))}: `:"")+function(e,t){let{share_used:n,fair_share:s}=e;return null===n?t.__("fair share: %1 of GPU time",so(s??0)):null===s?t.__("%1 of GPU time",so(n)):t.__("%1 of GPU time, fair share %2",so(n),so(s))}(l,n);return F.createElement(F.Fragment,null,F.createElement(si,{label:n.__("GPU time of %1",ek(e)),text:c,value:Math.round(u),whole:100,parts:[{kind:"mine",amount:u},{kind:"mine-held",amount:d}],isThin:!0}),F.createElement("p",{className:"aliquot-Item-line",title:n.__("Of the last second. Fair share: by weight, among kernels that want the GPU.")},c),F.createElement(ea,{said:(s=l,i=n,a=[],s.has_hard_limit&&a.push(i.__("hard limit of GPU time")),s.paused&&a.push(i.__("paused for normal-priority work")),a)}),l.throttle_reason&&F.createElement("p",{className:"aliquot-Item-line"},n.__("Throttled: %1",l.throttle_reason)))}let sc={context:0,burstable:0,held:0};function sh(e){let t=sm(e.residency?.swapped_bytes??0,e.used_bytes),n=e.used_bytes-t,s=Math.max(0,Math.min(n,e.memory_limit_bytes)-e.guaranteed_memory_bytes);return{resident:n-s,burstable:s,swapped:t}}function sm(e,t){return Math.min(Math.max(e,0),Math.max(t,0))}function sp(e){return["on_gpu","swapped_out","restoring","checkpointed"].includes(e.state)}function s_(e,t,n){return t.idle_since?n.__("%1, idle since %2",e,(0,Q.fU)(t.idle_since,new Date)):n.__("%1, idle",e)}function sg(e,t){let n=[],s=e.residency;s&&s.swapped_bytes>0&&n.push(t.__("%1 in host memory",(0,Q.z3)(s.swapped_bytes)));let i=s?.restore_seconds??null;return null!==i&&["swapped_out","checkpointed"].includes(e.state)&&n.push(t.__("about %1 to restore",tP(i))),e.over_limit_bytes>0&&n.push(t.__("over the memory limit by %1",(0,Q.z3)(e.over_limit_bytes))),s&&"off"===s.mode&&n.push(s.refusal?t.__("never swapped: %1",s.refusal):t.__("never swapped")),e.resize&&n.push(t.__("resize %1",t$(e.resize.position,t))),n}function sf(e,t){if(0===e.gpus)return t.__("no GPU");let n=(0,Q.T1)(e.gpus);return e.gpus>1?t.__("%1 GPUs",n):t.__("%1 GPU",n)}function sw({kind:e,children:t}){return F.createElement("div",{className:`aliquot-Notice aliquot-mod-${e}`,role:"warning"===e?"alert":"note"},F.createElement(("warning"===e?U:I).react,{className:"aliquot-Notice-icon",tag:"span"}),F.createElement("span",null,t))}function sy({state:e,trans:t}){var n,s;let{status:i,problem:a}=e,r=i&&(n=i.node,s=t,"unavailable"!==n.agent||n.message?n.message:s.__('The node agent does not answer. Run "aliquot doctor" on the server.'));return F.createElement(F.Fragment,null,a&&F.createElement(sw,{kind:"warning"},function(e,t){switch(e.kind){case"not-installed":return t.__('This Jupyter server does not run Aliquot. Install the package jupyter-aliquot where the server runs, check it with "jupyter server extension list", and restart the server.');case"forbidden":return t.__("The server does not let you see its GPUs: %1",e.message);case"too-many":return t.__("The server answers this page more slowly for a while: %1",e.message);case"unreachable":return t.__("The server does not answer. The figures below are the last known ones; trying again.");case"server":return t.__("The server could not report its GPUs: %1",e.message)}}(a,t)),!a&&r&&F.createElement(sw,{kind:"warning"},r),i&&i.node.untracked_processes>0&&F.createElement(sw,{kind:"info"},t._n("%1 process on the GPUs belongs to no kernel: no kernel can reserve its memory.","%1 processes on the GPUs belong to no kernel: no kernel can reserve their memory.",i.node.untracked_processes)),i?.node.driver==="softgpu"&&F.createElement(sw,{kind:"info"},t.__("Software GPU: compiled GPU code is timed, not executed")),!i&&!a&&F.createElement("p",{className:"aliquot-Empty"},t.__("Looking for GPUs…")))}function sb(e){let t,{kernel:n,trans:s}=e,i=(t=/^failed(?::\s*(.*))?$/s.exec(n.interception))?t[1]||"the self-check failed":null;return F.createElement(F.Fragment,null,i&&F.createElement(sw,{kind:"warning"},s.__("The memory limit is not enforced in this kernel: %1",i)),F.createElement(sk,{kernel:n,trans:s}),F.createElement(sv,{...e}))}function sv({kernel:e,isMine:t,trans:n,keep:s}){let{last_crash:i,scheduled_termination:a,owner_message:r}=e;return F.createElement(F.Fragment,null,r&&F.createElement(sw,{kind:"info"},n.__("%1 wrote at %2: %3",r.by,(0,Q.fU)(r.at,new Date),r.text)),i&&F.createElement(sw,{kind:"info"},n.__("Started again at %1: %2",(0,Q.fU)(i.at,new Date),i.message)),a&&F.createElement(sw,{kind:"warning"},n.__("Ends at %1: %2",(0,Q.fU)(a.at,new Date),a.message),a.can_postpone&&t&&F.createElement("button",{type:"button",className:"aliquot-Notice-action",onClick:()=>s(e)},n.__("Keep Running"))))}function sk({kernel:e,trans:t}){let n,s=(n=/^failed:\s*(.*)$/s.exec(e.enforcement),n?.[1]??null);return F.createElement(F.Fragment,null,s&&F.createElement(sw,{kind:"warning"},t.__("The limits of this kernel are not set: %1",s)),e.uncontrolled_processes.map(e=>{var n,s,i;let a;return F.createElement(sw,{key:`${e.pid} ${e.index}`,kind:"warning"},(n=e,s=t,a=[String(n.pid),n.name,String(n.index)],null===n.used_bytes?s.__("Process %1 (%2) uses GPU %3 past the memory limit",...a):s.__("Process %1 (%2) holds memory of GPU %3 past the memory limit: %4",...a,(i=n,(0,Q.z3)(Math.max(0,(i.used_bytes??0)-i.charged_bytes))))))}))}let sx=F.memo(function(e){let{kernel:t,tools:n,isMine:s,showsDevice:i}=e,{trans:a}=n,[r,o]=F.useState(!1),l=F.useId(),u=F.useRef(null);return F.useEffect(()=>{r&&u.current?.scrollIntoView({block:"nearest"})},[r]),F.createElement("li",{className:"aliquot-Item","data-state":t.state,"data-kernel":t.id},F.createElement("div",{className:"aliquot-Item-head"},F.createElement(sE,{...e}),F.createElement("span",{className:"aliquot-Item-size"},sf(t,a)),F.createElement("button",{type:"button",className:"aliquot-Item-more","aria-expanded":r,"aria-controls":l,"aria-label":a.__("Actions and details of %1",ek(t)),title:a.__("Actions and details"),onClick:()=>o(!r)},F.createElement(j.ellipsesIcon.react,{tag:"span",width:"16px"}))),F.createElement(sS,{kernel:t,trans:a}),sp(t)&&t.gpus>0&&F.createElement(sj,{kernel:t,trans:a}),F.createElement("div",{className:"aliquot-Item-lines"},sp(t)&&t.gpus>0&&F.createElement("p",{className:"aliquot-Item-line"},sN(t,a)),F.createElement(ea,{said:function(e,t,n){var s,i;let a,r,o,l,u=[function(e,t){switch(e.state){case"queued":return tC(t$(e.queue_position,t),e,t);case"starting":return t.__("starting");case"ended":return t.__("ended");case"on_gpu":var n,s;return 0===e.gpus?e.execution_state??t.__("running"):(n=e,s=t,"busy"===n.execution_state?s.__("on GPU, busy"):n.idle_since?s.__("on GPU, idle since %1",(0,Q.fU)(n.idle_since,new Date)):"idle"===n.execution_state?s.__("on GPU, idle"):s.__("on GPU"));default:switch(e.state){case"swapped_out":return s_(t.__("swapped out"),e,t);case"restoring":return t.__("restoring");case"checkpointed":return s_(t.__("checkpointed"),e,t);default:return String(e.state)}}}(e,n)],d=(l=e.shares??[]).length>0?(s=l,i=n,r=(a=eb(s).map(e=>eO(e,i))).slice(0,2).join(", "),(o=a.length-2)>0?i.__("shared with %1 and %2 more",r,String(o)):i.__("shared with %1",r)):null;null!==d&&u.push(d),"low"===e.priority&&u.push(n.__("low priority")),t&&1===e.devices.length&&u.push(n.__("GPU %1",String(e.devices[0]?.index))),e.failed_allocations>0&&u.push(n._n("%1 allocation refused","%1 allocations refused",e.failed_allocations));let{burstable:c}=sh(e);return c>0&&u.push(n.__("%1 beyond its guaranteed memory",(0,Q.z3)(c))),u.concat(sg(e,n))}(t,i,a)})),sp(t)&&F.createElement(sC,{kernel:t,trans:a}),F.createElement(sA,{kernel:t,trans:a}),sp(t)&&sr(t).some(({compute:e})=>null!==e.fair_share||(e.share_used??0)>0)&&F.createElement(su,{kernel:t,trans:a}),t.reason&&F.createElement("p",{className:"aliquot-Item-line"},t.reason),t.resize&&F.createElement("p",{className:"aliquot-Item-line"},t.resize.reason),F.createElement(sb,{kernel:t,isMine:s,trans:a,keep:n.keep}),F.createElement("div",{id:l,ref:u,className:"aliquot-Item-folded",hidden:!r},r&&F.createElement(sq,{kernel:t,tools:n})))});function sq({kernel:e,tools:t}){let{model:n,trans:s}=t;return F.createElement(F.Fragment,null,F.createElement(j.UseSignal,{signal:n.changed,initialArgs:n.state},()=>n.state.status&&F.createElement(st,{kernel:e,status:n.state.status,...t})),F.createElement(ea,{said:[...function(e,t){var n,s;let i=[];e.gpus>0&&i.push("normal"===e.priority?t.__("normal priority"):t.__("low priority")),e.peak_bytes>0&&i.push(t.__("peak %1",(0,Q.z3)(e.peak_bytes))),e.guaranteed_memory_bytes>0&&i.push(t.__("%1 guaranteed",(0,Q.z3)(e.guaranteed_memory_bytes)));let a=e.devices.reduce((e,{compute:t,busy_seconds:n})=>e+(t?.own_seconds??n),0);for(let{reason:n,bytes:s}of(a>0&&i.push(t.__("GPU time %1",(0,Q.Xo)(a))),e.context_bytes>0&&i.push(t.__("GPU contexts, counted in its memory limit: %1",(0,Q.z3)(e.context_bytes))),e.residency?.unswappable??[]))i.push(t.__("stays on the GPU when swapped out: %1 (%2)",(0,Q.z3)(s),n));return e.host_memory&&e.host_memory.used_bytes>0&&i.push((n=e.host_memory,s=t,null===n.limit_bytes?s.__("host memory locked: %1",(0,Q.z3)(n.used_bytes)):s.__("host memory locked: %1 of %2",...(0,Q.l1)(n.used_bytes,n.limit_bytes)))),i}(e,s),...sr(e).flatMap(({compute:e})=>{var t,n;let i=[];return null!==e.slowdown&&i.push(s.__("slowdown %1",(t=e.slowdown,`${t.toFixed(2)}\xd7`))),e.throttled_seconds>0&&i.push(s.__("throttled %1",(0,Q.Xo)(e.throttled_seconds))),null!==e.max_delay_seconds&&e.max_delay_seconds>0&&i.push(s.__("delays normal-priority work by %1 at most",(n=e.max_delay_seconds)<1?`${(1e3*n).toFixed(1)} ms`:`${n.toFixed(1)} s`)),i})]}))}function sE({kernel:e,tools:t,isMine:n,folder:s,shortId:i}){let a=ek(e),r=null===s?a:t.trans.__("%1 in %2",a,s),o=null===i?r:t.trans.__("%1, kernel %2",r,i),l=[e.label,e.name,e.id].filter(Boolean).join("\n");return n&&t.commands.isEnabled(S.Aq.open,{kernelId:e.id})?F.createElement("button",{type:"button",className:"aliquot-Item-title aliquot-Item-link",title:l,"aria-label":t.trans.__("Open %1",e.label),onClick:()=>void t.commands.execute(S.Aq.open,{kernelId:e.id})},o):F.createElement("span",{className:"aliquot-Item-title",title:l},o)}function sS({kernel:e,trans:t}){let n=eg(e);return"own"===n?null:F.createElement("p",{className:"aliquot-Item-line aliquot-Shared-whose"},t.__("of %1",e.owner)," ",F.createElement("span",{className:"aliquot-Shared-access"},eR(n,t)))}function sj({kernel:e,trans:t}){let n=sh(e),s=t=>(0,Q.vr)(t,e.memory_limit_bytes),i=[...n.burstable>0?[t.__("%1 burstable",s(n.burstable))]:[],...n.swapped>0?[t.__("%1 swapped",s(n.swapped))]:[]],a=e.memory_limit_bytes>0&&e.used_bytes>=.95*e.memory_limit_bytes;return F.createElement(si,{label:t.__("Memory of %1",ek(e)),text:[sN(e,t),...i].join(", "),value:e.used_bytes,whole:e.memory_limit_bytes,parts:[{kind:a?"tight":"mine",amount:n.resident},{kind:"mine-burstable",amount:n.burstable},{kind:"mine-swapped",amount:n.swapped}]})}function sN(e,t){return t.__("%1 of %2 used",...(0,Q.l1)(e.used_bytes,e.memory_limit_bytes))}function sC({kernel:e,trans:t}){return e.devices.length<2?null:F.createElement(ea,{said:e.devices.map(e=>{var n,s;let i;return n=e,s=t,i=(0,Q.l1)(n.used_bytes,n.memory_limit_bytes),s.__("GPU %1: %2 of %3 used",String(n.index),...i)})})}function sA({kernel:e,trans:t}){let n=e.residency?.moving;if(!n||0===n.total_bytes)return null;let s=(0,Q.l1)(n.done_bytes,n.total_bytes),i="restoring"===e.state?t.__("restoring: %1 of %2",...s):t.__("swapping out: %1 of %2",...s);return F.createElement("div",{className:"aliquot-Move"},F.createElement("progress",{max:n.total_bytes,value:n.done_bytes,"aria-label":i}),F.createElement("span",null,i))}class sz extends tI.Widget{constructor(e){super(),this._options=e,this._sizes=new ResizeObserver(()=>this._place()),this._contents=new MutationObserver(()=>this._keepFocus()),this.addClass("aliquot-Popover"),this.addClass("jp-ThemedContainer"),this.node.setAttribute("role","dialog"),this.node.setAttribute("aria-label",e.label),this.node.tabIndex=-1,(this.layout=new tI.PanelLayout).addWidget(e.body)}open(){tI.Widget.attach(this,document.body),Promise.resolve(this._options.ready()).then(()=>{this.isAttached&&(this._place(),this.node.focus({preventScroll:!0}))})}close(){let e=this.node.contains(document.activeElement);super.close(),e&&this._options.anchor().focus()}handleEvent(e){"keydown"===e.type?this._onKey(e):"resize"===e.type?this._place():this._isOurs(e.target)||this.close()}onAfterAttach(e){super.onAfterAttach(e),this.node.addEventListener("keydown",this),document.addEventListener("pointerdown",this,!0),document.addEventListener("focusin",this,!0),window.addEventListener("resize",this),this._sizes.observe(this.node),this._contents.observe(this.node,{childList:!0,subtree:!0})}onBeforeDetach(e){this._sizes.disconnect(),this._contents.disconnect(),this.node.removeEventListener("keydown",this),document.removeEventListener("pointerdown",this,!0),document.removeEventListener("focusin",this,!0),window.removeEventListener("resize",this),super.onBeforeDetach(e)}onCloseRequest(e){super.onCloseRequest(e),this.dispose()}_onKey(e){"Escape"===e.key?(e.stopPropagation(),this.close()):"Tab"===e.key&&this._leaves(e.shiftKey)&&(e.preventDefault(),this.close())}_leaves(e){let t=Array.from(this.node.querySelectorAll('a[href], button:not([disabled]), input:not([disabled]), select:not([disabled]), summary, jp-button, [tabindex="0"]')).filter(e=>null!==e.offsetParent),n=e?t[0]:t[t.length-1],s=document.activeElement;return void 0===n||s===n||n.contains(s)||e&&s===this.node}_isOurs(e){let t=e instanceof Element?e:null;return null===t||this.node.contains(t)||this._options.anchor().contains(t)||!!t.closest(".jp-Dialog")}_place(){let e=this._options.anchor().getBoundingClientRect(),{offsetWidth:t,offsetHeight:n}=this.node,s=window.innerHeight-e.bottom,i=s>=n+8||s>=e.top?e.bottom+4:e.top-4-n,a=Math.min(e.left,window.innerWidth-4-t);this.node.style.top=`${Math.max(4,Math.min(i,window.innerHeight-4-n))}px`,this.node.style.left=`${Math.max(4,a)}px`}_keepFocus(){document.activeElement===document.body&&this.isAttached&&this.node.focus({preventScroll:!0})}}class sM{constructor(e){this._options=e,this._popover=null,this._item=null}press(e){let{attached:t}=e,n=this._item===e;this._popover?.close(),n||null===t||(null===t.kernel?nV(this._options.dialogs,t.session):this._open(e,t,ek(t.kernel)))}_open(e,t,n){let{model:s,trans:i}=this._options,a=j.ReactWidget.create(F.createElement(sP,{...this._options,attached:t,close:()=>r.close()})),r=new sz({body:a,label:i.__("GPU of %1",n),anchor:()=>e.button,ready:()=>a.renderPromise}),o=s.watch();r.disposed.connect(()=>{o.dispose(),this._popover=this._item=null,e.isDisposed||(e.isOpen=!1)}),e.disposed.connect(r.close,r),this._popover=r,this._item=e,e.isOpen=!0,r.open()}}function sP(e){return F.createElement(j.UseSignal,{signal:e.model.changed,initialArgs:e.model.state},()=>F.createElement(sI,{...e}))}function sI({attached:e,model:t,client:n,commands:s,trans:i,notebooks:a,close:r}){let{kernel:o}=e,{status:l,problem:u}=t.state;if(!o||!l)return F.createElement("p",{className:"aliquot-Popover-line"},i.__("The kernel has no GPU any more."));let d=tS(o,i),c=o.termination?.message??o.reason,{session:h}=e,m=a?.find(e=>e.sessionContext===h)??null;return F.createElement(F.Fragment,null,F.createElement("div",{className:"aliquot-Popover-head"},F.createElement("span",{className:"aliquot-Popover-size"},tB(o.gpus,i)),F.createElement("span",{className:"aliquot-Popover-state","data-state":o.state},tO(o,i))),u&&F.createElement("p",{className:"aliquot-Popover-line"},i.__("The server does not answer: these figures are old.")),F.createElement(sU,{kernel:o,trans:i}),d&&"asleep"!==d.kind&&F.createElement(sG,{wait:d,trans:i}),c&&!(d?.why&&c.includes(d.why))&&F.createElement("p",{className:"aliquot-Popover-line"},c),F.createElement(t2,{kernel:o,status:l,session:h,notebook:m,client:n,commands:s,trans:i}),F.createElement(st,{kernel:o,status:l,model:t,client:n,commands:s,trans:i,withoutOpen:!0}),s.hasCommand(S.qs.show)&&F.createElement("button",{type:"button",className:"aliquot-Popover-link",onClick:()=>{r(),s.execute(S.qs.show)}},i.__("Show all GPU kernels")))}function sU({kernel:e,trans:t}){if(!["on_gpu","swapped_out","restoring","checkpointed"].includes(e.state))return null;let[n,s]=(0,Q.l1)(e.used_bytes,e.memory_limit_bytes),i=t.__("%1 of %2 used, peak %3",n,s,(0,Q.vr)(e.peak_bytes,e.memory_limit_bytes));return F.createElement(F.Fragment,null,F.createElement(sj,{kernel:e,trans:t}),F.createElement("p",{className:"aliquot-Popover-line"},i),F.createElement(su,{kernel:e,trans:t}),F.createElement(ea,{said:sg(e,t)}))}function sG({wait:e,trans:t}){return F.createElement(F.Fragment,null,F.createElement("p",{className:"aliquot-Popover-line"},e.text),e.why&&F.createElement("p",{className:"aliquot-Popover-line aliquot-mod-quiet"},e.why),e.progress&&F.createElement(si,{label:t.__("Copied"),text:e.text,value:e.progress.done,whole:e.progress.total,parts:[{kind:"used",amount:e.progress.done}]}))}let sD="aliquotKernel",sT=(e,{model:t,client:n},s,i,a,r)=>{let o=(r??E.nullTranslator).load(S.$N),l=new sM({model:t,client:n,commands:e.commands,trans:o,dialogs:i,notebooks:a}),u=e=>l.press(e),d=({sessionContext:e})=>{let n=new tE(t,e),s=new n6({model:t,trans:o,place:"toolbar",attached:n,press:u});return s.disposed.connect(()=>n.dispose()),s};s.addFactory("Notebook",sD,d),s.addFactory("ConsolePanel",sD,d)};class s${constructor(){this._last=new Map}hear(e,t,n){let{ename:s}=t.content,{msg_type:i}=t.parent_header,a="error"===t.header.msg_type&&"KernelNotResponding"===s,r="string"==typeof i&&i.startsWith("comm_");return!(!a||!r||n-(this._last.get(e)??-1/0)<6e4)&&(this._last.set(e,n),!0)}}function sB(e,t){e.postponeCulling(t).catch(sO)}function sO(e){G.Notification.error(e instanceof Error?e.message:String(e),{autoClose:!1})}class sR{constructor(e){this._options=e,this.isEnabled=!1,this._served=new Map,this._standing=new Map,this._shares=new Map,this._reclaimed=new Map;let{model:t}=e;t.changed.connect(()=>this._look()),t.happened.connect((e,t)=>this._hear(t))}see(){for(let[e,t]of[...this._served])this._options.isShown(t)&&(G.Notification.dismiss(e),this._served.delete(e))}_look(){let{model:e,reader:t,isShown:n}=this._options,{status:s}=e.state;if(null===s||!this.isEnabled)return;let i=t.read(s,new Date).filter(e=>"served"!==e.kind||!n(e.kernel));for(let e of new Set(i.map(e=>e.kind))){let t=i.filter(t=>t.kind===e);t.length>3?this._tellOfMany(e,t):t.forEach(e=>this._tell(e,s))}this._takeBack(t.standing(s))}_tell(e,t){let{trans:n,model:s}=this._options,i=ek(e.kernel);if("soon"===e.kind){let t=(0,Q.fU)(e.soon.at,new Date),a={label:n.__("Keep Running"),displayType:"accent",callback:()=>sB(s,e.kernel.id)},r=n.__("%1 will be ended at %2: %3",i,t,e.soon.message);this._warn(r,e.soon.can_postpone?[a]:[],[e])}else if("restarted"===e.kind){let t=n.__("%1 restarted; its variables were lost: %2",i,e.termination.message);G.Notification.warning(t,{autoClose:!1})}else if("served"===e.kind){let t=n.__("%1 has its GPU now.",i),s={autoClose:2e4,actions:this._toNotebook(e.kernel)};this._served.set(G.Notification.success(t,s),e.kernel)}else if("resized"===e.kind){let t=n.__("%1 has %2 now.",i,sf(e.kernel,n));G.Notification.success(t,{autoClose:2e4,actions:this._toNotebook(e.kernel)})}else if("shared"===e.kind)this._tellOfShare(e.kernel,this._ofShare(e.kernel),this._toShared(e.kernel));else if("message"===e.kind)this._tellMessage(e);else if("unshared"===e.kind){let t=n.__("%1 of %2 is not shared with you any more, or has ended.",i,e.kernel.owner);this._tellOfShare(e.kernel,t,[])}else this._tellOfMemory(e,t)}_tellMessage({kernel:e,message:{by:t,text:n}}){let{trans:s}=this._options,i=s.__("%1 about %2: %3",t,ek(e),n),a=s.__("Message of %1",t),r={label:s.__("Read it whole"),callback:()=>void(0,G.showDialog)({title:a,body:i,buttons:[G.Dialog.okButton()]})};G.Notification.info(i,{autoClose:!1,actions:i.length>140?[r]:[]})}async _tellOfMemory(e,t){let{text:n,actions:s}=await this._options.describe(e,t);"ended"===e.kind?G.Notification.warning(n,{autoClose:!1,actions:[...s,this._toPanel()]}):this._warn(n,s,[e])}_warn(e,t,n){let s=G.Notification.warning(e,{autoClose:!1,actions:[...t]});this._standing.set(s,n.map(e=>e.key))}_tellOfMany(e,t){let n=this._ofMany(e,String(t.length));if("soon"===e||"short"===e)this._warn(n,[this._toPanel()],t);else{let t="served"===e||"resized"===e,s={autoClose:!!t&&2e4,actions:[this._toPanel()]},i=t?"success":["shared","unshared","message"].includes(e)?"info":"warning";G.Notification.emit(n,i,{...s,actions:[...s.actions]})}}_ofMany(e,t){let{trans:n}=this._options;switch(e){case"ended":return n.__("%1 of your kernels ended.",t);case"restarted":return n.__("%1 of your kernels restarted; their variables were lost.",t);case"soon":return n.__("%1 of your kernels will be ended soon.",t);case"short":return n.__("%1 of your kernels ran out of their GPU memory.",t);case"message":return n.__("Administrators wrote to you about %1 of your kernels.",t);case"shared":return n.__("%1 kernels are shared with you.",t);case"unshared":return n.__("%1 kernels are not shared with you any more, or have ended.",t);case"resized":return n.__("%1 of your kernels have their new size now.",t);case"served":return n.__("%1 of your kernels have their GPU now.",t)}}_hear(e){let{model:t,trans:n}=this._options,s=t.kernel(e.kernel_id),i=Date.now(),a=i-(this._reclaimed.get(e.kernel_id)??-1/0)<6e5,r=e.owner===t.state.status?.user.name,o="evicted"===e.kind?e.evicted:null;if(!this.isEnabled||!o||o.is_quiet||null===s||!r||a)return;this._reclaimed.set(e.kernel_id,i);let l=e.reason??n.__("another kernel needs it."),u="resized"===o.code?n.__("%1 has another size: %2",ek(s),l):n.__("GPU memory of %1 was taken back: %2",ek(s),l);G.Notification.info(u,{autoClose:1e4,actions:[this._toPanel()]})}_takeBack(e){for(let[t,n]of[...this._standing])n.some(t=>e.has(t))||(G.Notification.dismiss(t),this._standing.delete(t))}_toPanel(){return{label:this._options.trans.__("Show GPU kernels"),callback:()=>this._options.showPanel()}}_tellOfShare({id:e},t,n){G.Notification.dismiss(this._shares.get(e)??"none"),this._shares.set(e,G.Notification.info(t,{autoClose:!1,actions:n}))}_ofShare(e){let{trans:t}=this._options,n=ek(e);return ef(e,"write")?t.__("%1 shares %2 with you: you can run cells in it.",e.owner,n):t.__("%1 shares %2 with you, read-only.",e.owner,n)}_toShared(e){let{trans:t,openNotebookOn:n}=this._options,s={label:t.__("Open a notebook on it"),callback:()=>n(e)};return[...ef(e,"write")?[s]:[],this._toPanel()]}_toNotebook(e){let{trans:t,open:n}=this._options;return n(e)?[{label:t.__("Open its notebook"),callback:()=>n(e)?.()}]:[]}}class sH{constructor(e){this._options=e,this.isEnabled=!1,this._standing=new Map,e.model.changed.connect(()=>this._look())}_look(){let{model:e,told:t}=this._options,{status:n}=e.state;if(null===n||!this.isEnabled)return;let s=n.user.invitations??[],i=s.filter(e=>!t.has(sL(e)));i.length>3?this._show(this._options.trans.__("%1 folders are shared with you.",String(i.length)),i):i.forEach(e=>this._show(this._text(e),[e])),t.add(i.map(sL)),this._takeBack(new Set(s.map(sL)))}_text({owner:e,name:t,access:n}){let{trans:s}=this._options;return"write"===n?s.__("%1 shares the folder %2 with you, to read and write.",e,t):s.__("%1 shares the folder %2 with you, to read.",e,t)}_show(e,t){let{trans:n,showFolders:s}=this._options,i=[{label:n.__("Show shared folders"),callback:()=>s()}];this._standing.set(G.Notification.info(e,{autoClose:!1,actions:i}),t.map(sL))}_takeBack(e){for(let[t,n]of[...this._standing])n.some(t=>e.has(t))||(G.Notification.dismiss(t),this._standing.delete(t))}}function sL({id:e,since:t}){return`${e} ${t}`}function sF(e){return(e.required_bytes??0)>e.memory_limit_bytes}function sW(e,t,n){let s=new Set(e.devices.map(e=>e.uuid)),i=t.devices.filter(e=>!e.lost&&(0===s.size||s.has(e.uuid))),a=n.device_memory_bytes??0,r=Math.min(...i.map(e=>e.memory_bytes));return Number.isFinite(r)&&r>0?r:a>0?a:null}function sK(e,t,n){let{kernel:s}=e,i="ended"===e.kind?function(e,t){let{kernel:n,termination:s}=e,i=t.__("%1: %2.",ek(n),s.message.replace(/\.$/,""));return sF(n)?t.__("%1 It needed at least %2.",i,(0,Q.z3)(n.required_bytes??0)):i}(e,n):function(e,t,n){let[s,i]=[(0,Q.z3)(e.memory_limit_bytes),(0,Q.z3)(t)];return n.__("%1 ran out of its GPU memory: it has %2, and needed at least %3.",ek(e),s,i)}(s,e.needed,n);if(null===t)return i;let{message:a}=t.dryRun,r=sV(t,n),o=n.__("%1 With %2: %3",i,r,a);if(o.length<=140)return o;let l=e=>n.__("%1 ran out of GPU memory. With %2: %3",e,r,a),u=ek(s),d=Math.max(12,140-l("").length);return[l(u),l(function(e,t){if(e.length<=t)return e;let n=Math.floor((t-1)/2);return`${e.slice(0,t-1-n)}…${e.slice(e.length-n)}`}(u,d))].find(e=>e.length<=140)??i}function sV({request:e},t){let n=(0,Q.T1)(e.gpus),s=e.gpus>1?t.__("%1 GPUs",n):t.__("%1 GPU",n);return"number"==typeof e.memory?`${s} \xb7 ${(0,Q.z3)(e.memory)}`:s}let sX=(e,{model:t,client:n},s,i,a)=>{var r,o,l;let u,d,c=(i??E.nullTranslator).load(S.$N),h=e=>{let{status:n}=t.state;return n&&ev(e,n)},m=new sR({model:t,trans:c,reader:new e8(tg(`${S.s_}:told:${e.serviceManager.serverSettings.baseUrl}`)),showPanel:()=>void e.commands.execute(S.qs.show),open:t=>{let n=h(t);return null===n?null:()=>void e.commands.execute("docmanager:open",{path:n})},openNotebookOn:({id:t})=>{e.commands.execute(S.qs.newNotebook,{kernelId:t}).catch(sO)},isShown:t=>{let n=e.shell.currentWidget;return!document.hidden&&null!==n&&null!==eD([n],t.label)},describe:(s,i)=>(async function(e,t,n){let s,{kernel:i}=e,{trans:a}=n;if("ended"===e.kind&&(!("memory_limit"===(s=i.termination?.code)||"oom"===s||void 0!==s&&sF(i))||null===n.restartAs))return{text:sK(e,null,a),actions:[]};let r=await (async function(e,t,n){let s=function(e,t,n){let s=Math.max(e.required_bytes??0,e.memory_limit_bytes+1),{priority:i}=e;if(null!==e.requested_memory_bytes){var a;let r,o=0x40000000*Math.ceil(s/0x40000000),l=(r=sW(a=e,t,n))&&r*Math.max(1,Math.ceil(a.gpus));return null!==l&&o>l?null:{gpus:e.gpus,memory:o,priority:i}}let r=sW(e,t,n);if(null===r)return null;let o="ended"===e.state?n.largest_gpus:Math.max(1,e.devices.length),l=Math.max(Math.ceil(s/r/n.step-1e-6)*n.step,e.gpus+n.step),u=n.sizes.filter(e=>null===e.requested_memory_bytes&&e.gpus>=l-1e-6).map(e=>e.gpus).filter(e=>e<=Math.min(o,2*l)),d=Math.round((u.length>0?Math.min(...u):l)*100)/100;return d<=o?{gpus:d,memory:null,priority:i}:null}(e,t,await n.sizes());if(null===s)return null;let i="ended"===e.state;return{request:s,dryRun:await n.dryRun(s,i?void 0:e.id)}})(i,t,n.client).catch(()=>null),o=sK(e,r,a);return null===r?{text:o,actions:[]}:{text:o,actions:"never"===r.dryRun.outcome?[]:[function(e,t,n){let{kernel:s}=e,{message:i}=t.dryRun,a=sV(t,n.trans);if("ended"===e.kind)return{label:n.trans.__("Restart at %1",a),caption:i,displayType:"accent",callback:()=>void(async function(e,{dryRun:t},{restartAs:n,model:s}){let i=e.name.replace(/\.gpu-.*$/i,"");await n?.(`${i}.${t.suffix}`),await s.refresh()})(s,t,n).catch(sO)};let r=n.trans.__("Without a restart: %1",i);return{label:"queued"===t.dryRun.outcome?n.trans.__("Queue for %1",a):n.trans.__("Change to %1",a),caption:r,displayType:"accent",callback:()=>void async function(e,t,{client:n,model:s,trans:i}){let a=ek(e);try{let s=await n.resize(e.id,t.request),r=sV(t,i);null===s.resize?G.Notification.success(i.__("%1 has %2 now.",a,r),{autoClose:5e3}):G.Notification.info(i.__("%1 is queued for %2: %3",a,r,s.resize.reason),{autoClose:1e4})}catch(e){sO(e)}await s.refresh()}(s,t,n)}}(e,r,n)]}})(s,i,{model:t,client:n,trans:c,restartAs:null===h(s.kernel)?null:t=>(async function(e,t,n){let s=eD(e.shell.widgets("main"),t);s&&await s.changeKernel({name:n}),await e.commands.execute("docmanager:open",s?{path:t}:{path:t,kernel:{name:n}})})(e,s.kernel.label,t)})}),p=new sH({model:t,trans:c,told:new e6(tg(`${S.s_}:invitations:${e.serviceManager.serverSettings.baseUrl}`)),showFolders:()=>void e.commands.execute(S.qs.sharedFolders)});e.shell.currentChanged?.connect(()=>m.see()),a&&(r=a,o=m,l=c,u=new s$,d=(e,{sessionContext:t})=>{t.iopubMessage.connect((e,t)=>{var n;let s=o.isEnabled?e.session?.kernel?.id:void 0;void 0!==s&&u.hear(s,t,Date.now())&&G.Notification.warning((n=e.name,l.__("%1: what a widget sent was refused, for the kernel does not read. Repeat it later, or interrupt the kernel.",n)),{autoClose:!1})})},r.forEach(e=>d(r,e)),r.widgetAdded.connect(d)),e.restored.then(()=>(async function(e,t,n){let s=null,i=e=>{n.forEach(t=>{t.isEnabled=e}),e!==(null!==s)&&(s?.dispose(),s=e?t.waitForNews():null)};try{let n=await e?.load(S.s_),s=()=>{t.intervalSeconds=n?.get("refreshInterval").composite,i(n?.get("notifications").composite)};if(n){s(),n.changed.connect(s);return}}catch(e){console.warn("aliquot: the settings could not be read, the defaults are in force.",e)}i(!0)})(s,t,[m,p]))};var sJ=n("webpack/sharing/consume/default/@lumino/messaging");class sQ{constructor(){this._ring=Array(120).fill(null),this._times=Array(120).fill(-1),this._last=-1,this._count=0,this._value=null}add(e,t){let n=Math.floor(e/5);if(n<this._last)return;for(let e=Math.max(this._last+1,n-120);e<n;e++)this._set(e,this._value);let s=n>this._last;this._count=s?1:this._count+1;let i=s?null:this._ring[n%120]??null,a=null===i||null===t?t:i+(t-i)/this._count;this._set(n,a),this._last=n,this._value=t}pause(){this._value=null}seed(e){var t,n;for(let{at:s,seconds:i,value:a}of e){let e=Math.floor(s/5),r=Math.ceil((s+i)/5);for(let s=Math.max(e,this._last-120+1);s<Math.min(r,this._last);s++)null!==a&&this._times[s%120]!==s?this._set(s,a):null!==a&&((t=this._ring)[n=s%120]??(t[n]=a))}}get last(){return this._last}get values(){return Array.from({length:120},(e,t)=>{let n=this._last-120+1+t;return n>=0&&this._times[n%120]===n?this._ring[n%120]??null:null})}_set(e,t){this._ring[e%120]=t,this._times[e%120]=e}}class sY{constructor(){this._seeds=0,this._seeded=new H.Signal(this),this._records=new Map}note(e,t){let{status:n,problem:s}=e;if(s||!n||"unavailable"===n.node.agent)return void this.pause();for(let e of[...this._records.keys()])n.devices.some(t=>t.uuid===e)||this._records.delete(e);for(let e of n.devices){let n=this.of(e.uuid);n.utilization.add(t,e.lost?null:e.utilization_percent),n.memory.add(t,e.lost?null:e.used_bytes)}}pause(){for(let e of this._records.values())e.utilization.pause(),e.memory.pause()}seed(e){this._seeds+=1;let t=Date.parse(e.start)/1e3,n=n=>n.map((n,s)=>({at:t+s*e.step_seconds,seconds:e.step_seconds,value:n}));for(let t of e.devices){let e=this._records.get(t.uuid);e?.utilization.seed(n(t.figures.utilization_percent.mean)),e?.memory.seed(n(t.figures.used_bytes.mean))}this._seeded.emit()}get seeded(){return this._seeded}of(e){let t=this._records.get(e)??{utilization:new sQ,memory:new sQ};return this._records.set(e,t),t}beat(e){return this.of(e).memory.last+this._seeds}}function sZ({device:e,parts:t,trans:n}){return F.createElement(si,{label:n.__("Memory of GPU %1",String(e.index)),text:[s1(e,n),...s2(e,t,n)].join("; "),value:e.used_bytes,whole:e.memory_bytes,parts:[{kind:"mine",amount:t.mine},{kind:"mine-burstable",amount:t.mineBurstable},{kind:"mine-held",amount:t.mineHeld},{kind:"others",amount:t.others},{kind:"others-burstable",amount:t.othersBurstable},{kind:"others-held",amount:t.othersHeld}]})}function s0({device:e,parts:t,trans:n}){let s=t.mineSwapped+t.othersSwapped;return 0===s?null:F.createElement(si,{label:n.__("In host memory of kernels of GPU %1",String(e.index)),text:s4(e,t,n),value:s,whole:Math.max(e.memory_bytes,s),parts:[{kind:"mine-swapped",amount:t.mineSwapped},{kind:"others-swapped",amount:t.othersSwapped}],isThin:!0})}function s1(e,t){return t.__("%1 of %2 used",...(0,Q.l1)(e.used_bytes,e.memory_bytes))}function s2(e,t,n){let s=t=>(0,Q.vr)(t,e.memory_bytes),i=t.mineBurstable+t.othersBurstable,a=[n.__("%1 by your kernels",s(t.mine+t.mineBurstable))];if(t.others+t.othersBurstable>0&&a.push(n.__("%1 by others",s(t.others+t.othersBurstable))),i>0&&a.push(n.__("%1 of it burstable",s(i))),e.reserved_bytes>0){let t=(0,Q.T1)(e.reserved_gpus);a.push(e.overcommit>1?n.__("%1 reserved (%2 of up to %3 GPUs)",s(e.reserved_bytes),t,(0,Q.T1)(e.overcommit)):n.__("%1 reserved (%2 of 1 GPU)",s(e.reserved_bytes),t))}return a.push(t.free>0?n.__("%1 free",s(t.free)):n.__("no memory free")),a}function s4(e,t,n){let s=t=>(0,Q.vr)(t,e.memory_bytes),i=n.__("%1 swapped out to the host",s(t.mineSwapped+t.othersSwapped));return t.othersSwapped>0&&t.mineSwapped>0?n.__("%1, %2 of it yours",i,s(t.mineSwapped)):i}function s3({label:e,now:t,values:n,whole:s}){let i,a,r,o,l,u,{line:d,area:c,width:h}=(i=n.findIndex(e=>null!==e),r=Math.max(1,(a=n.slice(Math.min(i<0?n.length:i,Math.max(0,n.length-12)))).length-1),o="",l="",u=null,a.forEach((e,t)=>{if(null!==e&&s>0){let n=Math.round(180*(1-Math.min(Math.max(e/s,0),1)))/10;o+=`${null===u?"M":"L"}${t} ${n}`,l+=null===u?`M${t} 18L${t} ${n}`:`L${t} ${n}`,u??(u=t)}let n=t===a.length-1||null===a[t+1];null!==u&&n&&(l+=`L${t} 18Z`,u=null)}),{line:o,area:l,width:r});return F.createElement("div",{className:"aliquot-Sparkline",title:e},F.createElement("span",{className:"aliquot-Sparkline-now"},t),F.createElement("svg",{className:"aliquot-Sparkline-chart",role:"img","aria-label":e,viewBox:`0 -1 ${h} 20`,preserveAspectRatio:"none"},F.createElement("path",{className:"aliquot-Sparkline-area",d:c}),F.createElement("path",{className:"aliquot-Sparkline-line",d:d})))}function s6({device:e,parts:t,history:n,trans:s,isOpened:i}){var a,r;let o,l=t.mineSwapped+t.othersSwapped;return F.createElement(F.Fragment,null,!i&&F.createElement(sZ,{device:e,parts:t,trans:s}),F.createElement(s0,{device:e,parts:t,trans:s}),F.createElement("p",{className:"aliquot-Item-line"},s1(e,s)),F.createElement(ea,{said:s2(e,t,s)}),l>0&&F.createElement(ea,{said:[s4(e,t,s)]}),F.createElement(s8,{device:e,history:n,trans:s}),F.createElement(ea,{said:(a=e,r=s,o=[],null!==a.temperature_celsius&&o.push(r.__("%1 \xb0C",String(Math.round(a.temperature_celsius)))),null!==a.power_watts&&o.push(r.__("%1 W",String(Math.round(a.power_watts)))),o).concat(function(e,t){if(!e?.contended)return[];let n="time slices"===e.sharing?t.__("kernels share the GPU in time slices"):t.__("kernels run at the same time");return["measured"===e.controller?n:`${n} (${e.controller})`]}(e.compute_control,s))}))}function s8({device:e,history:t,trans:n}){let s=t.of(e.uuid),i=e.utilization_percent,a=100*e.used_bytes/Math.max(1,e.memory_bytes);return F.createElement("div",{className:"aliquot-Sparklines"},null!==i&&F.createElement(s3,{label:s5(n.__("Utilization of GPU %1",String(e.index)),s.utilization.values,e=>n.__("%1%",String(Math.round(e))),n),now:n.__("%1% busy",String(Math.round(i))),values:s.utilization.values,whole:100}),F.createElement(s3,{label:s5(n.__("Memory in use on GPU %1",String(e.index)),s.memory.values,Q.z3,n),now:n.__("%1% full",String(Math.round(a))),values:s.memory.values,whole:e.memory_bytes}))}function s5(e,t,n,s){let i,a=(i=t.filter(e=>null!==e)).length>0?{least:Math.min(...i),most:Math.max(...i)}:null,r=String(10);return null===a?s.__("%1: nothing seen yet",e):s.__("%1, last %2 minutes: between %3 and %4",e,r,n(a.least),n(a.most))}function s7({parts:e,trans:t}){let n=t=>e.some(e=>e[t]>0),s=[["mine",!0,t.__("yours"),t.__("In use by your kernels")],["others",n("others")||n("othersBurstable"),t.__("others"),t.__("In use by other users")],[n("mineBurstable")?"mine-burstable":"others-burstable",n("mineBurstable")||n("othersBurstable"),t.__("burstable"),t.__("Beyond guaranteed memory: evicted when another kernel needs it")],[n("mineHeld")?"mine-held":"others-held",n("mineHeld")||n("othersHeld"),t.__("guaranteed, unused"),t.__("Guaranteed to kernels that do not use it now")],[n("mineSwapped")?"mine-swapped":"others-swapped",n("mineSwapped")||n("othersSwapped"),t.__("swapped out"),t.__("In host memory: the next use restores it")],["free",!0,t.__("free"),t.__("Not guaranteed to any kernel")]];return F.createElement("ul",{className:"aliquot-Legend","aria-label":t.__("Legend of the bars")},s.map(([e,t,n,s])=>t&&F.createElement("li",{key:e,title:s},F.createElement("span",{className:`aliquot-Legend-swatch aliquot-Bar-part aliquot-mod-${e}`,"aria-hidden":"true"}),n,F.createElement("span",{className:"jp-sr-only"},": ",s))))}function s9({status:e,history:t,trans:n}){let s=function(e,t){let n=new Map;for(let s of e.filter(e=>e.owner===t))for(let e of s.devices){let t=n.get(e.uuid)??sc,i=e.used_bytes*function(e){let t=sm(e.residency?.swapped_bytes??0,e.used_bytes);return e.used_bytes>0?1-t/e.used_bytes:1}(s);n.set(e.uuid,{context:t.context+e.context_bytes,burstable:t.burstable+Math.max(0,i-e.guaranteed_memory_bytes),held:t.held+Math.max(0,e.guaranteed_memory_bytes-i)})}return n}(e.kernels,e.user.name),i=e.devices.map(e=>({device:e,parts:function(e,t=sc){let n=Math.max(e.memory_bytes,0),s=sm(e.used_bytes,n),i=e.mine_swapped_bytes??0,a=sm(e.mine_bytes-i+t.context,s),r=s-a,o=sm(t.burstable,a),l=sm((e.burstable_bytes??0)-t.burstable,r),u=Math.max(0,e.reserved_bytes-(e.mine_reserved_bytes??0)),d=sm(t.held,n-s),c=sm(u-(r-l),n-s-d);return{mine:a-o,mineBurstable:o,mineHeld:d,others:r-l,othersBurstable:l,othersHeld:c,free:n-s-d-c,mineSwapped:i,othersSwapped:Math.max(0,(e.swapped_bytes??0)-i)}}(e,s.get(e.uuid))}));if(0===i.length)return F.createElement("p",{className:"aliquot-Empty"},n.__("No GPU to show."));let a=i.length>=5;return F.createElement(F.Fragment,null,F.createElement(s7,{parts:i.map(e=>e.parts),trans:n}),F.createElement("ul",{className:"aliquot-List","aria-label":n.__("Devices")},i.map(e=>{let{uuid:s}=e.device;return a?F.createElement(is,{key:s,view:e,history:t,trans:n}):F.createElement(it,{key:s,view:e,history:t,trans:n,beat:t.beat(s)})})))}function ie(e,t){return e.view.device===t.view.device&&e.beat===t.beat&&JSON.stringify(e.view.parts)===JSON.stringify(t.view.parts)}let it=F.memo(function({view:e,history:t,trans:n}){let{device:s}=e;return F.createElement("li",{className:"aliquot-Item","data-lost":s.lost||void 0},F.createElement("div",{className:"aliquot-Item-head"},F.createElement("span",{className:"aliquot-Item-badge"},n.__("GPU %1",String(s.index))),F.createElement("span",{className:"aliquot-Item-title",title:`${s.name}
${s.uuid}`},s.name),s.lost&&F.createElement("span",{className:"aliquot-Item-alarm"},n.__("lost"))),s.lost?F.createElement(ii,{trans:n}):F.createElement(s6,{...e,history:t,trans:n}))},ie),is=F.memo(function({view:e,history:t,trans:n}){let[s,i]=F.useState(!1),{device:a,parts:r}=e,o=a.lost?null:a.utilization_percent;return F.createElement("li",{className:"aliquot-Item aliquot-mod-compact","data-lost":a.lost||void 0},F.createElement("details",{open:s,onToggle:e=>i(e.currentTarget.open)},F.createElement("summary",{className:"aliquot-Compact"},F.createElement("span",{className:"aliquot-Item-badge"},n.__("GPU %1",String(a.index))),a.lost?F.createElement("span",{className:"aliquot-Item-alarm"},n.__("lost")):F.createElement(sZ,{device:a,parts:r,trans:n}),F.createElement("span",{className:"aliquot-Compact-figure",title:n.__("Utilization")},null!==o&&n.__("%1%",String(Math.round(o))))),s&&F.createElement(F.Fragment,null,F.createElement("p",{className:"aliquot-Item-line aliquot-mod-quiet"},a.name),a.lost?F.createElement(ii,{trans:n}):F.createElement(s6,{...e,history:t,trans:n,isOpened:!0}))))},ie);function ii({trans:e}){return F.createElement("p",{className:"aliquot-Item-line"},e.__("The driver no longer answers for this device. Kernels on it must be restarted."))}function ia({kernels:e,status:t,trans:n,dismiss:s}){return 0===e.length?null:F.createElement("ul",{className:"aliquot-List aliquot-mod-ended","aria-label":n.__("Ended kernels")},e.map(e=>F.createElement("li",{className:"aliquot-Item","data-state":"ended",key:e.id},F.createElement("div",{className:"aliquot-Item-head"},F.createElement("span",{className:"aliquot-Item-title",title:[e.label,e.name,e.id].join("\n")},ek(e)),F.createElement("span",{className:"aliquot-Item-size"},(0,Q.fU)(e.termination?.at??"",new Date)),F.createElement("button",{type:"button",className:"aliquot-Item-dismiss",title:n.__("Dismiss"),"aria-label":n.__("Dismiss %1",ek(e)),onClick:()=>s(e)},F.createElement(j.closeIcon.react,{tag:"span",width:"12px"}))),(ey(t)||ew(e))&&F.createElement("p",{className:"aliquot-Item-line aliquot-mod-quiet"},e.owner),F.createElement("p",{className:"aliquot-Item-line"},e.termination?.message))))}function ir({status:e,kernels:t,trans:n}){var s,i,a;let{length:r}=e.queue,o=(s=e.user.name,t.filter(e=>e.owner===s).flatMap(e=>[e.queue_position,e.resize?.position??null]).filter(e=>null!==e).sort((e,t)=>e-t));if(0===r&&0===o.length)return null;let l=n._n("%1 kernel is queued.","%1 kernels are queued.",Math.max(r,o.length));return F.createElement("p",{className:"aliquot-Queue",role:"status"},l," ",o.length>0&&(i=o,a=n,1===i.length&&1===i[0]?a.__("Yours is next."):a.__("Ahead of yours: %1.",i.map(e=>e-1).join(", "))))}function io({limit:e,trans:t}){if(null===e)return null;let n=e.teams??[];return F.createElement(F.Fragment,null,F.createElement(il,{label:t.__("Your GPU limit"),limit:e,trans:t}),n.map(e=>F.createElement(il,{key:e.name,label:t.__("Team %1",e.name),limit:e,trans:t})))}function il({label:e,limit:t,trans:n}){if(null===t.gpus)return null;let s=t.left_gpus??Math.max(0,t.gpus-t.held_gpus),i=[e,(0,Q.T1)(t.held_gpus),(0,Q.T1)(t.gpus),(0,Q.T1)(s)],a=t.queued_gpus>0?n.__("%1: %2 of %3 GPU held, %4 left, %5 waiting",...i,(0,Q.T1)(t.queued_gpus)):n.__("%1: %2 of %3 GPU held, %4 left",...i);return F.createElement("div",{className:"aliquot-Quota"},F.createElement("p",{className:"aliquot-Item-line"},a),F.createElement(si,{label:e,text:a,value:t.held_gpus,whole:t.gpus,parts:[{kind:s>0?"mine":"tight",amount:t.held_gpus}],isThin:!0}))}function iu({kernels:e,trans:t,entry:n}){let s=F.useId();return 0===e.length?null:F.createElement("section",{className:"aliquot-Shared","aria-labelledby":s},F.createElement("h3",{id:s,className:"aliquot-Shared-heading"},t.__("Shared with me")),F.createElement("ul",{className:"aliquot-List","aria-label":t.__("GPU kernels that are shared with me")},e.map(n)))}function id({group:e,trans:t,entry:n}){var s,i;let a,[r,o]=F.useState(e.isMine),l=e.isMine?t.__("%1 (me)",e.owner):e.owner;return F.createElement("details",{className:"aliquot-Group",open:r,onToggle:e=>o(e.currentTarget.open)},F.createElement("summary",{className:"aliquot-Group-head"},F.createElement("span",{className:"aliquot-Group-name"},l),F.createElement("span",{className:"aliquot-Group-sums"},(s=e,a=[(i=t)._n("%1 kernel","%1 kernels",s.kernels.length),i.__("%1 GPU",(0,Q.T1)(s.gpus)),i.__("%1 used",(0,Q.z3)(s.usedBytes))],s.swappedBytes>0&&a.push(i.__("%1 swapped",(0,Q.z3)(s.swappedBytes))),s.waiting>0&&a.push(i.__("%1 waiting",String(s.waiting))),a.join(" \xb7 ")))),r&&F.createElement("ul",{className:"aliquot-List","aria-label":e.isMine?t.__("GPU kernels"):t.__("GPU kernels of %1",e.owner)},e.kernels.map(n)))}function ic({kernels:e,status:t,tools:n}){let s,i,a,{trans:r}=n,{listed:o,shared:l}=((s=e.filter(ew)).sort((e,t)=>e.owner.localeCompare(t.owner)||e.label.localeCompare(t.label)||e.id.localeCompare(t.id)),{listed:e.filter(e=>!ew(e)),shared:s}),u=function(e){let t=new Map;for(let n of e){let e=ek(n);t.set(e,(t.get(e)??new Set).add(n.label))}return new Map(e.filter(e=>(t.get(ek(e))?.size??0)>1).map(({id:e,label:t})=>[e,t.split("/").slice(0,-1).join("/")||"/"]))}(e),d=(i=e=>JSON.stringify([e.owner,ek(e),e.label]),a=new Map,e.forEach(e=>a.set(i(e),(a.get(i(e))??0)+1)),new Map(e.filter(e=>a.get(i(e))>1).map(({id:e})=>[e,e.slice(0,8)]))),c=e=>F.createElement(sx,{key:e.id,kernel:e,tools:n,folder:u.get(e.id)??null,shortId:d.get(e.id)??null,isMine:e.owner===t.user.name,showsDevice:t.devices.length>1});return F.createElement(F.Fragment,null,F.createElement(io,{limit:t.user.gpu_limit??null,trans:r}),F.createElement(ir,{status:t,kernels:e,trans:r}),0===o.length?F.createElement(ih,{trans:r}):ey(t)?(function(e,t){let n=new Map;for(let t of e){let e=n.get(t.owner)??[];n.set(t.owner,e),e.push(t)}return[...n].map(([e,n])=>{var s,i,a;let r;return s=e,i=e===t,a=n,r=e=>a.reduce((t,n)=>t+e(n),0),{owner:s,isMine:i,kernels:a,gpus:r(e=>"queued"===e.state?0:e.gpus),usedBytes:r(e=>e.used_bytes),swappedBytes:r(e=>e.residency?.swapped_bytes??0),waiting:a.filter(e=>"queued"===e.state).length}}).sort((e,t)=>Number(t.isMine)-Number(e.isMine)||e.owner.localeCompare(t.owner))})(o,t.user.name).map(e=>F.createElement(id,{key:e.owner,group:e,trans:r,entry:c})):F.createElement("ul",{className:"aliquot-List","aria-label":r.__("GPU kernels")},o.map(c)),F.createElement(iu,{kernels:l,trans:r,entry:c}))}function ih({trans:e}){return F.createElement("p",{className:"aliquot-Empty"},e.__("No kernel has a GPU. Choose a kernel with a GPU size in the launcher to start one."))}function im({status:e,trans:t}){var n,s;let i,{node:a,user:r}=e,o=[];a.enforcer&&o.push(t.__("memory limits: %1",a.enforcer));let l=e.devices.find(e=>!e.lost&&e.overcommit<=1&&e.overcommit_reason);return l&&o.push(t.__("GPU %1 is not overcommitted: %2",l.index,l.overcommit_reason)),"admin"===r.role&&(o.push(t.__("node %1",a.name)),a.overcommit>1&&o.push(t.__("overcommit: up to %1 times its memory",(0,Q.T1)(a.overcommit))),a.host_copies&&a.host_copies.used_bytes>0&&o.push((n=a.host_copies,s=t,i=null===n.budget_bytes?s.__("host memory for swapped kernels: %1",(0,Q.z3)(n.used_bytes)):s.__("host memory for swapped kernels: %1 of %2",...(0,Q.l1)(n.used_bytes,n.budget_bytes)),n.spilled_bytes>0?s.__("%1, %2 of it in files",i,(0,Q.z3)(n.spilled_bytes)):i))),o.push(...(e.nodes??[]).map(e=>(function(e,t){if("unknown"===e.state)return t.__("node %1: unknown, its agent does not answer",e.name);let n=e.devices.filter(e=>!e.lost),s=n.reduce((e,t)=>e+t.reserved_gpus,0);return t.__("node %1: %2 GPU of %3 reserved",e.name,(0,Q.T1)(s),n.length)})(e,t))),F.createElement("div",{className:"aliquot-Node"},F.createElement(ea,{said:o}))}class ip extends j.SidePanel{constructor(e){super({translator:e.translator}),this._history=new sY,this._wantsSeed=!1,this._fitter=new ResizeObserver(()=>requestAnimationFrame(()=>this._fitSections())),this._isSizedByHand=!1,this._watch=null;let{model:t,client:n,commands:s}=e;this._model=t,this._client=n;let i=e.translator.load(S.$N),a={model:t,client:n,commands:s,trans:i,keep:e=>sB(t,e.id)};this.id=ip.ID,this.addClass("aliquot-Panel"),this.title.icon=C,this.title.caption=i.__("GPU kernels"),this.node.setAttribute("role","region"),this.node.setAttribute("aria-label",i.__("GPU kernels")),this._addNotices(i),this._devices=this._addSection(i.__("Devices"),e=>e.status&&this._renderDevices(e.status,i)),this._addSection(i.__("Kernels"),e=>e.status&&this._renderKernels(e.status,a)),this._addRefreshButton(i),t.changed.connect(this._note,this),this._accordion.handleMoved.connect(()=>{this._isSizedByHand=!0}),this._devices.widgets.forEach(e=>this._fitter.observe(e.node)),this._fitter.observe(this._accordion.node)}dispose(){this._unwatch(),this._model.changed.disconnect(this._note,this),this._fitter.disconnect(),super.dispose()}onAfterShow(e){super.onAfterShow(e),this._startWatching()}onResize(e){super.onResize(e),this._fitSections()}onAfterAttach(e){super.onAfterAttach(e),this.isVisible&&this._startWatching()}onAfterHide(e){super.onAfterHide(e),this._unwatch()}onBeforeDetach(e){this._unwatch(),super.onBeforeDetach(e)}_startWatching(){null===this._watch&&(this._watch=this._model.watch(),this._seed())}_note(e,t){this._history.note(t,Date.now()/1e3),this._wantsSeed&&t.status&&this._seed()}async _seed(){let e=this._model.state.status?.devices??[];if(this._wantsSeed=0===e.length,e.length>0&&e.length<5)try{this._history.seed(await this._client.history("hour",e.map(e=>e.uuid)))}catch{}}_unwatch(){this._history.pause(),this._watch?.dispose(),this._watch=null}get _accordion(){return this.content}_fitSections(){let e=this.isVisible&&this._accordion.widgets.every(e=>e.isVisible);sJ.MessageLoop.sendMessage(this._accordion,tI.Widget.ResizeMessage.UnknownSize);let t=this._accordion.widgets.reduce((e,t)=>e+t.node.clientHeight,0);if(e&&!this._isSizedByHand&&t>0){let e=Math.min(((this._devices.widgets[0]?.node.offsetHeight??0)+1)/t,.5);this._accordion.setRelativeSizes([e,1-e])}}_renderDevices(e,t){return F.createElement(F.Fragment,null,F.createElement(j.UseSignal,{signal:this._history.seeded},()=>F.createElement(s9,{status:e,history:this._history,trans:t})),F.createElement(im,{status:e,trans:t}))}_renderKernels(e,t){var n;let s,{live:i,ended:a}=(n=e.kernels,s=e=>"ended"===e.state&&null!==e.termination,{live:n.filter(e=>!s(e)),ended:n.filter(s)}),{model:r,trans:o}=t,l=a.filter(e=>!r.isDismissed(e));return F.createElement(F.Fragment,null,F.createElement(ic,{kernels:i,status:e,tools:t}),F.createElement(ia,{kernels:l,status:e,trans:o,dismiss:e=>r.dismiss(e)}))}_addRefreshButton(e){this._devices.toolbar.addItem("refresh",new j.ToolbarButton({icon:j.refreshIcon,tooltip:e.__("Refresh"),onClick:()=>void this._model.refresh()}))}_addNotices(e){let t=this._render(t=>F.createElement(sy,{state:t,trans:e}));t.addClass("aliquot-Notices"),this.header.addWidget(t)}_addSection(e,t){let n=new j.PanelWithToolbar;return n.addClass("aliquot-Section"),n.node.tabIndex=0,n.title.label=e,n.addWidget(this._render(t)),this.addWidget(n),n}_render(e){let t=this._model;return j.ReactWidget.create(F.createElement(j.UseSignal,{signal:t.changed,initialArgs:t.state},()=>F.createElement(F.Fragment,null,e(t.state))))}}(ip||(ip={})).ID="aliquot-gpu-kernels";let i_=(e,{model:t,client:n},s,i,a)=>{let r=(a??E.nullTranslator).load(S.$N),o=new ip({model:t,client:n,commands:e.commands,translator:a??E.nullTranslator});e.shell.add(o,"left",{rank:250,type:"GPU Kernels"}),i?.add(o,o.id);let l={command:S.qs.show,title:r.__("GPU Kernels"),show:r.__("Show GPU Kernels"),caption:r.__("Show the GPUs and the kernels that share them"),icon:C};T(e,s,r,l,()=>e.shell.activateById(o.id))},ig=(e,{client:t,model:n},s,i)=>{let{kernelspecs:a}=e.serviceManager,r=a instanceof n0.M?a:new n0.M(a,()=>t.sizes());return e.restored.then(()=>i?.load("@jupyterlab/apputils-extension:sessionDialogs")).catch(()=>void 0),new nK({known:r,client:t,model:n,translator:s??E.nullTranslator,settingRegistry:i})},iw=(e,{model:t},n,s)=>{var i,a,r;let o=(s??E.nullTranslator).load(S.$N);n?.add((i=e,a=t,{name:(r=o).__("GPU Kernels"),supportsMultipleViews:!0,running:e=>iy(a).map(t=>(function(e,t,n,s,i){var a,r,o;let l,u,{status:d}=n.state,c={kernelId:t.id},h=d&&ev(t,d),m=t.residency?.mode==="off",p=i&&["on_gpu","swapped_out","checkpointed"].includes(t.state)&&!m,_=null!==d&&null===ez("shutDown",t,d);return{icon:()=>C,label:()=>ek(t),labelTitle:()=>`${t.label||t.id} \xb7 ${sf(t,s)}`,detail:()=>(function(e,t){switch(e.state){case"queued":return t$(e.queue_position,t);case"starting":return t.__("starting");case"on_gpu":return t.__("on GPU");case"swapped_out":return t.__("swapped out");case"restoring":return t.__("restoring");case"checkpointed":return t.__("checkpointed");default:return t.__("ended")}})(t,s),context:t.id,open:()=>{let t=null===h?S.qs.show:S.qs.openNotebook;e.commands.execute(t,null===h?{}:c)},..._?{shutdown:()=>void ib(e,S.qs.shutDown,t.id,s)}:{},...p?{children:[(a=e,r=t,o=s,u="restore"===(l=eM(r))?o.__("Restore its memory"):o.__("Swap out its memory"),{icon:()=>C,label:()=>u,context:`${r.id} ${l}`,open:()=>void ib(a,S.Aq[l],r.id,o)})]}:{}}})(i,t,a,r,"list"!==e.mode)),shutdownAll:()=>void async function({serviceManager:e},t,n){let{kernels:s}=e,i=iy(t).filter(e=>""!==e.name),a=(await Promise.allSettled(i.map(e=>s.shutdown(e.id)))).filter(e=>"rejected"===e.status),[r]=a;if(void 0!==r){let e=eG(r.reason,n);G.Notification.error(n.__("Not shut down: %1 of %2 kernels. %3",String(a.length),String(i.length),e),{autoClose:!1})}await t.refresh()}(i,a,r),refreshRunning:()=>void a.refresh(),runningChanged:a.changed,shutdownLabel:r.__("Shut Down"),shutdownAllLabel:r.__("Shut Down All"),shutdownAllConfirmationText:r.__("Do you want to shut down all your GPU kernels? All variables will be lost.")}))};function iy(e){let{status:t}=e.state;return(t?.kernels??[]).filter(e=>e.owner===t?.user.name&&e.gpus>0&&"ended"!==e.state)}async function ib(e,t,n,s){try{await e.commands.execute(t,{kernelId:n})}catch(e){G.Notification.error(eG(e,s),{autoClose:!1})}}let iv=D((e,{client:t,model:s})=>({id:"aliquot-shared-folders",command:S.qs.sharedFolders,title:e.__("Shared Folders"),show:e.__("Show Shared Folders"),caption:e.__("Share folders with the kernels of other users, and accept theirs"),name:e.__("Shared folders"),icon:j.folderIcon,content:async()=>{let{FoldersArea:i}=await n.e("labextension_lib_widgets_folders_folders_area_js").then(n.bind(n,"./labextension/lib/widgets/folders/folders_area.js"));return new i({source:t,trans:e,onAnswered:()=>void s.readAnew()})}})),ik=(e,{model:t,client:n},s,i,a,r,o)=>{if(null===s||null===i)return;let l=(o??E.nullTranslator).load(S.$N),u=new sM({model:t,client:n,commands:e.commands,trans:l,dialogs:a,notebooks:r}),d=new n6({model:t,trans:l,place:"status-bar",press:e=>u.press(e)}),c=new ix(t,d);i.currentChanged.connect((e,{newValue:t})=>c.follow(t)),s.registerStatusItem(S.Ww.statusBar,{item:d,align:"left",rank:1.5,isActive:()=>c.isTold,activeStateChanged:c.toldChanged}),c.follow(i.currentWidget)};class ix{constructor(e,t){this._model=e,this._item=t,this._toldChanged=new H.Signal(this),this._isTold=!1}get isTold(){return this._isTold}get toldChanged(){return this._toldChanged}follow(e){var t;let n,s=(t=e,n=t?.sessionContext,n?.kernelChanged?n:null),i=this._item.attached;if(s!==(i?.session??null)){i?.changed.disconnect(this._look,this),i?.dispose();let e=s&&new tE(this._model,s);this._item.attached=e,e?.changed.connect(this._look,this)}this._look()}_look(){let e=this._item.attached?.attachment,t="ours"===e||"none"===e;t!==this._isTold&&(this._isTold=t,this._toldChanged.emit())}}let iq=D((e,{client:t})=>({id:"aliquot-usage",command:S.qs.usage,title:e.__("GPU-Hours"),show:e.__("Show GPU-Hours"),caption:e.__("Show the GPU-hours of a month by user, team, size, model or day"),name:e.__("GPU-hours"),icon:z,content:async()=>{let{UsageArea:s}=await n.e("labextension_lib_widgets_usage_usage_area_js").then(n.bind(n,"./labextension/lib/widgets/usage/usage_area.js"));return new s(t,e)}}))},"./labextension/lib/base/clock.js"(e,t,n){var s=n("webpack/sharing/consume/default/@lumino/disposable");n.d(t,{},{w:{now:()=>Date.now(),after:(e,t)=>{let n=setTimeout(t,e);return new s.DisposableDelegate(()=>clearTimeout(n))},chance:()=>Math.random()}})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/actions.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* What may be asked of a kernel: the form of its size, and its buttons. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/admin.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The administrator's view, in Lab and as the gateway's own page: theme variables only. */

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
  white-space: pre-line;
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
  white-space: pre-line;
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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/bar.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* Bars: one whole, divided. Parts differ in pattern: solid is in use within guarantees, upright lines beyond them,
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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/cell_badge.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* What a cell waits for, between its input and its output: the sign under the prompt, the words under the code. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/coming_back.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* What is said in a cell's output that the kernel did not say. */

.aliquot-remark {
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size1);
  font-style: italic;
  padding-left: var(--jp-code-padding);
}
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/devices.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The devices: lines of the last minutes, and the short form where there are many. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/history.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The history: charts in colours that stand out from both themes' background, and the tables below them. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/index.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=n.n(a),o=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/panel.css"),l=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/notice.css"),u=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/item.css"),d=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/bar.css"),c=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/devices.css"),h=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/kernels.css"),m=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/actions.css"),p=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/coming_back.css"),_=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/share.css"),g=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/picker.css"),f=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/history.css"),w=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/admin.css"),y=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/cell_badge.css"),b=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/ways_out.css"),v=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/notebook.css"),k=n("./node_modules/css-loader/dist/cjs.js!./labextension/style/launcher.css"),x=r()(i());x.i(o.A),x.i(l.A),x.i(u.A),x.i(d.A),x.i(c.A),x.i(h.A),x.i(m.A),x.i(p.A),x.i(_.A),x.i(g.A),x.i(f.A),x.i(w.A),x.i(y.A),x.i(b.A),x.i(v.A),x.i(k.A),x.push([e.id,`/* Only theme variables in all of these: they follow every theme, light or dark. */
`,""]),n.d(t,{},{A:x})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/item.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* An entry of a list: a device or a kernel. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/kernels.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The kernels: quota, owners, and what is folded behind an entry. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/launcher.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The cards of kernels in Lab's launcher: a size stays on one line, as far as the card is wide enough. */

.jp-LauncherCard[data-category='Notebook'] .jp-LauncherCard-label > p,
.jp-LauncherCard[data-category='Console'] .jp-LauncherCard-label > p {
  text-wrap: balance;
}
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/notebook.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* A kernel's GPU in its notebook: the line in toolbar and status bar, and the window that it opens. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/notice.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* Sentences that ask for attention. */

.aliquot-Notice {
  display: flex;
  gap: 8px;
  padding: 8px 12px;
  line-height: 1.4;
  border-left: 3px solid transparent;
  overflow-wrap: anywhere;
  white-space: pre-line;
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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/panel.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The sidebar panel as a whole. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/picker.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* The dialog in which a kernel and its size are picked. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/share.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* Kernels that are shared: the dialog, and those of others in the list. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/cjs.js!./labextension/style/ways_out.css"(e,t,n){var s=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),i=n.n(s),a=n("./node_modules/css-loader/dist/runtime/api.js"),r=(n.n(a))()(i());r.push([e.id,`/* What can be done about a wait: below a cell's badge, and in the window of the kernel's line. */

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
`,""]),n.d(t,{},{A:r})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var n="",s=void 0!==t[5];return t[4]&&(n+="@supports (".concat(t[4],") {")),t[2]&&(n+="@media ".concat(t[2]," {")),s&&(n+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),n+=e(t),s&&(n+="}"),t[2]&&(n+="}"),t[4]&&(n+="}"),n}).join("")},t.i=function(e,n,s,i,a){"string"==typeof e&&(e=[[null,e,void 0]]);var r={};if(s)for(var o=0;o<this.length;o++){var l=this[o][0];null!=l&&(r[l]=!0)}for(var u=0;u<e.length;u++){var d=[].concat(e[u]);s&&r[d[0]]||(void 0!==a&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=a),n&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=n),i&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=i):d[4]="".concat(i)),t.push(d))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function n(e){for(var n=-1,s=0;s<t.length;s++)if(t[s].identifier===e){n=s;break}return n}function s(e,s){for(var i={},a=[],r=0;r<e.length;r++){var o=e[r],l=s.base?o[0]+s.base:o[0],u=i[l]||0,d="".concat(l," ").concat(u);i[l]=u+1;var c=n(d),h={css:o[1],media:o[2],sourceMap:o[3],supports:o[4],layer:o[5]};if(-1!==c)t[c].references++,t[c].updater(h);else{var m=function(e,t){var n=t.domAPI(t);return n.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&n.update(e=t):n.remove()}}(h,s);s.byIndex=r,t.splice(r,0,{identifier:d,updater:m,references:1})}a.push(d)}return a}e.exports=function(e,i){var a=s(e=e||[],i=i||{});return function(e){e=e||[];for(var r=0;r<a.length;r++){var o=n(a[r]);t[o].references--}for(var l=s(e,i),u=0;u<a.length;u++){var d=n(a[u]);0===t[d].references&&(t[d].updater(),t.splice(d,1))}a=l}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,n){var s=function(e){if(void 0===t[e]){var n=document.querySelector(e);if(window.HTMLIFrameElement&&n instanceof window.HTMLIFrameElement)try{n=n.contentDocument.head}catch(e){n=null}t[e]=n}return t[e]}(e);if(!s)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");s.appendChild(n)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,n){e.exports=function(e){var t=n.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(n){var s,i,a;s="",n.supports&&(s+="@supports (".concat(n.supports,") {")),n.media&&(s+="@media ".concat(n.media," {")),(i=void 0!==n.layer)&&(s+="@layer".concat(n.layer.length>0?" ".concat(n.layer):""," {")),s+=n.css,i&&(s+="}"),n.media&&(s+="}"),n.supports&&(s+="}"),(a=n.sourceMap)&&"u">typeof btoa&&(s+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(s,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}}}]);