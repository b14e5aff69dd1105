//! What benchmarks have measured: each figure with its aim, as a table and as JSON.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// One figure. The less, the better.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// What was measured.
    pub figure: String,
    /// In this unit.
    pub value: f64,
    /// Empty of ratios and counts.
    pub unit: String,
    /// What it should not exceed.
    pub aim: Option<f64>,
    /// Does it?
    pub met: Option<bool>,
    /// How it was measured, where that is not obvious.
    pub note: String,
}

impl Figure {
    /// A figure without an aim.
    pub fn new(figure: impl Into<String>, value: f64, unit: &str) -> Self {
        let (figure, unit) = (figure.into(), unit.to_owned());
        Self { figure, value, unit, aim: None, met: None, note: String::new() }
    }

    /// It should not exceed this.
    #[must_use]
    pub fn aim(mut self, aim: f64) -> Self {
        self.aim = Some(aim);
        self.met = Some(self.value <= aim);
        self
    }

    /// It should not exceed this, if there is an aim.
    #[must_use]
    pub fn aim_if_any(self, aim: Option<f64>) -> Self {
        match aim {
            Some(aim) => self.aim(aim),
            None => self,
        }
    }

    /// The aim as it stands in tables, if there is one.
    pub fn says_aim(&self) -> Option<String> {
        self.aim.map(|aim| self.text(aim))
    }

    /// How it was measured.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// The value as it stands in tables.
    pub fn says(&self) -> String {
        self.text(self.value)
    }

    fn text(&self, value: f64) -> String {
        let decimals = match self.unit.as_str() {
            "MiB" | "%" => 1,
            _ => 2,
        };
        format!("{value:.decimals$} {}", self.unit).trim_end().to_owned()
    }
}

/// All figures of a run, and where it took place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// When it began.
    pub began: Timestamp,
    /// On what.
    pub machine: Machine,
    /// What was measured.
    pub figures: Vec<Figure>,
}

/// A machine, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// How many cores this process may use.
    pub cores: usize,
    /// Memory, in GiB.
    pub memory_gib: f64,
    /// The load average of the last minute, before anything was measured: what else runs.
    pub load: f64,
}

impl Machine {
    /// This one.
    pub fn here() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let (processors, memory, load) =
            (read("/proc/cpuinfo"), read("/proc/meminfo"), read("/proc/loadavg"));
        let after = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.trim_start_matches([':', '\t', ' ']).to_owned()
        };
        let first = |text: &str| text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        Self {
            processor: after(&processors, "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_gib: first(&after(&memory, "MemTotal")).unwrap_or_default() / 1024.0 / 1024.0,
            load: first(&load).unwrap_or_default(),
        }
    }
}

impl Report {
    /// A report of what is measured from now on.
    pub fn begin() -> Self {
        Self { began: Timestamp::now(), machine: Machine::here(), figures: vec![] }
    }

    /// As a table that can be pasted into the documentation.
    pub fn render(&self) -> String {
        let Machine { processor, cores, memory_gib, load } = &self.machine;
        let date = self.began.strftime("%Y-%m-%d %H:%M UTC");
        let mut text =
            format!("{date}, {processor}, {cores} cores, {memory_gib:.0} GiB, load {load:.1} before\n\n");
        text.push_str("| figure | value | aim | met |\n|---|---|---|---|\n");
        for figure in &self.figures {
            let aim = figure.aim.map(|aim| figure.text(aim)).unwrap_or_default();
            let met = figure.met.map_or("", |met| if met { "yes" } else { "no" });
            let note = if figure.note.is_empty() { String::new() } else { format!(" ({})", figure.note) };
            // Writing to a String does not fail.
            let _ = writeln!(text, "| {}{note} | {} | {aim} | {met} |", figure.figure, figure.says());
        }
        text
    }

    /// Writes it as JSON.
    ///
    /// # Errors
    /// A figure is no number, or the file cannot be written.
    pub fn write(&self, to: &Path) -> Result<()> {
        check(&self.figures)?;
        write(self, to)
    }
}

/// Writes figures for another program to take over.
///
/// # Errors
/// A figure is no number, or the file cannot be written.
pub fn hand_over(figures: &[Figure], to: &Path) -> Result<()> {
    check(figures)?;
    write(&figures, to)
}

/// Reads what another program has handed over.
///
/// # Errors
/// The file cannot be read.
pub fn take_over(from: &Path) -> Result<Vec<Figure>> {
    let text = std::fs::read(from).with_context(|| from.display().to_string())?;
    Ok(serde_json::from_slice(&text)?)
}

fn check(figures: &[Figure]) -> Result<()> {
    for figure in figures {
        ensure!(figure.value.is_finite(), "{} was not measured", figure.figure);
    }
    Ok(())
}

fn write<T: Serialize>(what: &T, to: &Path) -> Result<()> {
    std::fs::write(to, serde_json::to_vec_pretty(what)?).with_context(|| to.display().to_string())
}

/// The middle one; of an even number the later of the two.
pub fn median<T: PartialOrd + Copy>(values: impl IntoIterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    values.get(values.len() / 2).copied()
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
        let report = Report { began: Timestamp::UNIX_EPOCH, machine: Machine::default(), figures };
        let text = report.render();
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
        assert_eq!(
            rows,
            [
                "| overhead | 0.20 s | 0.20 s | no |",
                "| memory (at most) | 5.5 MiB | 5.5 MiB | yes |",
                "| updates | 3.00 |  |  |",
            ]
        );
    }

    #[test]
    fn what_was_not_measured_is_an_error() {
        let sandbox = crate::Sandbox::new().unwrap();
        let file = sandbox.dir().join("figures.json");
        let good = [Figure::new("a", 1.0, "s").aim(2.0)];
        hand_over(&good, &file).unwrap();
        assert_eq!(take_over(&file).unwrap(), good);
        assert!(hand_over(&[Figure::new("b", f64::NAN, "s")], &file).is_err());
    }

    #[test]
    fn the_median_is_one_of_the_values() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([1, 2, 3, 4]), Some(3));
        assert_eq!(median::<u8>([]), None);
    }
}
