//! Values over time: lines, areas that are stacked, and bars that are.

use std::fmt::Write as _;

use brupop_testbed::dashboard::{Line, Panel};
use brupop_testbed::prometheus::Window;

use crate::marks::{colour, legend};
use crate::scale::{shown, step, ticks};
use crate::svg::Canvas;

/// The room of the curves in a panel.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    /// The largest value that there is room for.
    most: f64,
    window: Window,
}

impl Frame {
    fn x(&self, time: f64) -> f64 {
        let part = (time - self.window.from) / (self.window.until - self.window.from);
        self.left + part * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - value / self.most * (self.bottom - self.top)
    }
}

/// A series in its colour: its value at each of these times, where there is one.
struct Curve<'a> {
    colour: &'a str,
    times: &'a [f64],
    values: &'a [Option<f64>],
}

/// The values of a series at each step of the window, where there are any.
fn at_steps(line: &Line, times: &[f64], window: Window) -> Vec<Option<f64>> {
    let mut points = line.series.points.iter().filter(|(_, value)| value.is_finite()).peekable();
    let each = times.iter().map(|time| {
        while points.next_if(|(at, _)| *at < time - window.step / 2.0).is_some() {}
        points.next_if(|(at, _)| *at < time + window.step / 2.0).map(|(_, value)| *value)
    });
    each.collect()
}

/// Draws them as the panel says.
pub fn draw(canvas: &mut Canvas, panel: &Panel, lines: &[Line], window: Window) {
    let mut times = vec![];
    let mut time = window.from;
    while time <= window.until + window.step / 2.0 {
        times.push(time);
        time += window.step;
    }
    let values: Vec<_> = lines.iter().map(|line| at_steps(line, &times, window)).collect();
    let stacked = panel.field("custom/stacking/mode") == "normal";
    let sum = |step: usize| values.iter().filter_map(|line| line[step]).sum::<f64>();
    let most = |step: usize| values.iter().filter_map(|line| line[step]).fold(0.0, f64::max);
    let top = (0..times.len()).map(|step| if stacked { sum(step) } else { most(step) }).fold(0.0, f64::max);
    let foot = legend(canvas, lines);
    let (left, right, bottom) = (48.0, canvas.width - 14.0, canvas.height - foot - 20.0);
    let most = if top > 0.0 { top * 1.05 } else { 1.0 };
    let frame = Frame { left, right, top: 34.0, bottom, most, window };
    axes(canvas, &frame, panel.field("unit"));
    let bars = panel.field("custom/drawStyle") == "bars";
    let mut below = vec![0.0; times.len()];
    for (number, values) in values.iter().enumerate() {
        let curve = Curve { colour: colour(number), times: &times, values };
        if bars {
            columns(canvas, &frame, &curve, &mut below);
        } else if stacked {
            area(canvas, &frame, &curve, &mut below);
        } else {
            line(canvas, &frame, &curve);
        }
    }
}

fn axes(canvas: &mut Canvas, frame: &Frame, unit: &str) {
    for value in ticks(frame.most) {
        let y = frame.y(value);
        let _ =
            writeln!(canvas.svg, "<path class=\"g\" d=\"M{:.0} {y:.1}H{:.0}\"/>", frame.left, frame.right);
        canvas.text("e", frame.left - 6.0, y + 4.0, &shown(value, unit));
    }
    let length = frame.window.until - frame.window.from;
    let every = [5.0, 10.0, 15.0, 30.0, 60.0].into_iter().find(|every| length / every <= 8.0);
    let every = every.unwrap_or_else(|| step(length));
    let mut at = 0.0;
    while at <= length {
        canvas.text("m", frame.x(frame.window.from + at), frame.bottom + 15.0, &format!("{at:.0} s"));
        at += every;
    }
}

/// A line that keeps its value until the next one.
fn line(canvas: &mut Canvas, frame: &Frame, Curve { colour, times, values }: &Curve<'_>) {
    let (mut path, mut last) = (String::new(), None);
    for (time, value) in times.iter().zip(*values) {
        let x = frame.x(*time);
        let _ = match (last, value) {
            (None, Some(value)) => write!(path, "M{x:.1} {:.1}", frame.y(*value)),
            (Some(before), Some(value)) if before != *value => {
                write!(path, "H{x:.1}V{:.1}", frame.y(*value))
            }
            (Some(_), None) => write!(path, "H{x:.1}"),
            _ => Ok(()),
        };
        last = *value;
    }
    if last.is_some() {
        let _ = write!(path, "H{:.1}", frame.right);
    }
    let _ =
        writeln!(canvas.svg, "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" d=\"{path}\"/>");
}

/// What lies between what is below and this on top of it; that is below the next one.
fn area(canvas: &mut Canvas, frame: &Frame, Curve { colour, times, values }: &Curve<'_>, below: &mut [f64]) {
    let above: Vec<f64> =
        below.iter().zip(*values).map(|(below, value)| below + value.unwrap_or(0.0)).collect();
    let mut path = format!("M{:.1} {:.1}", frame.left, frame.y(above[0]));
    for (step, time) in times.iter().enumerate().skip(1) {
        if above[step] != above[step - 1] {
            let _ = write!(path, "H{:.1}V{:.1}", frame.x(*time), frame.y(above[step]));
        }
    }
    let end = below.len() - 1;
    let _ = write!(path, "H{:.1}V{:.1}", frame.right, frame.y(below[end]));
    for step in (1..times.len()).rev() {
        if below[step] != below[step - 1] {
            let _ = write!(path, "H{:.1}V{:.1}", frame.x(times[step]), frame.y(below[step - 1]));
        }
    }
    let _ = write!(path, "H{:.1}z", frame.left);
    let _ = writeln!(canvas.svg, "<path fill=\"{colour}\" fill-opacity=\".75\" d=\"{path}\"/>");
    below.copy_from_slice(&above);
}

/// A bar for each step, on top of what is below.
fn columns(
    canvas: &mut Canvas,
    frame: &Frame,
    Curve { colour, times, values }: &Curve<'_>,
    below: &mut [f64],
) {
    let wide = frame.x(frame.window.from + frame.window.step) - frame.left;
    for ((time, value), below) in times.iter().zip(*values).zip(below) {
        let Some(value) = value.filter(|value| *value > 0.0) else { continue };
        let top = frame.y(*below + value);
        canvas.rectangle(colour, [frame.x(*time) - wide, top, wide * 0.9, frame.y(*below) - top]);
        *below += value;
    }
}
