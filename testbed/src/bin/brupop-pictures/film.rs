//! Frames of a terminal as one SVG, which moves by itself: a strip of all frames, one of which is seen at a time.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::recording::{COLUMNS, Frame, ROWS};
use brupop_testbed::svg::escaped;

/// What a person would have typed.
const PROMPT: &str = "\u{1b}[2m$\u{1b}[0m kubectl brupop status -w";
/// For how many seconds the last frame stays.
const REST: f64 = 6.0;
const LINE: usize = 17;
const MARGIN: usize = 12;
/// As terminals have them, on a dark ground.
const STYLE: &str = "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#d0d7de;white-space:pre}\
                     .s1{font-weight:700}.s2{fill:#8b949e}.s31{fill:#ff7b72}.s32{fill:#7ee787}.s33{fill:#f2cc60}\
                     .s34{fill:#79c0ff}.s35{fill:#d2a8ff}.s36{fill:#76e3ea}";

/// What a terminal is told about the text that follows; colours may be written in two ways.
fn class(codes: &str) -> Option<String> {
    let code = codes.strip_prefix("38;5;").map_or_else(|| codes.to_owned(), |colour| format!("3{colour}"));
    ["1", "2", "31", "32", "33", "34", "35", "36"].contains(&code.as_str()).then(|| format!("s{code}"))
}

/// A line with its colours.
fn styled(line: &str) -> String {
    let (mut text, mut classes) = (String::new(), Vec::new());
    let mut parts = line.split('\u{1b}');
    text += &escaped(parts.next().unwrap_or_default());
    for part in parts {
        let Some((codes, rest)) = part.strip_prefix('[').and_then(|part| part.split_once('m')) else {
            continue;
        };
        match codes {
            "" | "0" | "39" => classes.clear(),
            codes => classes.extend(class(codes)),
        }
        let rest = escaped(rest);
        if rest.is_empty() {
        } else if classes.is_empty() {
            text += &rest;
        } else {
            let _ = write!(text, "<tspan class=\"{}\">{rest}</tspan>", classes.join(" "));
        }
    }
    text
}

/// The whole file.
pub fn of(frames: &[Frame]) -> String {
    // About how wide a letter is, in tenths.
    let (width, height) = (COLUMNS * 79 / 10 + 2 * MARGIN, (ROWS + 1) * LINE + 2 * MARGIN);
    let mut known = BTreeMap::new();
    let (mut definitions, mut strip, mut moves) = (String::new(), String::new(), String::new());
    let seconds: Vec<f64> = frames.iter().map(|frame| frame.at.as_secs_f64()).collect();
    let first = seconds.first().copied().unwrap_or_default();
    let length = seconds.last().copied().unwrap_or_default() - first + REST;
    for (number, (frame, at)) in frames.iter().zip(&seconds).enumerate() {
        let _ = writeln!(
            moves,
            "{:.2}%{{transform:translateY(-{}px)}}",
            (at - first) / length * 100.0,
            number * height
        );
        for (row, line) in std::iter::once(PROMPT).chain(frame.lines.iter().map(String::as_str)).enumerate() {
            if line.is_empty() {
                continue;
            }
            let next = known.len();
            let id = *known.entry(line.to_owned()).or_insert_with(|| {
                let _ = writeln!(definitions, "<text id=\"l{next}\">{}</text>", styled(line));
                next
            });
            let y = number * height + MARGIN + (row + 1) * LINE - 4;
            let _ = write!(strip, "<use href=\"#l{id}\" x=\"{MARGIN}\" y=\"{y}\"/>");
        }
        strip.push('\n');
    }
    let last = frames.len().saturating_sub(1) * height;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" xml:space=\"preserve\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n<style>\n{STYLE}\n\
         #f{{animation:f {length:.1}s step-end infinite}}\n@keyframes f{{\n{moves}}}\n\
         @media(prefers-reduced-motion:reduce){{#f{{animation:none;transform:translateY(-{last}px)}}}}\n</style>\n\
         <defs>\n{definitions}</defs>\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" fill=\"#0d1117\"/>\n<g id=\"f\">\n{strip}</g>\n</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn colours_are_classes() {
        assert_eq!(styled("a\u{1b}[1m\u{1b}[38;5;2mb<\u{1b}[0mc"), "a<tspan class=\"s1 s32\">b&lt;</tspan>c");
        assert_eq!(styled("\u{1b}[2m\u{1b}[0ma"), "a");
    }

    #[test]
    fn a_line_is_written_once() {
        let frame = |at, line: &str| Frame {
            at: Duration::from_secs(at),
            lines: vec!["same".to_owned(), line.to_owned()],
        };
        let film = of(&[frame(1, "a"), frame(3, "b")]);
        assert_eq!(film.matches(">same<").count(), 1);
        assert!(film.contains("25.00%{"), "{film}");
    }
}
