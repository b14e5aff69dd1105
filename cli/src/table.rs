//! Tables that fit their terminal.

pub(crate) use comfy_table::Cell;
use comfy_table::ColumnConstraint::{ContentWidth, Hidden, LowerBoundary};
use comfy_table::presets::NOTHING;
use comfy_table::{Attribute, Color, ContentArrangement, Table, Width};

use crate::page::Page;

const GAP: u16 = 2;
/// A sentence in a column of fewer characters is hard to read.
const TEXT_MIN: u16 = 24;
/// Maximum number of nodes in a sentence for people. Programs are told all.
const NAMED: usize = 6;

type Rows = Vec<Vec<Cell>>;

/// Returns rows under a title and a head of column names with `|` between them; nothing without rows. A column without any
/// content is left out. So are, on a narrow terminal, columns whose rank is not 0, the highest first. Only the last column is
/// wrapped.
pub(crate) fn section(title: &str, head: &str, ranks: &[u8], rows: Rows, page: &Page) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let mut table = Table::new();
    let names = head.split('|').map(Cell::new);
    table.set_header(names.map(|name| name.add_attribute(Attribute::Bold)));
    table.add_rows(rows);
    format!("\n{title}\n{}", fitted(table, ranks, page))
}

/// Returns lines that say what could not be looked at.
pub(crate) fn notes(notes: &[String], page: &Page) -> String {
    let fact = |note: &String| ("Not shown:", note.clone(), Some(Color::DarkYellow));
    facts(notes.iter().map(fact).collect(), page)
}

/// Returns lines of a key in this colour, and what there is to say of it.
pub(crate) fn facts(facts: Vec<(&str, String, Option<Color>)>, page: &Page) -> String {
    let mut table = Table::new();
    table.add_rows(facts.into_iter().map(|(key, value, color)| {
        let key = color.map_or_else(|| Cell::new(key), |color| Cell::new(key).fg(color));
        [key, Cell::new(page.sentence(&value))]
    }));
    fitted(table, &[0, 0], page)
}

fn fitted(mut table: Table, ranks: &[u8], page: &Page) -> String {
    if table.is_empty() {
        return String::new();
    }
    let mut needed = table.column_max_content_widths();
    let last = needed.len() - 1;
    for (index, width) in needed.iter_mut().enumerate() {
        let cells = table.column_cells_iter(index).flatten();
        let text: String = cells.map(|cell| cell.content() + " ").collect();
        let words = text.split([' ', '\n']).map(|word| word.chars().count());
        let longest = words.max().unwrap_or(0);
        if longest == 0 {
            *width = 0;
        } else if index == last {
            let longest = u16::try_from(longest).unwrap_or(u16::MAX);
            *width = longest.max(TEXT_MIN).min(*width);
        }
    }
    let room = page.columns.unwrap_or(u16::MAX).saturating_add(GAP);
    let fits = |needed: &[u16]| {
        let shown = needed.iter().filter(|width| **width > 0);
        shown
            .map(|width| u32::from(*width) + u32::from(GAP))
            .sum::<u32>()
            <= room.into()
    };
    let highest = |needed: &[u16]| {
        let ranked = (0..=last).filter(|index| needed[*index] > 0 && ranks[*index] > 0);
        ranked.max_by_key(|index| ranks[*index])
    };
    while !fits(&needed)
        && let Some(index) = highest(&needed)
    {
        needed[index] = 0;
    }
    let constraints = needed
        .into_iter()
        .enumerate()
        .map(|(index, width)| match width {
            0 => Hidden,
            width if index == last => LowerBoundary(Width::Fixed(width)),
            _ => ContentWidth,
        });
    table.set_constraints(constraints);
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    let table = table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic);
    let table = table.set_width(room).force_no_tty().enforce_styling();
    table.style_text_only();
    table.trim_fmt() + "\n"
}

/// Returns the first of these names, as many as this many characters have room for, and how many more there are.
pub(crate) fn some(names: &[String], room: usize) -> String {
    let listed = |count: usize| {
        let (first, more) = names.split_at(count.min(names.len()));
        match more.len() {
            0 => first.join(", "),
            more => format!("{} and {more} more", first.join(", ")),
        }
    };
    let fits = |count: &usize| listed(*count).chars().count() <= room;
    listed((1..=NAMED).rev().find(fits).unwrap_or(1))
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;
    use jiff::Timestamp;
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn narrow_terminals_leave_columns_out() {
        let head = "NODE|AGE|STATE|EMPTY|WHY";
        let rows = || {
            let why = "one two three four five six seven";
            let row = ["node-0", "5s", "Idle", "", why];
            let other = [
                Cell::new("node-1").fg(Color::DarkRed),
                Cell::new(""),
                Cell::new("Idle"),
                Cell::new(""),
                Cell::new("no\na, b"),
            ];
            vec![row.map(Cell::new).to_vec(), other.to_vec()]
        };
        let coloured = |columns| {
            let (now, flags) = (Timestamp::UNIX_EPOCH, String::new());
            section(
                "T",
                head,
                &[0, 1, 2, 0, 0],
                rows(),
                &Page {
                    now,
                    columns,
                    rows: None,
                    flags,
                    zone: TimeZone::UTC,
                },
            )
        };
        let shown = |columns| {
            strip_str(&coloured(columns))
                .to_string()
                .replace("\nT\n", "")
        };
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
        for (columns, names) in [
            (43, "NODE    AGE  WHY"),
            (36, "NODE    WHY"),
            (9, "NODE    WHY"),
        ] {
            assert_eq!(
                shown(Some(columns)).lines().next(),
                Some(names),
                "{columns}"
            );
        }
        assert!(coloured(None).contains("\u{1b}["));
    }

    #[test]
    fn names_are_told_as_far_as_there_is_room() {
        let names: Vec<String> = (0..9).map(|number| format!("node-{number}")).collect();
        assert_eq!(some(&names, 24), "node-0 and 8 more");
        assert_eq!(some(&names, 30), "node-0, node-1 and 7 more");
        assert_eq!(some(&names[..2], 14), "node-0, node-1");
        assert_eq!(some(&names, 3), "node-0 and 8 more");
        assert_eq!(some(&names, usize::MAX).matches("node-").count(), NAMED);
        assert_eq!(some(&[], 3), "");
    }
}
