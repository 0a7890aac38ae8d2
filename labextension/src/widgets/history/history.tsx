// The history page: use over the last hour, day or week, as charts, tables and CSV.

import { TranslationBundle } from '@jupyterlab/translation';
import { Button, HTMLSelect, ReactWidget, UseSignal } from '@jupyterlab/ui-components';
import { Message } from '@lumino/messaging';
import * as React from 'react';

import { HistoryModel, IHistoryState } from '../../history/history_model';
import { Colours, HistoryFigure, Range } from '../../history/history_series';
import { DeviceCharts } from './history_devices';
import { KernelChart } from './history_kernels';

const COLOURS = 8;

/** The content of the page. It makes requests while it is visible. */
export class HistoryPage extends ReactWidget {
  constructor(
    private readonly _model: HistoryModel,
    private readonly _trans: TranslationBundle,
    private readonly _download: (range: Range) => Promise<void>
  ) {
    super();
    this.addClass('aliquot-History');
  }

  override dispose(): void {
    this._model.dispose();
    super.dispose();
  }

  protected override onAfterShow(message: Message): void {
    super.onAfterShow(message);
    this._model.isWatched = true;
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this._model.isWatched = this.isVisible;
  }

  protected override onAfterHide(message: Message): void {
    super.onAfterHide(message);
    this._model.isWatched = false;
  }

  protected override render(): JSX.Element {
    return (
      <UseSignal signal={this._model.changed} initialArgs={this._model.state}>
        {() => <Page model={this._model} trans={this._trans} download={this._download} colours={this._colours} />}
      </UseSignal>
    );
  }

  private readonly _colours = new Colours(COLOURS);
}

interface IPageProps {
  model: HistoryModel;
  trans: TranslationBundle;
  download: (range: Range) => Promise<void>;
  colours: Colours;
}

function Page({ model, trans, download, colours }: IPageProps): JSX.Element {
  const [figure, setFigure] = React.useState<HistoryFigure>('time');
  const { history } = model.state;
  return (
    <>
      <Controls {...{ model, trans, download, figure, setFigure }} />
      <Problem state={model.state} trans={trans} />
      {history === null && !model.state.problem && <p className="aliquot-History-note">{trans.__('Reading …')}</p>}
      {history && <KernelChart {...{ history, figure, trans, colours }} />}
      {history && <DeviceCharts {...{ history, trans }} />}
    </>
  );
}

interface IControlsProps extends Omit<IPageProps, 'colours'> {
  figure: HistoryFigure;
  setFigure: (figure: HistoryFigure) => void;
}

function Controls({ model, trans, download, figure, setFigure }: IControlsProps): JSX.Element {
  const [failure, setFailure] = React.useState('');
  const save = (): void => {
    setFailure('');
    download(model.state.range).catch(error => setFailure(error instanceof Error ? error.message : String(error)));
  };
  return (
    <div className="aliquot-History-controls">
      <Ranges model={model} trans={trans} />
      <HTMLSelect
        aria-label={trans.__('Values shown of the kernels')}
        value={figure}
        onChange={event => setFigure(event.target.value as HistoryFigure)}
      >
        <option value="time">{trans.__('GPU time')}</option>
        <option value="memory">{trans.__('GPU memory')}</option>
        <option value="copies">{trans.__('Host copies')}</option>
      </HTMLSelect>
      <span className="aliquot-History-space" />
      <Button className="jp-mod-styled" onClick={save} title={trans.__('The same figures as a CSV file')}>
        {trans.__('Download CSV')}
      </Button>
      {failure && (
        <p className="aliquot-History-note" role="alert">
          {trans.__('The CSV could not be read: %1', failure)}
        </p>
      )}
    </div>
  );
}

function Ranges({ model, trans }: { model: HistoryModel; trans: TranslationBundle }): JSX.Element {
  const words: Record<Range, string> = { hour: trans.__('Hour'), day: trans.__('Day'), week: trans.__('Week') };
  return (
    <fieldset className="aliquot-History-ranges" aria-label={trans.__('How far back')}>
      {(Object.keys(words) as Range[]).map(range => (
        <label key={range} data-chosen={model.state.range === range || undefined}>
          <input
            type="radio"
            name="aliquot-history-range"
            checked={model.state.range === range}
            onChange={() => {
              model.range = range;
            }}
          />
          {words[range]}
        </label>
      ))}
    </fieldset>
  );
}

function Problem({ state, trans }: { state: IHistoryState; trans: TranslationBundle }): JSX.Element | null {
  const { problem } = state;
  if (problem === null) {
    return null;
  }
  const why = problem.message || trans.__('this server has no Aliquot, or one that keeps no history');
  return (
    <p className="aliquot-History-note" role="alert">
      {state.history ? trans.__('Not up to date: %1', why) : trans.__('There is no history to show: %1', why)}
    </p>
  );
}
