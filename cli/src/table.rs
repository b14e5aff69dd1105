//! Tables that fit their terminal: names and reasons are never broken, and sentences only between words. Columns that do not
//! matter most are left out where there is no room for them.

use anstyle::Style;

use crate::page::{Page, Tone, width, wrapped};

/// Between two columns.
const GAP: usize = 2;
/// Before what stands below.
const INDENT: usize = 2;
/// A sentence in a column of fewer characters is hard to read.
const TEXT_MIN: usize = 24;
/// Maximum number of nodes in a sentence for people; programs are told all.
const NAMED: usize = 6;

/// A column's name, and its rank: 0 is always there, the others are left out on narrow terminals, the highest first. The last
/// column holds sentences if its rank is 0.
pub(crate) type Head = (&'static str, u8);

/// What stands in one place of a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    words: String,
    style: Style,
    /// Named on a line of their own.
    nodes: Vec<String>,
}

impl Cell {
    pub fn new(words: impl Into<String>) -> Self {
        Self {
            words: words.into(),
            ..Self::default()
        }
    }

    /// In this tone.
    pub fn toned(tone: Tone, words: &str) -> Self {
        Self {
            words: words.to_owned(),
            style: tone.style(),
            ..Self::default()
        }
    }

    /// With as many of these nodes below as have room on a line.
    pub fn above(self, nodes: &[String]) -> Self {
        Self {
            nodes: nodes.to_vec(),
            ..self
        }
    }

    fn is_empty(&self) -> bool {
        self.words.is_empty() && self.nodes.is_empty()
    }

    /// Its width, if nothing has to be wrapped.
    fn natural(&self) -> usize {
        let nodes = if self.nodes.is_empty() {
            0
        } else {
            width(&some(&self.nodes, usize::MAX))
        };
        self.words
            .split('\n')
            .map(width)
            .max()
            .unwrap_or(0)
            .max(nodes)
    }

    fn paint(&self, words: &str) -> String {
        let style = self.style;
        if words.is_empty() {
            String::new()
        } else {
            format!("{style}{words}{style:#}")
        }
    }
}

/// Rows under a head of column names; empty without rows. A column without any content is left out.
pub(crate) fn table(head: &[Head], rows: &[Vec<Cell>], page: &Page) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let pasteable = |cell: &Cell| Cell {
        words: page.pasteable(&cell.words),
        ..cell.clone()
    };
    let rows: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| row.iter().map(pasteable).collect())
        .collect();
    let bold = |name| Cell {
        style: Style::new().bold(),
        ..Cell::new(name)
    };
    let mut names: Vec<Cell> = head.iter().map(|(name, _)| bold(*name)).collect();
    let mut columns = vec![];
    for (index, (name, rank)) in head.iter().enumerate() {
        let cells = || rows.iter().filter_map(|row| row.get(index));
        if cells().all(Cell::is_empty) {
            continue;
        }
        let widest = cells().map(Cell::natural).max().unwrap_or(0);
        columns.push(Column {
            index,
            rank: *rank,
            natural: widest.max(width(name)),
        });
    }
    let layout = Layout::fit(&columns, page.width());
    // Sentences below their rows speak for themselves.
    if let Some([text]) = layout.below.as_ref().map(|below| below.columns.as_slice())
        && let Some(name) = names.get_mut(text.index)
    {
        *name = Cell::default();
    }
    let lines = std::iter::once(&names)
        .chain(&rows)
        .flat_map(|row| layout.lines(row));
    lines
        .map(|line| line.trim_end().to_owned() + "\n")
        .filter(|line| line != "\n")
        .collect()
}

#[derive(Clone, Copy)]
struct Column {
    index: usize,
    rank: u8,
    natural: usize,
}

/// Which columns are shown, and how wide.
struct Layout {
    columns: Vec<Column>,
    /// The room for the last of them.
    last: usize,
    /// The columns that stand below the first.
    below: Option<Box<Self>>,
}

impl Layout {
    /// Sentences beside all the rest, or below what has room, or all below the first column.
    fn fit(all: &[Column], width: usize) -> Self {
        let below = |columns| Some(Box::new(Self::fit(columns, width.saturating_sub(INDENT))));
        let (first, rest) = all.split_at(all.len().min(1));
        match all.split_last() {
            Some((text, others)) if text.rank == 0 && !others.is_empty() => {
                if let Some(beside) = Self::on_one_line(all, text.natural.min(TEXT_MIN), width) {
                    return beside;
                }
                if let Some(above) = Self::with_what_has_room(others, width) {
                    return Self {
                        below: below(std::slice::from_ref(text)),
                        ..above
                    };
                }
            }
            _ => {
                if let Some(line) = Self::with_what_has_room(all, width) {
                    return line;
                }
            }
        }
        Self {
            columns: first.to_vec(),
            last: width,
            below: below(rest),
        }
    }

    /// Without those columns of the highest rank for which there is no room.
    fn with_what_has_room(all: &[Column], width: usize) -> Option<Self> {
        let mut columns = all.to_vec();
        loop {
            let last = columns.last()?.natural;
            if let Some(line) = Self::on_one_line(&columns, last, width) {
                return Some(line);
            }
            let highest = columns
                .iter()
                .enumerate()
                .max_by_key(|(_, column)| column.rank);
            let (at, _) = highest.filter(|(_, column)| column.rank > 0)?;
            columns.remove(at);
        }
    }

