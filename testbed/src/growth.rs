//! How figures grow with the number of nodes: as a table, and drawn.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::figures::{Figure, number};
use crate::svg::escaped;

/// Size of the drawing of one figure, and the space around its curve.
const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 200.0;
const MARGIN: f64 = 42.0;

/// What was measured with so many nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    nodes: usize,
    figures: Vec<Figure>,
}

impl Point {
    /// These figures, with so many nodes.
    pub fn new(nodes: usize, figures: Vec<Figure>) -> Self {
        Self { nodes, figures }
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// A figure is no number, or the file cannot be written.
    pub fn write(&self, to: &Path) -> Result<()> {
        for figure in &self.figures {
            ensure!(figure.value.is_finite(), "{} was not measured", figure.figure);
        }
        std::fs::write(to, serde_json::to_vec_pretty(self)?).with_context(|| to.display().to_string())
    }

    /// Reads it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn read(from: &Path) -> Result<Self> {
        let text = std::fs::read(from).with_context(|| from.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| from.display().to_string())
    }
}

/// A figure at each number of nodes.
struct Curve<'a> {
    name: &'a str,
    unit: &'a str,
    at: BTreeMap<usize, &'a Figure>,
}

/// All figures, in the order in which they were first seen.
fn curves(points: &[Point]) -> Vec<Curve<'_>> {
    let mut curves: Vec<Curve<'_>> = vec![];
    for (point, figure) in
        points.iter().flat_map(|point| point.figures.iter().map(move |figure| (point, figure)))
    {
        let known = curves.iter_mut().find(|curve| curve.name == figure.figure);
        if let Some(curve) = known {
            curve.at.insert(point.nodes, figure);
        } else {
            let at = BTreeMap::from([(point.nodes, figure)]);
            curves.push(Curve { name: &figure.figure, unit: &figure.unit, at });
        }
    }
    curves
}

