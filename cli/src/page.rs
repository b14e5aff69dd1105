//! How views are printed: as tables for people, or as JSON or YAML for programs.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use jiff::Timestamp;
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use crate::Error;
use crate::arguments::Output;

/// What a table is made for.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub now: Timestamp,
    /// The width of the terminal; `None` = no limit.
    pub columns: Option<u16>,
    /// How the cluster is named on the command line: ` --context prod`.
    pub flags: String,
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
    pub fn style(self) -> Style {
        let color = match self {
            Self::Good => AnsiColor::Green,
            Self::Moving => AnsiColor::Cyan,
            Self::Attention => AnsiColor::Yellow,
            Self::Bad => AnsiColor::Red,
        };
        Style::new().fg_color(Some(color.into()))
    }

    /// The words in this tone.
    pub fn paint(self, words: &str) -> String {
        let style = self.style();
        format!("{style}{words}{style:#}")
    }

    /// A paragraph that says what this is about, in this tone.
    pub fn paragraph(self, what: &str, about: &str, page: &Page) -> String {
        let wrapped = wrapped(
            &format!("{what} {}", page.pasteable(about)),
            page.width().saturating_sub(2),
        )
        .join("\n  ")
            + "\n";
        wrapped.replacen(what, &self.paint(what), 1)
    }
}

impl Page {
    /// Characters of a line.
    pub fn width(&self) -> usize {
        self.columns.map_or(usize::MAX, usize::from)
    }

    /// The text with commands that are about the cluster it was asked of: pasted without its context, `kubectl` would change
    /// another one.
    pub fn pasteable(&self, text: &str) -> String {
        let flags = &self.flags;
        let command = |command: &str| {
            let (kubectl, rest) = ["kubectl brupop", "kubectl"]
                .into_iter()
                .find_map(|kubectl| Some((kubectl, command.strip_prefix(kubectl)?)))?;
            rest.starts_with(' ')
                .then(|| format!("{kubectl}{flags}{rest}"))
        };
        // What others say has no backquotes, and so is never between two.
        let parts = text.split('`').enumerate().map(|(nth, part)| {
            Some(part)
                .filter(|_| nth % 2 == 1)
                .and_then(command)
                .unwrap_or_else(|| part.to_owned())
        });
        parts.collect::<Vec<_>>().join("`")
    }
}

/// The text in lines of at most this many characters, broken between words; a longer word has a line of its own. A command
/// between backquotes is a word.
pub(crate) fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![];
    for paragraph in text.split('\n') {
        let (mut line, mut quoted) = (String::new(), false);
        for word in paragraph.split(|character| {
            quoted ^= character == '`';
            character == ' ' && !quoted
        }) {
            if !line.is_empty() && width(&line) + 1 + width(word) > columns {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
    }
    lines
}

/// How many characters the text has.
pub(crate) fn width(text: &str) -> usize {
    text.chars().count()
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
    let seconds = since
        .parse::<Timestamp>()
        .map(|since| now.duration_since(since).as_secs());
    match seconds {
        Ok(seconds @ 0..120) => format!("{seconds}s"),
        Ok(seconds @ 120..7_200) => format!("{}m", seconds / 60),
        Ok(seconds @ 7_200..172_800) => format!("{}h", seconds / 3_600),
        Ok(seconds @ 172_800..) => format!("{}d", seconds / 86_400),
        Ok(_) | Err(_) => since.to_owned(),
    }
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
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size {
        columns: size.ws_col,
        rows: size.ws_row,
    })
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
    fn text(&self, page: &Page) -> String {
        let says = page.pasteable(&self.says);
        if self.changed {
            Tone::Good.paint(&says) + "\n"
        } else {
            says + "\n"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_cluster() {
        let page = |flags: &str| Page {
            now: Timestamp::UNIX_EPOCH,
            columns: None,
            flags: flags.to_owned(),
        };
        let text = "no update before `kubectl brupop resume node-0`; see `kubectl get brf`, and kubectl `kubectlx y`";
        assert_eq!(page("").pasteable(text), text);
        assert_eq!(
            page(" --context prod").pasteable(text),
            "no update before `kubectl brupop --context prod resume node-0`; see `kubectl --context prod get brf`, and kubectl \
             `kubectlx y`"
        );
        for foreign in [
            "kubectl delete nodes --all",
            "kubectl brupop resume; `kubectlx y`kubectl drain node-0",
        ] {
            assert_eq!(page(" --context prod").pasteable(foreign), foreign);
        }
    }

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
}
