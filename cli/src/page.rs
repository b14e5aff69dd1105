//! Prints views: tables for people, JSON or YAML for programs.

use std::io::{ErrorKind, IsTerminal as _, Write as _};

use crossterm::terminal::size;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::arguments::Output;
use crate::error::Error;

/// Binds the words of a command, so that no table breaks it between two lines. It is printed as a blank.
const NO_BREAK: &str = "\u{a0}";

/// The reader's time, terminal and command line, for which a text is made.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub now: Timestamp,
    /// The width of the terminal; `None` = no limit.
    pub columns: Option<u16>,
    /// Its height; `None` = nothing is shown merely because there is room.
    pub rows: Option<u16>,
    /// Flags that name the cluster on the command line, such as ` --context prod`.
    pub flags: String,
    /// The time zone in which people are told times.
    pub zone: TimeZone,
}

/// Something to be printed. Its texts are printable already.
pub(crate) trait View: Serialize {
    /// Returns a text for people, which ends with a line break. Its colours are removed where they do not belong.
    fn text(&self, page: &Page) -> String;
}

impl Page {
    /// Returns the page that fits standard output now.
    pub fn new(flags: &str) -> Self {
        let (columns, rows) = terminal().unzip();
        Self {
            now: Timestamp::now(),
            columns,
            rows,
            flags: flags.to_owned(),
            zone: TimeZone::UTC,
        }
    }

    /// Returns the page with times in this time zone, or in UTC.
    pub fn in_zone(&self, zone: Option<&TimeZone>) -> Self {
        let zone = zone.cloned().unwrap_or(TimeZone::UTC);
        Self {
            zone,
            ..self.clone()
        }
    }

    /// Returns a sentence as people read it, with [pasteable](Self::pasteable) commands, and times relative to now.
    pub fn sentence(&self, text: &str) -> String {
        let words: Vec<_> = text.split(' ').map(|word| self.time(word)).collect();
        let words = words.join(" ").replace(" at in ", " in ");
        self.pasteable(&words.replace(" until in ", " for another "))
    }

    /// Returns a word as it is, unless it is a time to come: `in 6h (03:00 Europe/Berlin)`.
    fn time(&self, word: &str) -> String {
        let time = word.trim_end_matches([';', ',', '.', ':', ')']);
        let Ok(at) = time.parse::<Timestamp>() else {
            return word.to_owned();
        };
        let ahead = at.duration_since(self.now).as_secs();
        if ahead <= 0 {
            return word.to_owned();
        }
        let local = at.to_zoned(self.zone.clone());
        let is_today = local.date() == self.now.to_zoned(self.zone.clone()).date();
        let format = if is_today { "%H:%M" } else { "%a %F %H:%M" };
        let (local, zone) = (
            local.strftime(format),
            self.zone.iana_name().unwrap_or("UTC"),
        );
        let (length, rest) = (length(ahead), &word[time.len()..]);
        format!("in {length} ({local} {zone}){rest}")
    }

    /// Returns the text with commands that name the cluster it was asked of: pasted without its context, `kubectl` would
    /// change another one.
    pub fn pasteable(&self, text: &str) -> String {
        let command = |command: &str| {
            let rest = command.strip_prefix("kubectl ")?;
            let plugin = rest
                .strip_prefix("brupop ")
                .map(|rest| ("kubectl brupop", rest));
            let (program, rest) = plugin.unwrap_or(("kubectl", rest));
            Some(format!("{program}{} {rest}", self.flags).replace(' ', NO_BREAK))
        };
        // Texts of others have no backquotes, and so are never between two.
        let parts = text.split('`').enumerate().map(|(nth, part)| {
            let command = (nth % 2 == 1).then(|| command(part)).flatten();
            command.unwrap_or_else(|| part.to_owned())
        });
        parts.collect::<Vec<_>>().join("`")
    }