fn all_nodes(points: &[Point]) -> Vec<usize> {
    let mut nodes: Vec<usize> = points.iter().map(|point| point.nodes).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// As a table that can be pasted into the documentation.
pub fn render(points: &[Point]) -> String {
    let nodes = all_nodes(points);
    let row = |first: &str, middle: Vec<String>, last: String| {
        format!("| {first} | {} | {last} |\n", middle.join(" | "))
    };
    let heads = nodes.iter().map(|nodes| format!("{nodes} nodes"));
    let mut text = row("figure", heads.collect(), "aim".to_owned());
    text.push('|');
    text.push_str(&"---|".repeat(nodes.len() + 2));
    text.push('\n');
    for curve in curves(points) {
        let value =
            |figure: &&Figure| figure.says() + if figure.met == Some(false) { " (missed)" } else { "" };
        let values = nodes.iter().map(|nodes| curve.at.get(nodes).map(value).unwrap_or_default());
        text.push_str(&row(curve.name, values.collect(), aims(&curve)));
    }
    text
}

/// The aims of a figure: one, if it is the same wherever it was measured; else each, and with how many nodes.
fn aims(curve: &Curve<'_>) -> String {
    let aims: Vec<_> = curve.at.iter().map(|(nodes, figure)| (nodes, figure.says_aim())).collect();
    if let [(_, Some(first)), others @ ..] = &aims[..]
        && others.iter().all(|(_, aim)| aim.as_ref() == Some(first))
    {
        return first.clone();
    }
    let aims = aims.iter().filter_map(|(nodes, aim)| Some(format!("{} with {nodes}", aim.as_ref()?)));
    aims.collect::<Vec<_>>().join("; ")
}

/// As an SVG: a small drawing of each figure, over the logarithm of the number of nodes and up from zero.
///
/// # Errors
/// There are not two numbers of nodes.
pub fn draw(points: &[Point]) -> Result<String> {
    let nodes = all_nodes(points);
    let (Some(least), Some(most)) = (nodes.first(), nodes.last()) else {
        anyhow::bail!("nothing was measured")
    };
    ensure!(least < most, "one number of nodes makes no curve");
    let log = |nodes: usize| number(nodes).log10();
    let x = |nodes: usize| {
        MARGIN + (log(nodes) - log(*least)) / (log(*most) - log(*least)) * (WIDTH - 2.0 * MARGIN)
    };
    let curves = curves(points);
    let height = HEIGHT * number(curves.len().div_ceil(2));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        2.0 * WIDTH
    );
    for (place, curve) in curves.iter().enumerate() {
        let (left, top) = (WIDTH * number(place % 2), HEIGHT * number(place / 2));
        // Writing to a String does not fail.
        let _ = writeln!(
            svg,
            "<g transform=\"translate({left:.0} {top:.0})\">\n{}</g>",
            draw_one(curve, &nodes, &x)
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn draw_one(curve: &Curve<'_>, nodes: &[usize], x: &impl Fn(usize) -> f64) -> String {
    let highest = curve.at.values().map(|figure| figure.value).fold(0.0, f64::max);
    let bottom = HEIGHT - MARGIN;
    let y =
        |value: f64| if highest > 0.0 { bottom - value / highest * (HEIGHT - 2.0 * MARGIN) } else { bottom };
    let unit = if curve.unit.is_empty() { String::new() } else { format!(" ({})", curve.unit) };
    let mut svg = format!(
        "<text x=\"{MARGIN}\" y=\"18\" font-weight=\"bold\">{}{unit}</text>\n\
         <path d=\"M{MARGIN} {bottom}H{}\" stroke=\"gray\"/>\n",
        escaped(curve.name),
        WIDTH - MARGIN
    );
    for nodes in nodes {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"gray\">{nodes}</text>",
            x(*nodes),
            bottom + 16.0
        );
    }
    let line: Vec<String> =
        curve.at.iter().map(|(nodes, figure)| format!("{:.1},{:.1}", x(*nodes), y(figure.value))).collect();
    let _ = writeln!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"steelblue\"/>", line.join(" "));
    for (nodes, figure) in &curve.at {
        let (x, y) = (x(*nodes), y(figure.value));
        let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"steelblue\"/>");
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            y - 7.0,
            escaped(&figure.says())
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points() -> Vec<Point> {
        let point = |nodes, seconds| Point::new(nodes, vec![Figure::new("known -> spec", seconds, "s")]);
        vec![point(1000, 4.0), point(10, 1.0), point(100, 2.0)]
    }

    #[test]
    fn a_row_has_each_number_of_nodes_in_order() {
        let text = render(&points());
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], "| figure | 10 nodes | 100 nodes | 1000 nodes | aim |");
        assert_eq!(rows[2], "| known -> spec | 1.00 s | 2.00 s | 4.00 s |  |");
    }

    #[test]
    fn aims_are_told_once_or_by_the_number_of_nodes() {
        let with_aims = |aims: [Option<f64>; 3]| {
            let mut points = points();
            for (point, aim) in points.iter_mut().zip(aims) {
                point.figures[0] = point.figures[0].clone().aim_if_any(aim);
            }
            render(&points).lines().last().map(str::to_owned).unwrap()
        };
        let all = with_aims([Some(3.0); 3]);
        assert_eq!(all, "| known -> spec | 1.00 s | 2.00 s | 4.00 s (missed) | 3.00 s |");
        let two = with_aims([Some(5.0), Some(1.0), None]);
        assert_eq!(two, "| known -> spec | 1.00 s | 2.00 s | 4.00 s | 1.00 s with 10; 5.00 s with 1000 |");
    }

    #[test]
    fn what_was_not_measured_is_left_empty() {
        let mut points = points();
        points[1].figures.clear();
        assert!(render(&points).contains("| known -> spec |  | 2.00 s | 4.00 s |  |"));
    }

    #[test]
    fn a_curve_goes_from_left_to_right_in_equal_steps_and_up() {
        let svg = draw(&points()).unwrap();
        assert!(svg.contains(r#"points="42.0,129.0 170.0,100.0 298.0,42.0""#), "{svg}");
        assert!(svg.contains("known -&gt; spec (s)"));
        assert!(draw(&points()[..1]).is_err());
    }
}
