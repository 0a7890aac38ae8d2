// A plain table of the administrator's view, for lists of tens or hundreds.

import * as React from 'react';

export interface IColumn {
  readonly title: string;
  /** Texts are on the left, numbers on the right. */
  readonly isText?: boolean;
}

interface ITableProps {
  label: string;
  columns: readonly IColumn[];
  rows: readonly { readonly key: string; readonly cells: readonly React.ReactNode[] }[];
  /** Shown in place of a table without rows. */
  empty: string;
}

export function Table({ label, columns, rows, empty }: ITableProps): JSX.Element {
  if (rows.length === 0) {
    return <p className="aliquot-Admin-note">{empty}</p>;
  }
  return (
    <div className="aliquot-Admin-scroll" role="region" aria-label={label} tabIndex={0}>
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map(({ title, isText }) => (
              <th key={title} scope="col" data-text={isText || undefined}>
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key}>
              {cells.map((cell, place) => (
                <td key={columns[place]?.title} data-text={columns[place]?.isText || undefined}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
