// A line of short facts that wraps between facts only. The style sheet adds the separators.

import * as React from 'react';

export function Facts({ said, title }: { said: readonly string[]; title?: string }): JSX.Element | null {
  if (said.length === 0) {
    return null;
  }
  return (
    <p className="aliquot-Item-line aliquot-Facts aliquot-mod-quiet" title={title}>
      {said.map((fact, index) => (
        <React.Fragment key={`${index} ${fact}`}>
          {index > 0 && ' '}
          <span className="aliquot-Item-fact">{fact}</span>
        </React.Fragment>
      ))}
    </p>
  );
}
