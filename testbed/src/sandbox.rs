//! A temporary folder and a process group that end with their owner, however it ends.
//!
//! A guardian, a few lines of shell in a process group of its own, makes both and waits for its standard input to
//! close. The kernel closes it when the owner drops the sandbox, panics, or dies by Ctrl-C or SIGKILL; then the
//! guardian kills the group and removes the folder. Members join the group before they become a program, so none can
//! be missed, and a group's id is not reused while it has members, so nobody else can be hit.
//! With `BRUPOP_TESTBED_KEEP` set the folder, with all logs, stays.

use anyhow::{Context as _, Result, ensure};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use crate::host::lock;
pub use rustix::process::Signal;

/// `set -m` puts `sleep`, which only holds the group's id, into a group of its own.
const GUARDIAN: &str = r#"
set -eu
dir=$(mktemp -d "${TMPDIR:-/tmp}/brupop-testbed.XXXXXX")
set -m
sleep infinity </dev/null >/dev/null 2>&1 &
group=$!
set +m
trap '' INT TERM HUP PIPE
printf '%s\n%s\n' "$dir" "$group"
exec >/dev/null
read -r _ || true
alive() { # a member of the group that is more than a zombie
    local stat
    for stat in /proc/[0-9]*/stat; do
        { read -r stat <"$stat"; } 2>/dev/null || continue
        set -- ${stat##*) }
        if [ "$3" = "$group" ] && [ "$1" != Z ] && [ "$1" != X ]; then return 0; fi
    done
    return 1
}
for _ in {1..100}; do
    kill -KILL -- "-$group" || true
    alive || break
    sleep 0.05
done
[ -n "${BRUPOP_TESTBED_KEEP:-}" ] || rm -rf -- "$dir"
"#;

/// Bytes of a log's end that are shown when something went wrong.
const TAIL: u64 = 4096;

/// The folder and the process group.
#[derive(Debug)]
pub struct Sandbox {
    dir: PathBuf,
    group: i32,
    guardian: Mutex<Option<(Child, ChildStdin)>>,
}

impl Sandbox {
    /// Makes the folder (in `TMPDIR`, else `/tmp`) and an empty process group.
    pub fn new() -> Result<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut child = Command::new("bash")
            .args(["-c", GUARDIAN, "brupop-testbed-guardian"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("bash, which looks after the test bed's processes, cannot be run")?;
        let stdin = child
            .stdin
            .take()
            .context("the guardian has no standard input")?;
        let stdout = child
            .stdout
            .take()
            .context("the guardian has no standard output")?;
        let mut lines = BufReader::new(stdout).lines();
        let mut line = || {
            lines
                .next()
                .transpose()
                .ok()
                .flatten()
                .context("the guardian made no folder")
        };
        let (dir, group) = (PathBuf::from(line()?), line()?.parse()?);
        let sandbox = Self {
            dir,
            group,
            guardian: Mutex::new(Some((child, stdin))),
        };
        std::fs::create_dir(sandbox.logs())?;
        Ok(sandbox)
    }

    /// The folder; it is gone when the sandbox is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The folder of the logs, one file per process.
    pub fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Id of the process group that all processes of this sandbox belong to.
    pub fn group(&self) -> i32 {
        self.group
    }

    /// Starts a program in the group. What it says is appended to the log file `<name>.log`.
    pub fn spawn(&self, name: &str, mut command: tokio::process::Command) -> Result<Process> {
        let log = self.logs().join(format!("{name}.log"));
        let open = || {
            std::fs::OpenOptions::new()
                .create(true)
                .append(true)
                .open(&log)
        };
        let (out, err) = (open()?, open()?);
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(self.group)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| {
                format!(
                    "{name} cannot be started: {}",
                    command.as_std().get_program().display()
                )
            })?;
        Ok(Process {
            name: name.to_owned(),
            log,
            child,
        })
    }

    /// Kills all processes and removes the folder; returns when that is done. Dropping does the same.
    pub fn end(&self) {
        let guardian = lock(&self.guardian).take();
        if let Some((mut child, stdin)) = guardian {
            drop(stdin);
            // Nothing can be done about a guardian that cannot be waited for.
            let _ = child.wait();
        }
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.end();
    }
}

/// A process in a sandbox; killed when dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: tokio::process::Child,
}

impl Process {
    /// The name it was started by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process's id, as long as its end has not been noticed.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits for the process to end.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        self.child
            .wait()
            .await
            .with_context(|| format!("waiting for {}", self.name))
    }

    /// Sends a signal. One that has ended is left alone: its id is ours until its end is noticed.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().and_then(|id| i32::try_from(id).ok());
        if let Some(pid) = id.and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, signal)
                .with_context(|| format!("signalling {}", self.name))?;
        }
        Ok(())
    }

    /// Fails if the process has ended, with its status and the end of its log.
    pub fn check(&mut self) -> Result<()> {
        let ended = self.child.try_wait()?;
        ensure!(
            ended.is_none(),
            "{} ended ({}):\n{}",
            self.name,
            status(ended),
            self.tail()
        );
        Ok(())
    }

    /// The end of what the process said.
    pub fn tail(&self) -> String {
        tail(&self.log)
    }
}

fn status(ended: Option<ExitStatus>) -> String {
    ended.map_or_else(|| "running".to_owned(), |status| status.to_string())
}

/// The last lines of a log file; empty when there is none.
pub fn tail(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::await_within;
    use std::time::Duration;

    /// Processes of the group that are more than a zombie.
    fn members(group: i32) -> usize {
        let stats = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let stat = std::fs::read_to_string(entry.ok()?.path().join("stat")).ok()?;
            let (_, fields) = stat.rsplit_once(") ")?;
            let mut fields = fields.split(' ');
            let (state, _parent, of) = (fields.next()?, fields.next()?, fields.next()?);
            (state != "Z" && of.parse() == Ok(group)).then_some(())
        });
        stats.count()
    }

    fn sleep() -> tokio::process::Command {
        let mut command = tokio::process::Command::new("bash");
        // A grandchild, and a parent that will not go by itself.
        command.args(["-c", "trap '' TERM; sleep 1000 & sleep 1000; wait"]);
        command
    }

    /// Plays two roles: run by itself, as a child, it is the owner that is killed.
    #[tokio::test]
    async fn a_killed_owner_leaves_no_processes_or_files() {
        const NAME: &str = "sandbox::tests::a_killed_owner_leaves_no_processes_or_files";
        const OWNER: &str = "BRUPOP_TESTBED_TEST_OWNER";
        if std::env::var_os(OWNER).is_some() {
            let sandbox = Sandbox::new().unwrap();
            let _process = sandbox.spawn("sleep", sleep()).unwrap();
            println!("\nsandbox {} {}", sandbox.dir().display(), sandbox.group());
            return std::future::pending().await;
        }
        let mut owner = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(OWNER, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(owner.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok);
        let line = lines
            .find_map(|line| line.strip_prefix("sandbox ").map(str::to_owned))
            .unwrap();
        let (dir, group) = line.split_once(' ').unwrap();
        let (dir, group) = (Path::new(dir), group.parse().unwrap());
        await_within(Duration::from_secs(5), "four members", async || {
            (members(group) == 4).then_some(())
        })
        .await
        .unwrap();
        owner.kill().unwrap();
        owner.wait().unwrap();
        await_within(Duration::from_secs(5), "nothing is left", async || {
            (members(group) == 0 && !dir.exists()).then_some(())
        })
        .await
        .unwrap();
    }
}