    /// Returns for how long something has been so, in the unit that says most, as kubectl writes it: `45s`, `3m`, `2h`, `5d`.
    /// A time that is to come, or is none, stays as it is.
    pub fn age(&self, since: &str) -> String {
        let began = since.parse::<Timestamp>();
        match began.map(|began| self.now.duration_since(began).as_secs()) {
            Ok(seconds @ 0..) => length(seconds),
            Ok(_) | Err(_) => since.to_owned(),
        }
    }
}

/// Returns a length of time in the unit that says most.
fn length(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        172_800.. => format!("{}d", seconds / 86_400),
    }
}

/// Returns the view as it is printed.
pub(crate) fn rendered(view: &impl View, output: Output, page: &Page) -> Result<String, Error> {
    Ok(match output {
        Output::Table => view.text(page).replace(NO_BREAK, " "),
        Output::Json => serde_json::to_string_pretty(view)? + "\n",
        Output::Yaml => serde_yaml_ng::to_string(view)?,
    })
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

/// Returns columns and rows of the terminal that standard output is, if it is one.
pub(crate) fn terminal() -> Option<(u16, u16)> {
    let size = std::io::stdout().is_terminal().then(|| size().ok())??;
    Some(size).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

/// A change that a command made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Changed {
    pub changed: bool,
    pub says: String,
}

/// The changes that a command made, by object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Changes(pub Vec<Changed>);

impl View for Changes {
    fn text(&self, page: &Page) -> String {
        let says = self.0.iter().map(|it| page.pasteable(&it.says) + "\n");
        says.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_name_the_cluster() {
        let pasteable = |flags: &str, text: &str| {
            let says = text.to_owned();
            let page = Page {
                now: Timestamp::UNIX_EPOCH,
                columns: None,
                rows: None,
                flags: flags.to_owned(),
                zone: TimeZone::UTC,
            };
            let changed = Changed {
                changed: false,
                says,
            };
            rendered(&Changes(vec![changed]), Output::Table, &page).unwrap()
        };
        let text = "no update before `kubectl brupop resume node-0`; see `kubectl get brf`, and kubectl `kubectlx y`";
        assert_eq!(pasteable("", text), format!("{text}\n"));
        assert_eq!(
            pasteable(" --context prod", text),
            "no update before `kubectl brupop --context prod resume node-0`; see `kubectl --context prod get brf`, and kubectl \
             `kubectlx y`\n"
        );
        for foreign in [
            "kubectl delete nodes --all",
            "kubectl brupop resume; `kubectlx y`kubectl drain node-0",
        ] {
            assert_eq!(
                pasteable(" --context prod", foreign),
                format!("{foreign}\n")
            );
        }
    }

    #[test]
    fn ages_are_short() {
        let page = Page {
            now: "2026-11-21T04:00:00Z".parse().unwrap(),
            columns: None,
            rows: None,
            flags: String::new(),
            zone: TimeZone::UTC,
        };
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
            assert_eq!(page.age(since), expected, "{since}");
        }
    }

    #[test]
    fn times_to_come_are_told_from_now_on() {
        let berlin = TimeZone::get("Europe/Berlin").unwrap();
        let page = Page {
            now: "2026-11-21T04:00:00Z".parse().unwrap(),
            columns: None,
            rows: None,
            flags: String::new(),
            zone: berlin,
        };
        for (sentence, expected) in [
            (
                "closed; it opens at 2026-11-22T02:00:00Z",
                "closed; it opens in 22h (Sun 2026-11-22 03:00 Europe/Berlin)",
            ),
            (
                "soaks until 2026-11-21T04:08:30Z; then",
                "soaks for another 8m (05:08 Europe/Berlin); then",
            ),
            ("since 2026-11-21T04:00:00Z", "since 2026-11-21T04:00:00Z"),
        ] {
            assert_eq!(page.sentence(sentence), expected);
        }
        let utc = page.in_zone(None).sentence("opens at 2026-11-21T05:00:00Z");
        assert_eq!(utc, "opens in 60m (05:00 UTC)");
    }
}
