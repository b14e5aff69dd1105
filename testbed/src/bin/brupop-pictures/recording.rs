//! What the plugin writes to a terminal while a release is rolled out.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::observed::Observed;
use brupop_testbed::operator::NAMESPACE;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};
use tokio::time::Instant;

/// The size of the terminal.
pub const COLUMNS: usize = 134;
pub const ROWS: usize = 28;
/// The plugin draws all of its page anew, between these.
const BEGIN: &str = "\u{1b}[H\u{1b}[?7l";
const END: &str = "\u{1b}[J\u{1b}[?7h";
/// Between two frames that are kept.
const SHORTEST: Duration = Duration::from_millis(500);
/// For so long what it ends with is recorded.
const REST: Duration = Duration::from_secs(2);

/// What the terminal shows, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Since the recording began.
    pub at: Duration,
    /// Its lines, with colours as terminals take them.
    pub lines: Vec<String>,
}

/// Records `kubectl brupop status -w` during a roll-out.
pub async fn record(observed: &mut Observed, plugin: &Path) -> Result<Vec<Frame>> {
    observed.prepare().await?;
    let (mut terminal, mut frames) = (terminal(observed, plugin)?, vec![]);
    let recording = read(&mut terminal, &mut frames);
    let rolls_out = async {
        observed.roll_out().await?;
        tokio::time::sleep(REST).await;
        anyhow::Ok(())
    };
    tokio::select! {
        ended = recording => ended.and_then(|()| anyhow::bail!("the plugin has ended"))?,
        done = rolls_out => done?,
    }
    ensure!(frames.len() > 10, "only {} frames", frames.len());
    Ok(frames)
}

/// The plugin in a terminal of its own, which `script` makes.
fn terminal(observed: &Observed, plugin: &Path) -> Result<Child> {
    let plugin = plugin.canonicalize().with_context(|| plugin.display().to_string())?;
    let run =
        format!("stty rows {ROWS} cols {COLUMNS}; exec '{}' status -w -n {NAMESPACE}", plugin.display());
    let mut command = Command::new("script");
    command
        .args(["-qefc", &run, "/dev/null"])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("TERM", "xterm-256color")
        .env("KUBECONFIG", observed.fleet.control_plane.kubeconfig())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().context("`script`, of Debian's bsdutils, cannot be run")
}

/// Keeps what is shown until the plugin ends.
async fn read(terminal: &mut Child, frames: &mut Vec<Frame>) -> Result<()> {
    let mut output = terminal.stdout.take().context("no output")?;
    let (began, mut text, mut bytes) = (Instant::now(), Vec::new(), [0; 8192]);
    loop {
        let count = output.read(&mut bytes).await?;
        if count == 0 {
            return Ok(());
        }
        text.extend_from_slice(&bytes[..count]);
        while let Some(end) = text.windows(END.len()).position(|window| window == END.as_bytes()) {
            let page: Vec<u8> = text.drain(..end + END.len()).collect();
            let page = String::from_utf8_lossy(&page[..end]).into_owned();
            keep(frames, Frame { at: began.elapsed(), lines: lines(&page) });
        }
    }
}

fn lines(page: &str) -> Vec<String> {
    let page = page.rsplit_once(BEGIN).map_or(page, |(_, page)| page);
    page.lines().map(|line| line.trim_end_matches("\u{1b}[K").trim_end().to_owned()).collect()
}

/// Of frames that follow each other soon, the last one counts.
fn keep(frames: &mut Vec<Frame>, frame: Frame) {
    match frames.last_mut() {
        Some(last) if last.lines == frame.lines => {}
        Some(last) if frame.at < last.at + SHORTEST => last.lines = frame.lines,
        _ => frames.push(frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_lines() {
        let page = format!("^D\u{8}{BEGIN}\u{1b}[1ma\u{1b}[0m\u{1b}[K\r\nb  \u{1b}[K\r\n");
        assert_eq!(lines(&page), ["\u{1b}[1ma\u{1b}[0m", "b"]);
    }

    #[test]
    fn frames_are_some_time_apart() {
        let frame = |at, line: &str| Frame { at: Duration::from_millis(at), lines: vec![line.to_owned()] };
        let mut frames = vec![];
        for next in [frame(0, "a"), frame(300, "b"), frame(900, "b"), frame(1000, "c")] {
            keep(&mut frames, next);
        }
        assert_eq!(frames, [frame(0, "b"), frame(1000, "c")]);
    }
}
