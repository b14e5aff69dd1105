//! How views are printed: as tables for people, or as JSON or YAML for programs.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use brupop_api::crds::MESSAGE_MAX;
use brupop_api::printable::printable;
use comfy_table::{Attribute, Cell, Color, ContentArrangement, Table};
use jiff::Timestamp;
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::Error;
use crate::arguments::Output;

/// Between two columns.
const GAP: u16 = 2;

/// What a table is made for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub now: Timestamp,
    /// The width of the terminal; `None` = no limit.
    pub columns: Option<u16>,
}

/// Something to be printed. Its texts are printable already.
pub(crate) trait View: Serialize {
    /// As a text for people, which ends with a line break. It has colours, which are removed where they do not belong.
    fn text(&self, page: &Page) -> String;
}

/// What a cell or a word tells people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Moving,
    Attention,
    Bad,
}

impl Tone {
    fn color(self) -> (Color, AnsiColor) {
        match self {
            Self::Good => (Color::DarkGreen, AnsiColor::Green),
            Self::Moving => (Color::DarkCyan, AnsiColor::Cyan),
            Self::Attention => (Color::DarkYellow, AnsiColor::Yellow),
            Self::Bad => (Color::DarkRed, AnsiColor::Red),
        }
    }

    /// The words in this tone.
    pub fn paint(self, words: &str) -> String {
        let style = Style::new().fg_color(Some(self.color().1.into()));
        format!("{style}{words}{style:#}")
    }

    /// A cell in this tone.
    pub fn cell(self, words: &str) -> Cell {
        Cell::new(words).fg(self.color().0)
    }
}

/// Rows under a head of column names, without lines between them; empty without rows.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<Cell>>, page: &Page) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    // Nothing here asks the terminal, so that the same values make the same text everywhere.
    table.force_no_tty().enforce_styling().set_content_arrangement(ContentArrangement::Dynamic);
    if let Some(columns) = page.columns {
        table.set_width(columns);
    }
    table.load_style(comfy_table::presets::NOTHING);
    // Not the blanks behind it, which are cut off at the end of a line.
    table.style_text_only();
    table.set_header(head.iter().map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    table.add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    let lines = table.lines().map(|line| line.trim_end().to_owned() + "\n");
    lines.collect()
}

/// A paragraph under a title.
pub(crate) fn section(title: &str, content: &str) -> String {
    if content.is_empty() {
        return String::new();
    }
    let bold = Style::new().bold();
    format!("\n{bold}{title}{bold:#}\n{content}")
}

/// For how long, in the unit that says most, as kubectl writes it: `45s`, `3m`, `2h`, `5d`. A time that is to come, or is none,
/// stays as it is.
pub(crate) fn age(since: &str, now: Timestamp) -> String {
    let seconds = since.parse::<Timestamp>().map(|since| now.duration_since(since).as_secs());
    match seconds {
        Ok(seconds @ 0..120) => format!("{seconds}s"),
        Ok(seconds @ 120..7_200) => format!("{}m", seconds / 60),
        Ok(seconds @ 7_200..172_800) => format!("{}h", seconds / 3_600),
        Ok(seconds @ 172_800..) => format!("{}d", seconds / 86_400),
        Ok(_) | Err(_) => since.to_owned(),
    }
}

/// A text from outside, fit to be shown.
pub(crate) fn shown(text: &str, limit: usize) -> String {
    printable(text, limit).into_owned()
}

/// The view as it is printed.
pub(crate) fn rendered(view: &impl View, output: Output, page: &Page) -> Result<String, Error> {
    Ok(match output {
        Output::Table => view.text(page),
        Output::Json => serde_json::to_string_pretty(view)? + "\n",
        Output::Yaml => serde_yaml_ng::to_string(view)?,
    })
}

/// Prints a view.
pub(crate) fn print(view: &impl View, output: Output, page: &Page) -> Result<(), Error> {
    write_out(&rendered(view, output, page)?)
}

/// Writes to standard output; without colours where there is no terminal, or `NO_COLOR` is set. Nobody may be reading any
/// more, as behind `head`: that is no error.
pub(crate) fn write_out(text: &str) -> Result<(), Error> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Writes to the terminal that standard output is: [`write_out`] would take control of the cursor for a colour.
pub(crate) fn write_to_terminal(text: &str) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}

/// The text without colours if standard output is to have none.
pub(crate) fn tinted(text: &str) -> String {
    match AutoStream::choice(&std::io::stdout()) {
        ColorChoice::Never => strip_str(text).to_string(),
        _ => text.to_owned(),
    }
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub columns: u16,
    pub rows: u16,
}

/// The size of the terminal that standard output is, if it is one.
pub(crate) fn terminal() -> Option<Size> {
    let out = std::io::stdout();
    let size = tcgetwinsize(&out).ok().filter(|_| out.is_terminal())?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size { columns: size.ws_col, rows: size.ws_row })
}

/// What a command has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Changed {
    /// Was anything written?
    pub changed: bool,
    /// What is so now.
    pub says: String,
}

impl View for Changed {
    fn text(&self, _: &Page) -> String {
        let says = shown(&self.says, 2 * MESSAGE_MAX);
        if self.changed { Tone::Good.paint(&says) + "\n" } else { says + "\n" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        let now: Timestamp = "2026-11-21T04:00:00Z".parse().unwrap();
        for (since, expected) in [
            ("2026-11-21T04:00:00Z", "0s"),
            ("2026-11-21T03:58:01Z", "119s"),
            ("2026-11-21T03:58:00Z", "2m"),
            ("2026-11-21T02:00:01Z", "119m"),
            ("2026-11-20T04:00:00Z", "24h"),
            ("2026-11-11T04:00:00Z", "10d"),
            ("2026-11-21T05:00:00Z", "2026-11-21T05:00:00Z"),
            ("soon", "soon"),
        ] {
            assert_eq!(age(since, now), expected, "{since}");
        }
    }

    #[test]
    fn a_long_cell_is_wrapped_to_the_terminal() {
        let page = |columns| Page { now: Timestamp::UNIX_EPOCH, columns };
        let rows = || vec![vec![Tone::Bad.cell("a"), Cell::new("one two three four five six seven")]];
        let plain = |columns| strip_str(&table(&["X", "WHY"], rows(), &page(columns))).to_string();
        assert_eq!(plain(None), "X  WHY\na  one two three four five six seven\n");
        assert!(plain(Some(20)).lines().count() > 2 && plain(Some(20)).lines().all(|line| line.len() <= 20));
        assert!(table(&["X", "WHY"], rows(), &page(None)).contains("\u{1b}["));
        assert_eq!(table(&["X"], vec![], &page(None)), "");
    }
}
