// A number with a slider and a text field, which show the same value.

import { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';

import { problemOf, stepped } from '../../sizes/resize_request';
import { numberProblem } from './size_words';

/** The pause before a partly typed number is reported as invalid. */
const REST_MS = 300;

export interface ISizeSliderProps {
  /** The label, such as `GPU share`, of both inputs for screen readers. */
  label: string;
  /** The unit after the number. */
  unit: string;
  value: number;
  min: number;
  max: number;
  /** The largest number that may be typed; the slider may end earlier. */
  largest?: number;
  step: number;
  /** The text for screen readers in place of the number: `0.25 GPU`. */
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
    // A dialog checks validity at each input event, before React has updated the field.
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
        // A kernel's current value may lie between steps; it is valid until it is changed.
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
        // An invalid text stays, with its reason.
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

/** Return the text after it has not changed for a moment; null at once if there is none. */
function useRested(text: string | null): string | null {
  const [rested, setRested] = React.useState<string | null>(null);
  React.useEffect(() => {
    const timer = setTimeout(() => setRested(text), REST_MS);
    return () => clearTimeout(timer);
  }, [text]);
  return text === null ? null : rested;
}
