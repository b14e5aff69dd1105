//! A terminal on which a text is drawn again and again; arrows scroll it.

use std::future::pending;
use std::io::{IsTerminal as _, Read as _, stdin, stdout};
use std::thread;

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::execute;
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
    EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode,
    enable_raw_mode,
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::error::Error;
use crate::page::{terminal, write_out};

/// A command that a person gives by a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    End,
    /// Scrolls down by this number of lines; up, if it is negative.
    Move(isize),
}

/// The terminal. It is as before once this is dropped.
pub(crate) struct Screen {
    /// `None` = the standard input is no terminal.
    keys: Option<UnboundedReceiver<Key>>,
    /// Number of lines of the text above the screen.
    top: usize,
}

impl Screen {
    pub(crate) fn open() -> Result<Self, Error> {
        let keys = stdin().is_terminal().then(keys);
        if keys.is_some() {
            enable_raw_mode()?;
        }
        let screen = Self { keys, top: 0 };
        execute!(stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }

    pub(crate) fn scroll(&mut self, text: &str, lines: isize) -> Result<(), Error> {
        self.top = self.top.saturating_add_signed(lines);
        self.draw(text)
    }

    /// Draws as many lines of the text as there is room for.
    pub(crate) fn draw(&mut self, text: &str) -> Result<(), Error> {
        let rows = terminal().map_or(0, |(_, rows)| rows.into());
        let frame = framed(text, rows, &mut self.top);
        execute!(
            stdout(),
            BeginSynchronizedUpdate,
            MoveTo(0, 0),
            Clear(ClearType::FromCursorDown)
        )?;
        // In raw mode the terminal adds no carriage returns.
        write_out(&frame.replace('\n', "\r\n"))?;
        Ok(execute!(stdout(), EndSynchronizedUpdate)?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nobody can be told of a terminal that has gone.
        let _ = execute!(stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _ = disable_raw_mode();
    }
}

/// Waits for the next key; for ever, if there are none.
pub(crate) async fn next_key(screen: Option<&mut Screen>) -> Key {
    match screen.and_then(|screen| screen.keys.as_mut()) {
        Some(keys) => keys.recv().await.unwrap_or(Key::End),
        None => pending().await,
    }
}

/// Reads keys on a thread, because such a read cannot be ended.
fn keys() -> UnboundedReceiver<Key> {
    let (found, keys) = unbounded_channel();
    thread::spawn(move || {
        let mut typed = [0; 16];
        while let Ok(count @ 1..) = stdin().read(&mut typed) {
            if let Some(key) = key(&typed[..count])
                && found.send(key).is_err()
            {
                return;
            }
        }
    });
    keys
}

fn key(typed: &[u8]) -> Option<Key> {
    match typed {
        b"q" | b"\x03" | b"\x04" | b"\x1b" => Some(Key::End),
        b"\x1b[A" | b"\x1bOA" | b"k" => Some(Key::Move(-1)),
        b"\x1b[B" | b"\x1bOB" | b"j" => Some(Key::Move(1)),
        b"\x1b[5~" | b"b" => Some(Key::Move(-10)),
        b"\x1b[6~" | b" " => Some(Key::Move(10)),
        _ => None,
    }
}

/// Returns as many lines as this many rows have room for, after those above the screen, which are made fewer if there is room.
fn framed(text: &str, rows: usize, top: &mut usize) -> String {
    let (lines, room) = (text.lines().count(), rows.saturating_sub(1));
    if lines <= room {
        *top = 0;
        return text.to_owned();
    }
    let shown = room.saturating_sub(1);
    *top = (*top).min(lines - shown);
    let kept: String = text.split_inclusive('\n').skip(*top).take(shown).collect();
    let below = lines - shown - *top;
    format!("{kept}… {top} lines above, {below} below: ↑ ↓ scroll, q ends\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal() {
        let frame = |rows, mut top| framed("a\nb\nc\nd\n", rows, &mut top);
        let words = ": ↑ ↓ scroll, q ends\n";
        assert_eq!(frame(5, 3), "a\nb\nc\nd\n");
        assert_eq!(
            frame(4, 0),
            format!("a\nb\n… 0 lines above, 2 below{words}")
        );
        assert_eq!(
            frame(4, 1),
            format!("b\nc\n… 1 lines above, 1 below{words}")
        );
        assert_eq!(
            frame(4, 9),
            format!("c\nd\n… 2 lines above, 0 below{words}")
        );
        assert_eq!(frame(0, 0), format!("… 0 lines above, 4 below{words}"));
    }

    #[test]
    fn keys_are_those_of_pagers() {
        assert_eq!(key(b"q"), Some(Key::End));
        assert_eq!(key(b"\x03"), Some(Key::End));
        assert_eq!(key(b"\x1b[A"), Some(Key::Move(-1)));
        assert_eq!(key(b"\x1b[6~"), Some(Key::Move(10)));
        assert_eq!(key(b"x"), None);
    }
}
