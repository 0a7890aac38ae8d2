// Tabs by the pattern of the ARIA practices: one is in the tab order, the arrow keys choose.

import * as React from 'react';

export interface ITab {
  readonly id: string;
  readonly title: string;
  readonly render: () => JSX.Element;
}

export function Tabs({ label, tabs }: { label: string; tabs: readonly ITab[] }): JSX.Element {
  const [chosen, setChosen] = React.useState(tabs[0]?.id);
  const prefix = React.useId();
  const current = tabs.find(tab => tab.id === chosen) ?? tabs[0];
  const move = (event: React.KeyboardEvent, from: number): void => {
    const steps: Readonly<Record<string, number>> = { ArrowRight: from + 1, ArrowLeft: from - 1, Home: 0, End: tabs.length - 1 };
    const to = steps[event.key];
    const next = to === undefined ? undefined : tabs[(to + tabs.length) % tabs.length];
    if (next) {
      event.preventDefault();
      setChosen(next.id);
      document.getElementById(`${prefix}${next.id}`)?.focus();
    }
  };
  return (
    <>
      <div role="tablist" aria-label={label} className="aliquot-Admin-tabs">
        {tabs.map((tab, place) => (
          <button
            key={tab.id}
            id={`${prefix}${tab.id}`}
            type="button"
            role="tab"
            aria-selected={tab === current}
            aria-controls={`${prefix}panel`}
            tabIndex={tab === current ? 0 : -1}
            onClick={() => setChosen(tab.id)}
            onKeyDown={event => move(event, place)}
          >
            {tab.title}
          </button>
        ))}
      </div>
      <div id={`${prefix}panel`} role="tabpanel" aria-labelledby={`${prefix}${current?.id}`} className="aliquot-Admin-panel">
        {current?.render()}
      </div>
    </>
  );
}
