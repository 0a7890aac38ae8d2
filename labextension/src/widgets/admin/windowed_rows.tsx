// A grid of thousands of rows of one height: only those in sight are in the page. The arrow keys,
// Home, End and the page keys move the focus; Enter, Space or a click choose a row.

import * as React from 'react';

/** The height of a row in the style sheet, too. */
export const ROW_PX = 28;
/** Rows above and below those in sight, so that fast scrolling shows no gap. */
const SPARE = 8;
const HEIGHT_BEFORE_LAYOUT_PX = 600;

interface IWindowedRowsProps<T> {
  label: string;
  /** The row of column headers. */
  header: JSX.Element;
  rows: readonly T[];
  keyOf: (row: T) => string;
  cells: (row: T) => JSX.Element;
  onChoose: (row: T) => void;
}

export function WindowedRows<T>(props: IWindowedRowsProps<T>): JSX.Element {
  const { rows, keyOf } = props;
  const box = React.useRef<HTMLDivElement>(null);
  const view = useView(box);
  const [active, setActive] = React.useState(0);
  const wantsFocus = React.useRef(false);
  const first = Math.max(0, Math.floor(view.top / ROW_PX) - SPARE);
  const last = Math.min(rows.length, Math.ceil((view.top + view.height) / ROW_PX) + SPARE);
  const current = Math.min(active, rows.length - 1);
  // The row that Tab reaches is in the page, wherever the reader has scrolled.
  const reached = current >= first && current < last ? current : Math.min(first + SPARE, last - 1);
  React.useLayoutEffect(() => {
    // A row far away is in the page only after the scroll that reveals it.
    const wanted = wantsFocus.current ? box.current?.querySelector<HTMLElement>(`[data-row="${current}"]`) : null;
    if (wanted) {
      wantsFocus.current = false;
      wanted.focus({ preventScroll: true });
    }
  });
  const move = (event: React.KeyboardEvent, from: number): void => {
    const page = Math.max(1, Math.floor(view.height / ROW_PX) - 2);
    const to = target(event.key, from, rows.length, page);
    if (to !== null) {
      event.preventDefault();
      wantsFocus.current = true;
      setActive(to);
      reveal(box.current, to);
    } else if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      props.onChoose(rows[from] as T);
    }
  };
  return (
    <div ref={box} className="aliquot-Grid" role="grid" aria-label={props.label} aria-rowcount={rows.length + 1}>
      <div role="rowgroup" className="aliquot-Grid-head">
        {props.header}
      </div>
      <div role="rowgroup" className="aliquot-Grid-body" style={{ height: rows.length * ROW_PX }}>
        {rows.slice(first, last).map((row, place) => (
          <div
            key={keyOf(row)}
            role="row"
            className="aliquot-Grid-row"
            aria-rowindex={first + place + 2}
            data-row={first + place}
            tabIndex={first + place === reached ? 0 : -1}
            style={{ top: (first + place) * ROW_PX }}
            onFocus={() => setActive(first + place)}
            onKeyDown={event => move(event, first + place)}
            onClick={() => props.onChoose(row)}
          >
            {props.cells(row)}
          </div>
        ))}
      </div>
    </div>
  );
}

/** The row that a key moves to; null for any other key. */
function target(key: string, from: number, count: number, page: number): number | null {
  const moves: Readonly<Record<string, number>> = {
    ArrowDown: from + 1,
    ArrowUp: from - 1,
    PageDown: from + page,
    PageUp: from - page,
    Home: 0,
    End: count - 1
  };
  const to = moves[key];
  return to === undefined ? null : Math.min(Math.max(to, 0), count - 1);
}

/** Scroll as little as shows the row whole, below the header. */
function reveal(box: HTMLElement | null, row: number): void {
  if (box === null) {
    return;
  }
  const room = box.clientHeight - 2 * ROW_PX; // the header, and a scroll bar
  if (row * ROW_PX < box.scrollTop) {
    box.scrollTop = row * ROW_PX;
  } else if ((row + 1) * ROW_PX > box.scrollTop + room) {
    box.scrollTop = (row + 1) * ROW_PX - room;
  }
}

interface IView {
  readonly top: number;
  readonly height: number;
}

/** Follow what is in sight of the box: its scroll position and its height. */
function useView(box: React.RefObject<HTMLElement>): IView {
  const [view, setView] = React.useState<IView>({ top: 0, height: HEIGHT_BEFORE_LAYOUT_PX });
  React.useLayoutEffect(() => {
    const element = box.current;
    if (element === null) {
      return undefined;
    }
    const look = (): void => {
      const next = { top: element.scrollTop, height: element.clientHeight };
      setView(before => (before.top === next.top && before.height === next.height ? before : next));
    };
    look();
    const resized = new ResizeObserver(look);
    resized.observe(element);
    element.addEventListener('scroll', look, { passive: true });
    return () => {
      resized.disconnect();
      element.removeEventListener('scroll', look);
    };
  }, []);
  return view;
}
