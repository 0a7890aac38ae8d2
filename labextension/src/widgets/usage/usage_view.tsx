// GPU-hours of a month, by user, team, size, model or day, with the budgets and a CSV file.

import * as React from 'react';

import { formatTime } from '../../base/quantities';
import { IBudget, IGpuHours, ITranslation, IUsageReport } from '../../tokens';
import { IUsageSource, Kind, KINDS, monthOf } from '../../usage/usage_source';
import { IColumn, Table } from '../elements/table';

interface IUsageViewProps {
  source: IUsageSource;
  trans: ITranslation;
  /** Save a text as a file of this name. */
  save: (text: string, name: string) => void;
}

interface IAnswer {
  readonly report: IUsageReport | null;
  readonly problem: string;
}

const NOTHING: IAnswer = { report: null, problem: '' };

export function UsageView({ source, trans, save }: IUsageViewProps): JSX.Element {
  const [month, setMonth] = React.useState(() => monthOf(new Date()));
  const [by, setBy] = React.useState<Kind>('user');
  const [answer, setAnswer] = React.useState(NOTHING);
  const tell = (error: unknown): void => {
    setAnswer(before => ({ ...before, problem: error instanceof Error ? error.message : String(error) }));
  };
  React.useEffect(() => {
    let isCurrent = month !== '';
    setAnswer(NOTHING);
    if (isCurrent) {
      source.usage(month, by).then(
        report => isCurrent && setAnswer({ report, problem: '' }),
        error => isCurrent && tell(error)
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [source, month, by]);
  const download = (): void => {
    source.usageCsv(month, by).then(text => save(text, `aliquot-usage-${month}-by-${by}.csv`), tell);
  };
  return (
    <>
      <div className="aliquot-Admin-controls">
        <label>
          {trans.__('Month')}{' '}
          <input type="month" required value={month} onChange={event => setMonth(event.target.value)} />
        </label>
        <label>
          {trans.__('Rows')}{' '}
          <select value={by} onChange={event => setBy(event.target.value as Kind)}>
            {KINDS.map(kind => (
              <option key={kind} value={kind}>
                {kindText(kind, trans)}
              </option>
            ))}
          </select>
        </label>
        <button type="button" disabled={answer.report === null} onClick={download}>
          {trans.__('Download CSV')}
        </button>
      </div>
      {answer.problem && (
        <p className="aliquot-Admin-note" role="alert">
          {trans.__('The GPU-hours could not be read: %1', answer.problem)}
        </p>
      )}
      {answer.report && <Report report={answer.report} by={by} trans={trans} />}
    </>
  );
}

function Report({ report, by, trans }: { report: IUsageReport; by: Kind; trans: ITranslation }): JSX.Element {
  const rows = report.rows.map(row => ({ key: row[by] ?? '', cells: [nameText(row[by], by, trans), ...hours(row.gpu_hours)] }));
  const total = { key: ' total', cells: [trans.__('Total'), ...hours(report.total)] };
  const columns: readonly IColumn[] = [
    { title: kindText(by, trans), isText: true },
    ...[
      trans.__('Working'),
      trans.__('On GPU, idle'),
      trans.__('Swapped out'),
      trans.__('Waiting'),
      trans.__('Held'),
      trans.__('Charged')
    ].map(title => ({ title }))
  ];
  return (
    <div className="aliquot-Admin-panel">
      <h2>{trans.__('GPU-hours')}</h2>
      <Table
        label={trans.__('GPU-hours')}
        empty={
          new Date(report.start) > new Date()
            ? trans.__('This month has not begun.')
            : trans.__('No GPU time was counted in this month.')
        }
        columns={columns}
        rows={rows.length === 0 ? [] : [...rows, total]}
      />
      <p className="aliquot-Admin-note">
        {trans.__('Held: size times the time on the GPU or swapped out.')} {chargedText(report.charge_by, trans)}{' '}
        {trans.__('Days are those of the time zone %1.', report.time_zone)}
      </p>
      {report.budgets.length > 0 && <Budgets budgets={report.budgets} trans={trans} />}
    </div>
  );
}

function Budgets({ budgets, trans }: { budgets: readonly IBudget[]; trans: ITranslation }): JSX.Element {
  return (
    <>
      <h2>{trans.__('Budgets now')}</h2>
      <Table
        label={trans.__('Budgets now')}
        empty=""
        columns={[
          { title: trans.__('Of'), isText: true },
          { title: trans.__('Used') },
          { title: trans.__('Budget') },
          { title: trans.__('Renews'), isText: true },
          { title: trans.__('State'), isText: true }
        ]}
        rows={budgets.map(budget => ({
          key: `${budget.kind} ${budget.name} ${budget.period}`,
          cells: [
            budget.kind === 'team' ? trans.__('team %1', budget.name) : budget.name,
            hourText(budget.used_gpu_hours),
            hourText(budget.gpu_hours),
            formatTime(budget.renews_at, new Date()),
            budget.message ?? trans.__('within the budget')
          ]
        }))}
      />
    </>
  );
}

function chargedText(by: IUsageReport['charge_by'], trans: ITranslation): string {
  switch (by) {
    case 'on_gpu':
      return trans.__('Charged: size times the time on the GPU, weighted by GPU model and priority.');
    case 'use':
      return trans.__('Charged: the GPU time used (Working), weighted by GPU model and priority.');
    default:
      return trans.__('Charged: what is held, weighted by GPU model and priority.');
  }
}

function hours({ working, idle, swapped_out, waiting, held, charged }: IGpuHours): string[] {
  return [working, idle, swapped_out, waiting, held, charged].map(hourText);
}

function hourText(amount: number): string {
  return amount.toFixed(2);
}

function nameText(name: string | null, by: Kind, trans: ITranslation): string {
  return name || (by === 'team' ? trans.__('no team') : trans.__('unknown'));
}

function kindText(kind: Kind, trans: ITranslation): string {
  switch (kind) {
    case 'user':
      return trans.__('User');
    case 'team':
      return trans.__('Team');
    case 'size':
      return trans.__('Size');
    case 'model':
      return trans.__('GPU model');
    case 'day':
      return trans.__('Day');
  }
}
