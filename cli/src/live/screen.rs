//! Where `status -w` is drawn.

use brupop_api::crds::MESSAGE_MAX;
use jiff::Timestamp;

use super::Brought;
use crate::Error;
use crate::arguments::Output;
use crate::page::{Page, Size, Tone, rendered, terminal, tinted, write_out, write_to_terminal};
use crate::report::status;
use crate::words::shown;

/// On a terminal it is drawn after this many times [`SHORTEST`](super::SHORTEST) though nothing has changed, for the ages.
const STALE: u32 = 5;
/// Goes to the first line, and has the terminal cut long lines.
const BEGIN: &str = "\u{1b}[H\u{1b}[?7l";
/// Clears the rest of a line, and goes on to the next.
const END_OF_LINE: &str = "\u{1b}[K\n";
/// Clears what is below, and has the terminal wrap long lines again.
const END: &str = "\u{1b}[J\u{1b}[?7h";

/// Where it is drawn.
pub(super) struct Screen {
    output: Output,
    /// How the cluster is named on the command line.
    flags: String,
    /// What was drawn last.
    last: String,
    idle_ticks: u32,
}

impl Screen {
    pub(super) fn new(output: Output, flags: String) -> Self {
        Self {
            output,
            flags,
            last: String::new(),
            idle_ticks: 0,
        }
    }

    pub(super) fn draw(&mut self, brought: &mut Brought) -> Result<(), Error> {
        let size = terminal().filter(|_| self.output == Output::Table);
        self.idle_ticks += 1;
        let stale = size.is_some() && self.idle_ticks >= STALE;
        let Some(fleet) = brought.fleet().filter(|_| brought.changed || stale) else {
            return Ok(());
        };
        (brought.changed, self.idle_ticks) = (false, 0);
        let page = Page {
            now: Timestamp::now(),
            columns: size.map(|size| size.columns),
            flags: self.flags.clone(),
        };
        let mut text = rendered(&status::of(&fleet), self.output, &page)?;
        if let (Some(trouble), Output::Table) = (&brought.trouble, self.output) {
            text += "\n";
            text += &Tone::Bad.paragraph("Trouble:", &shown(trouble, MESSAGE_MAX), &page);
        }
        match size {
            Some(size) => write_to_terminal(&framed(&tinted(&text), size)),
            None if text == self.last => Ok(()),
            None => {
                let separator = match self.output {
                    Output::Yaml => "---\n",
                    Output::Table if !self.last.is_empty() => "\n",
                    Output::Table | Output::Json => "",
                };
                let written = write_out(&format!("{separator}{text}"));
                self.last = text;
                written
            }
        }
    }
}

/// The text in place of what the terminal shows: each line over an old one, as many as it has room for.
fn framed(text: &str, size: Size) -> String {
    let room = usize::from(size.rows).saturating_sub(1);
    let lines: Vec<&str> = text.lines().collect();
    let shown = if lines.len() > room {
        room.saturating_sub(1)
    } else {
        lines.len()
    };
    let mut frame = BEGIN.to_owned();
    for line in &lines[..shown] {
        frame.extend([line, END_OF_LINE]);
    }
    if shown < lines.len() {
        frame.extend([
            "… ",
            &(lines.len() - shown).to_string(),
            " more lines",
            END_OF_LINE,
        ]);
    }
    frame + END
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let lines = |rows| {
            let frame = framed("a\nb\nc\n", Size { columns: 80, rows });
            let inner = frame
                .strip_prefix(BEGIN)
                .and_then(|rest| rest.strip_suffix(END))
                .unwrap()
                .to_owned();
            inner
                .split_terminator(END_OF_LINE)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(4), ["a", "b", "c"]);
        assert_eq!(lines(3), ["a", "… 2 more lines"]);
    }
}
