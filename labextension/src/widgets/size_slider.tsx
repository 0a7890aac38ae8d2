// A figure that is chosen by a slider or written: both show the same, and either is enough.

import * as React from 'react';

import { stepped } from '../resize_wish';

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
  onChange: (value: number) => void;
}

export function SizeSlider(props: ISizeSliderProps): JSX.Element {
  const { label, value, min, max, step, disabled, onChange } = props;
  const largest = props.largest ?? max;
  const id = React.useId();
  const [written, setWritten] = React.useState<string | null>(null);
  const take = (text: string): void => {
    const number = stepped(text, step, { min, max: largest });
    if (number !== null && number !== value) {
      onChange(number);
    }
  };
  const range = { min, step, disabled };
  return (
    <div className="aliquot-Slider">
      <label className="aliquot-Slider-label" htmlFor={id}>
        {label}
      </label>
      <input
        {...range}
        max={max}
        type="range"
        className="aliquot-Slider-range"
        aria-label={label}
        aria-valuetext={props.text}
        value={value}
        onChange={event => take(event.target.value)}
      />
      <input
        {...range}
        max={largest}
        id={id}
        type="number"
        className="aliquot-Slider-number jp-mod-styled"
        // What is being written may be no number yet, or one out of range: it is taken back when the field is left.
        value={written ?? String(value)}
        onChange={event => {
          setWritten(event.target.value);
          take(event.target.value);
        }}
        onBlur={() => setWritten(null)}
      />
      <span className="aliquot-Slider-unit">{props.unit}</span>
    </div>
  );
}