    /// If the last column has so much room; a single one takes what there is.
    fn on_one_line(columns: &[Column], needed: usize, width: usize) -> Option<Self> {
        let others = columns.split_last()?.1;
        let before: usize = others.iter().map(|column| column.natural + GAP).sum();
        let fits = others.is_empty() || before + needed <= width;
        fits.then(|| Self {
            columns: columns.to_vec(),
            last: width.saturating_sub(before),
            below: None,
        })
    }

    fn lines(&self, row: &[Cell]) -> Vec<String> {
        let Some((last, others)) = self.columns.split_last() else {
            return vec![];
        };
        let cell = |column: &Column| row.get(column.index).cloned().unwrap_or_default();
        let (mut before, mut indent) = (String::new(), 0);
        for column in others {
            let (cell, room) = (cell(column), column.natural + GAP);
            let blank = " ".repeat(room.saturating_sub(width(&cell.words)));
            before.extend([cell.paint(&cell.words), blank]);
            indent += room;
        }
        let cell = cell(last);
        let mut lines = vec![];
        for line in wrapped(&cell.words, self.last) {
            lines.push(std::mem::replace(&mut before, " ".repeat(indent)) + &cell.paint(&line));
        }
        if let Some(first) = cell.nodes.first() {
            let indent = if width(first) > self.last {
                INDENT.min(indent)
            } else {
                indent
            };
            let room = before
                .len()
                .saturating_add(self.last)
                .saturating_sub(indent);
            lines.push(" ".repeat(indent) + &some(&cell.nodes, room));
        }
        let below = self.below.iter().flat_map(|below| below.lines(row));
        lines.extend(below.map(|line| format!("{}{line}", " ".repeat(INDENT))));
        lines
    }
}

/// The first of these nodes, at most as many as the characters have room for, and how many more there are.
pub(crate) fn some(nodes: &[String], columns: usize) -> String {
    let named = |count: usize| {
        let names = nodes.get(..count).unwrap_or(nodes).join(", ");
        let more = nodes.len().saturating_sub(count);
        if more > 0 {
            format!("{names} and {more} more")
        } else {
            names
        }
    };
    let fits = |count: &usize| width(&named(*count)) <= columns;
    named((1..=nodes.len().min(NAMED)).rev().find(fits).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use jiff::Timestamp;

    use super::*;

    fn page(columns: Option<u16>) -> Page {
        Page {
            now: Timestamp::UNIX_EPOCH,
            columns,
            flags: String::new(),
        }
    }

    fn plain(head: &[Head], rows: &[Vec<Cell>], columns: Option<u16>) -> String {
        strip_str(&table(head, rows, &page(columns))).to_string()
    }

    #[test]
    fn sentences_are_wrapped_and_columns_are_left_out() {
        let head = [
            ("NODE", 0),
            ("AGE", 1),
            ("STATE", 2),
            ("EMPTY", 0),
            ("WHY", 0),
        ];
        let why = "one two three four five six seven";
        let rows = [
            ["node-0", "5s", "Idle", "", why].map(Cell::new).to_vec(),
            vec![
                Cell::toned(Tone::Bad, "node-1"),
                Cell::new(""),
                Cell::new("Idle"),
                Cell::new(""),
                Cell::new("no").above(&["a".to_owned(), "b".to_owned()]),
            ],
        ];
        let shown = |columns| plain(&head, &rows, columns);
        assert_eq!(
            shown(None),
            "NODE    AGE  STATE  WHY\nnode-0  5s   Idle   one two three four five six seven\n\
             node-1       Idle   no\n                    a, b\n"
        );
        assert_eq!(
            shown(Some(44)),
            "NODE    AGE  STATE  WHY\nnode-0  5s   Idle   one two three four five\n                    six seven\n\
             node-1       Idle   no\n                    a, b\n"
        );
        assert_eq!(
            shown(Some(43)),
            "NODE    AGE  STATE\nnode-0  5s   Idle\n  one two three four five six seven\nnode-1       Idle\n  no\n  a, b\n"
        );
        assert_eq!(shown(Some(17)).lines().next(), Some("NODE    AGE"));
        assert_eq!(
            shown(Some(8)).lines().take(4).collect::<Vec<_>>(),
            ["NODE", "node-0", "  one", "  two"]
        );
        assert!(table(&head, &rows, &page(None)).contains("\u{1b}["));
        assert_eq!(plain(&head, &[], None), "");
    }

    #[test]
    fn nodes_are_named_as_far_as_there_is_room() {
        let nodes: Vec<String> = (0..9).map(|number| format!("node-{number}")).collect();
        assert_eq!(some(&nodes, 24), "node-0 and 8 more");
        assert_eq!(some(&nodes, 30), "node-0, node-1 and 7 more");
        assert_eq!(some(&nodes[..2], 14), "node-0, node-1");
        assert_eq!(some(&nodes, 3), "node-0 and 8 more");
        assert_eq!(some(&nodes, usize::MAX).matches("node-").count(), NAMED);
    }

    #[test]
    fn words_are_not_broken() {
        assert_eq!(wrapped("a bc defghi", 4), ["a bc", "defghi"]);
        assert_eq!(wrapped("", 4), [""]);
        assert_eq!(wrapped("a\nb", 4), ["a", "b"]);
        assert_eq!(wrapped("do `a b c` d", 4), ["do", "`a b c`", "d"]);
    }
}
