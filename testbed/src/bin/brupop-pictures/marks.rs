//! Colours, legends, and bars that lie.

use brupop_testbed::dashboard::{Line, Panel};

use crate::scale::shown;
use crate::svg::Canvas;

/// In the order of the series.
const COLOURS: [&str; 14] = [
    "#5794f2", "#73bf69", "#ff9830", "#f2495c", "#b877d9", "#fade2a", "#37872d", "#1f60c4", "#c4162a",
    "#9d9d9d", "#00b8a9", "#8f5d3b", "#ffa6b0", "#705da0",
];
/// About how wide a letter is.
const LETTER: f64 = 6.1;

/// The colour of a series by its number.
pub fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

/// The names of the series, at the foot of the panel; returns how high that is.
pub fn legend(canvas: &mut Canvas, lines: &[Line]) -> f64 {
    const ROW: f64 = 15.0;
    let widths = lines.iter().map(|line| line.name.chars().map(|_| LETTER).sum::<f64>() + 26.0);
    let (mut x, mut row, mut places) = (12.0, 0.0, vec![]);
    for width in widths {
        if x + width > canvas.width && x > 12.0 {
            (x, row) = (12.0, row + 1.0);
        }
        places.push((x, row));
        x += width;
    }
    let high = (row + 1.0) * ROW + 6.0;
    let top = canvas.height - high;
    for (number, (line, (x, row))) in lines.iter().zip(places).enumerate() {
        let y = top + (row + 1.0) * ROW;
        canvas.rectangle(colour(number), [x, y - 7.0, 10.0, 4.0]);
        canvas.text("", x + 15.0, y - 1.0, &line.name);
    }
    high
}

/// A bar for each series.
pub fn bars(canvas: &mut Canvas, panel: &Panel, lines: &[Line]) {
    let unit = panel.field("unit");
    let value = |line: &Line| line.series.points.last().map_or(0.0, |(_, value)| *value);
    let most = lines.iter().map(value).fold(0.0, f64::max);
    let (left, right, top) = (90.0, 64.0, 40.0);
    let room = canvas.width - left - right;
    let mut y = top;
    let each = ((canvas.height - top - 12.0) / lines.iter().map(|_| 1.0).sum::<f64>()).min(36.0);
    for (number, line) in lines.iter().enumerate() {
        let is = value(line);
        canvas.text("e", left - 8.0, y + each / 2.0 + 4.0, &line.name);
        let wide = if most > 0.0 { (is / most * room).max(1.0) } else { 1.0 };
        canvas.rectangle(colour(number), [left, y + 3.0, wide, each - 6.0]);
        canvas.text("", left + wide + 6.0, y + each / 2.0 + 4.0, &shown(is, unit));
        y += each;
    }
}
