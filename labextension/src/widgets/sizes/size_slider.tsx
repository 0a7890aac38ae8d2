// A figure that is chosen by a slider or written: both show the same, and either is enough.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { problemOf, stepped } from '../../sizes/resize_wish';
import { numberProblem } from './size_words';

/** How long a hand rests before a number that is half written is called wrong. */
const REST_MS = 300;

export interface ISizeSliderProps {
  /** What is chosen, as `GPU share`; what a screen reader calls both. */
  label: string;
  /** Behind the number. */
  unit: string;
  value: number;
  min: number;
  max: number;
  /** What may be written, though the slider ends before. */
  largest?: number;
  step: number;
  /** What is said instead of the bare number: `0.25 GPU`. */
  text: string;
  disabled?: boolean;
  trans: TranslationBundle;
  onChange: (value: number) => void;
}

export function SizeSlider(props: ISizeSliderProps): JSX.Element {
  const { label, value, min, max, step, disabled, unit, trans, onChange } = props;
  const largest = props.largest ?? max;
  const id = React.useId();
  const root = React.useRef<HTMLDivElement>(null);
  const [written, setWritten] = React.useState<string | null>(null);
  const field = { unit, step, min, max: largest };
  const problem = written === null ? null : numberProblem(written, field, trans);
  const told = useRested(problem);
  React.useEffect(() => {
    // A dialog looks for fields that are wrong when something was put in, before React has written what follows from it.
    root.current?.dispatchEvent(new Event('input', { bubbles: true }));
  }, [problem === null]);
  const take = (text: string): void => {
    const number = stepped(text, step, field);
    if (number !== null && number !== value) {
      onChange(number);
    }
  };
  return (
    <div ref={root} className="aliquot-Slider">
      <label className="aliquot-Slider-label" htmlFor={id}>
        {label}
      </label>
      <input
        {...{ min, max, step, disabled }}
        type="range"
        className="aliquot-Slider-range"
        aria-label={label}
        aria-valuetext={props.text}
        value={value}
        onChange={event => {
          setWritten(null);
          take(event.target.value);
        }}
      />
      <input
        {...{ min, disabled }}
        max={largest}
        // What a kernel has may be no step: it is right as long as it is left alone.
        step={written === null && problemOf(String(value), step, field) === 'off-step' ? 'any' : step}
        id={id}
        type="number"
        required
        className="aliquot-Slider-number jp-mod-styled"
        aria-invalid={told !== null}
        aria-describedby={told === null ? undefined : `${id}-problem`}
        value={written ?? String(value)}
        onChange={event => {
          setWritten(event.target.value);
          if (numberProblem(event.target.value, field, trans) === null) {
            take(event.target.value);
          }
        }}
        // What is wrong stays, with its reason.
        onBlur={() => problem === null && setWritten(null)}
      />
      <span className="aliquot-Slider-unit">{unit}</span>
      {told !== null && (
        <p id={`${id}-problem`} className="aliquot-Slider-problem" role="alert">
          {told}
        </p>
      )}
    </div>
  );
}

/** The text once it has stayed the same for a moment; null at once where there is none. */
function useRested(text: string | null): string | null {
  const [rested, setRested] = React.useState<string | null>(null);
  React.useEffect(() => {
    const timer = setTimeout(() => setRested(text), REST_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return text === null ? null : rested;
}
