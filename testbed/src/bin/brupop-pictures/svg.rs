//! A picture of some panels, two beside each other.

use std::fmt::Write as _;

use brupop_testbed::dashboard::{Line, Panel};
use brupop_testbed::prometheus::Window;
use brupop_testbed::svg::escaped;

use crate::{marks, plot};

const WIDTH: f64 = 470.0;
const HEIGHT: f64 = 236.0;
const GAP: f64 = 10.0;
/// What the panels have in common.
const STYLE: &str = "text{font:11px system-ui,sans-serif;fill:#444}.t{font-weight:600;font-size:13px;fill:#111}\
                     .p{fill:#fff;stroke:#ddd}.g{stroke:#eee}.e{text-anchor:end}.m{text-anchor:middle}";

/// The panels so far.
#[derive(Default)]
pub struct Picture {
    body: String,
    panels: u32,
}

/// What is drawn of one panel, from its upper left corner on.
pub struct Canvas {
    /// The elements.
    pub svg: String,
    /// How wide it is.
    pub width: f64,
    /// How high it is.
    pub height: f64,
}

impl Canvas {
    /// Text of this class at this place.
    pub fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let _ =
            writeln!(self.svg, "<text class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\">{}</text>", escaped(text));
    }

    /// A rectangle of this colour.
    pub fn rectangle(&mut self, colour: &str, [x, y, width, height]: [f64; 4]) {
        let _ = writeln!(
            self.svg,
            "<path fill=\"{colour}\" d=\"M{x:.1} {y:.1}h{width:.1}v{height:.1}h-{width:.1}z\"/>"
        );
    }
}

impl Picture {
    /// Adds a panel with these answers.
    pub fn add(&mut self, panel: &Panel, lines: &[Line], window: Window) {
        let (column, row) = (self.panels % 2, self.panels / 2);
        let x = GAP + f64::from(column) * (WIDTH + GAP);
        let y = GAP + f64::from(row) * (HEIGHT + GAP);
        let mut canvas = Canvas { svg: String::new(), width: WIDTH, height: HEIGHT };
        let _ = writeln!(canvas.svg, "<path class=\"p\" d=\"M.5 .5h{WIDTH}v{HEIGHT}h-{WIDTH}z\"/>");
        canvas.text("t", 12.0, 21.0, &panel.title);
        match panel.kind.as_str() {
            "bargauge" => marks::bars(&mut canvas, panel, lines),
            _ => plot::draw(&mut canvas, panel, lines, window),
        }
        let _ = writeln!(self.body, "<g transform=\"translate({x},{y})\">\n{}</g>", canvas.svg);
        self.panels += 1;
    }

    /// The whole file.
    pub fn finish(self) -> String {
        let width = GAP + 2.0 * (WIDTH + GAP);
        let height = GAP + f64::from(self.panels.div_ceil(2)) * (HEIGHT + GAP);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
             <style>{STYLE}</style>\n<path fill=\"#f4f5f5\" d=\"M0 0h{width}v{height}h-{width}z\"/>\n{}</svg>\n",
            self.body
        )
    }
}
