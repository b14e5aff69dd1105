//! Prints the figures with their aims, as a table.

use std::fmt::Write as _;

use jiff::Timestamp;

/// One figure. The less, the better.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    pub name: String,
    /// The measured value, in `unit`.
    pub value: f64,
    /// The unit; ratios and counts have none.
    unit: &'static str,
    /// The value that it should not exceed.
    aim: Option<f64>,
    /// The way of measuring, where that is not obvious.
    note: String,
}

impl Figure {
    /// A figure without an aim.
    pub fn new(name: impl Into<String>, value: f64, unit: &'static str) -> Self {
        Self {
            name: name.into(),
            value,
            unit,
            aim: None,
            note: String::new(),
        }
    }

    /// It should not exceed this.
    #[must_use]
    pub fn aim(mut self, aim: f64) -> Self {
        self.aim = Some(aim);
        self
    }

    /// Returns how it was measured.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    fn text(&self, value: f64) -> String {
        let decimals = if ["MiB", "%"].contains(&self.unit) {
            1
        } else {
            2
        };
        format!("{value:.decimals$} {}", self.unit)
            .trim_end()
            .to_owned()
    }
}

/// All figures of a run, and where it took place.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// When and where it began, and what else ran there.
    began: String,
    /// The figures that were measured.
    pub figures: Vec<Figure>,
}

impl Report {
    /// Makes a report without figures.
    pub fn begin() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (processors, load) = (read("/proc/cpuinfo"), read("/proc/loadavg"));
        let mut fields = processors.lines().filter_map(|line| line.split_once(':'));
        let processor = fields.find(|(field, _)| field.starts_with("model name"));
        let processor = processor.map_or("", |(_, name)| name.trim());
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let load = load.split(' ').next().unwrap_or_default();
        let now = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
        Self {
            began: format!("{now}, {processor}, {cores} cores, load {load} before"),
            figures: vec![],
        }
    }

    /// A table that can be pasted into the documentation.
    pub fn render(&self) -> String {
        let mut text = format!(
            "{}\n\n| figure | value | aim | met |\n|---|---|---|---|\n",
            self.began
        );
        for figure in &self.figures {
            let aim = figure.aim.map(|aim| figure.text(aim)).unwrap_or_default();
            let is_met = |aim| if figure.value <= aim { "yes" } else { "no" };
            let met = figure.aim.map_or("", is_met);
            let note = if figure.note.is_empty() {
                String::new()
            } else {
                format!(" ({})", figure.note)
            };
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "| {}{note} | {} | {aim} | {met} |",
                figure.name,
                figure.text(figure.value)
            );
        }
        text
    }
}

/// A count as a number to calculate with.
pub fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::NAN, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_says_whether_its_aim_is_met() {
        let figures = vec![
            Figure::new("overhead", 0.204, "s").aim(0.2),
            Figure::new("memory", 5.46, "MiB").aim(5.5).note("at most"),
            Figure::new("updates", 3.0, ""),
        ];
        let report = Report {
            began: String::new(),
            figures,
        };
        let text = report.render();
        let rows: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with("| "))
            .skip(1)
            .collect();
        assert_eq!(
            rows,
            [
                "| overhead | 0.20 s | 0.20 s | no |",
                "| memory (at most) | 5.5 MiB | 5.5 MiB | yes |",
                "| updates | 3.00 |  |  |",
            ]
        );
    }
}
