//! What `kubectl get brs -w` shows of an update, beside the API server's audit log.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use brupop_core::decide::Reason;
use brupop_testbed::audit::Event;
use brupop_testbed::fleet::NEW;
use brupop_testbed::history::Seen;
use brupop_testbed::operator::NAMESPACE;
use brupop_testbed::{Fleet, FleetOptions};
use jiff::{SignedDuration, Timestamp};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::task::JoinSet;

const STEPS: [&str; 5] = ["Staging", "Draining", "Rebooting", "Monitoring", "NoUpdate"];
/// For how long half of all rows may say what is over, on a busy machine, too: debounced, all of them would for a second. None
/// may for as long as the most debounced write takes.
const USUALLY_LATE: SignedDuration = SignedDuration::from_millis(800);
const LATE: SignedDuration = SignedDuration::from_secs(5);

/// Each step by its word, in order and once, not before it has begun and not after it has ended, whether one reads the rows
/// or the audit log. Where a step has ended before its word was written, the next one's is.
#[tokio::test(flavor = "multi_thread")]
async fn no_row_says_what_is_not_so() -> Result<()> {
    let mut options = FleetOptions::quick(4, &[("MAX_CONCURRENT_UPDATE", "2")]);
    for (name, value) in &mut options.env {
        if name == "SOAK_SECONDS" {
            "1".clone_into(value);
        }
    }
    let mut fleet = Fleet::start(&options).await?;
    fleet.deploy("cart", 8, "2").await?;
    let rows = Rows::default();
    let _watching = watch(&fleet, &rows)?;
    let all_told = |node: &Seen| node.is_idle() && node.reason == "NoUpdate";
    let is_shown = |node: &str| {
        rows.of(node)
            .last()
            .is_some_and(|row| row.reason == "NoUpdate")
    };
    // On a busy machine kubectl would print its first rows when the update has begun.
    fleet
        .until("kubectl shows each row", |history| {
            history.now().all(|(node, _)| is_shown(node))
        })
        .await?;
    fleet.publish(NEW)?;
    fleet.until_updated(NEW).await?;
    fleet
        .until("each row says so", |history| {
            history
                .now()
                .all(|(node, seen)| all_told(seen) && is_shown(node))
        })
        .await?;
    let events = fleet.control_plane.audit().from_start().read()?;
    let (mut late, mut words) = (vec![], 0);
    for node in fleet.history().now().map(|(node, _)| node.to_owned()) {
        let steps = Steps::of(&node, &events).with_context(|| node.clone())?;
        let shown = rows.of(&node);
        for (row, next) in shown
            .iter()
            .zip(shown.iter().skip(1))
            .filter(|(_, next)| next.at > steps.slot_taken)
        {
            let (begun, ended) = if row.at < steps.slot_taken {
                (row.at, steps.slot_taken)
            } else {
                steps
                    .of_word(&row.reason)
                    .with_context(|| format!("{} with a slot", row.reason))?
            };
            let (after, over) = (row.at.duration_since(begun), next.at.duration_since(ended));
            let [shown, gone] = [after, over].map(|it| it.as_secs_f64());
            println!(
                "{node} {:<14} shown {shown:.3} s after it was so, gone {gone:.3} s after its end",
                row.reason
            );
            ensure!(
                !after.is_negative(),
                "{node}: {} is shown {after:#} before it is so",
                row.reason
            );
            ensure!(
                over < LATE,
                "{node}: {} is shown for {over:#} after its end",
                row.reason
            );
            late.push(over);
        }
        let told: Vec<&str> = shown
            .iter()
            .map(|row| &*row.reason)
            .skip_while(|word| !STEPS[..4].contains(word))
            .collect();
        let mut steps = STEPS.iter();
        ensure!(
            told.iter().all(|word| steps.any(|step| step == word)),
            "{node}: {told:?}"
        );
        words += told.len();
    }
    ensure!(
        words >= 4 * STEPS.len() - 2,
        "{words} of {}: too many steps are not told",
        4 * STEPS.len()
    );
    late.sort();
    let usually = late[late.len() / 2];
    println!(
        "half of {} rows: at most {:.3} s after the end",
        late.len(),
        usually.as_secs_f64()
    );
    ensure!(
        usually < USUALLY_LATE,
        "rows are shown for {usually:#} after the end"
    );
    fleet.check()
}

/// A row with another reason than the one before it.
#[derive(Clone, Debug)]
struct Row {
    at: Timestamp,
    reason: String,
}

/// What kubectl has printed, by node.
#[derive(Clone, Debug, Default)]
struct Rows(Arc<Mutex<BTreeMap<String, Vec<Row>>>>);

impl Rows {
    fn of(&self, node: &str) -> Vec<Row> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .cloned()
            .unwrap_or_default()
    }

    /// A line such as `brs-node-0   Idle   1.19.4   StagedAndPerformedUpdate   1.20.0   Staging`.
    fn push(&self, line: &str) {
        let at = Timestamp::now();
        let cells: Vec<&str> = line.split_whitespace().collect();
        let (Some(node), [.., reason]) = (line.strip_prefix("brs-"), &*cells) else {
            return;
        };
        // At first there is none, and a state or a version stands last.
        let is_reason = Reason::of_word(reason).is_some();
        let reason = if is_reason { *reason } else { "-" };
        let node = node.split(' ').next().unwrap_or_default().to_owned();
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let rows = rows.entry(node).or_default();
        if rows.last().is_none_or(|row| row.reason != reason) {
            rows.push(Row {
                at,
                reason: reason.to_owned(),
            });
        }
    }
}

/// Runs `kubectl get brs -w` until the set is dropped.
fn watch(fleet: &Fleet, rows: &Rows) -> Result<JoinSet<()>> {
    let mut kubectl = fleet
        .control_plane
        .kubectl_command(["get", "brs", "-w", "-n", NAMESPACE]);
    let mut kubectl = kubectl.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(kubectl.stdout.take().context("no output")?).lines();
    let rows = rows.clone();
    let mut watching = JoinSet::new();
    watching.spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            rows.push(&line);
        }
        drop(kubectl);
    });
    Ok(watching)
}

/// When the steps of a node's update began and ended, as the audit log has it: from the request that begins one to the answer
/// that ends it.
#[derive(Debug)]
struct Steps {
    slot_taken: Timestamp,
    staged: Timestamp,
    granted: Timestamp,
    rebooted: Timestamp,
    ended: Timestamp,
}

impl Steps {
    fn of(node: &str, events: &[Event]) -> Result<Self> {
        let shadow = format!("brs-{node}");
        let first = |what: &str, is_it: &dyn Fn(&Event, &serde_json::Value) -> bool| {
            let answer = |event: &Event| event.response_object.clone().unwrap_or_default();
            let found = events
                .iter()
                .filter(|it| it.verb == "patch" && it.code() == 200);
            found
                .clone()
                .find(|event| is_it(event, &answer(event)))
                .map(|event| event.request_received_timestamp)
                .context(what.to_owned())
        };
        let of_shadow = |what: &str, pointer: &str, value: &str| {
            first(what, &|event, answer| {
                event.is_about("bottlerocketshadows", &shadow)
                    && answer.pointer(pointer).is_some_and(|it| it == value)
            })
        };
        let slot_taken = first("slot", &|event, answer| {
            event.is_about("bottlerocketfleets", "fleet")
                && answer.pointer(&format!("/status/slots/{shadow}")).is_some()
        })?;
        Ok(Self {
            slot_taken,
            staged: of_shadow(
                "staged",
                "/status/current_state",
                "StagedAndPerformedUpdate",
            )?,
            granted: of_shadow("granted", "/spec/state", "RebootedIntoUpdate")?,
            rebooted: of_shadow("rebooted", "/status/current_state", "RebootedIntoUpdate")?,
            ended: first("ended", &|event, answer| {
                event.is_about("bottlerocketshadows", &shadow)
                    && answer.pointer("/spec/attempt").is_some()
                    && answer
                        .pointer("/spec/state")
                        .is_some_and(|state| state == "Idle")
            })?,
        })
    }

    /// From when on, and until when, this word is true of a node with a slot; `None` if it is of one without.
    fn of_word(&self, reason: &str) -> Option<(Timestamp, Timestamp)> {
        Some(match reason {
            "Staging" => (self.slot_taken, self.staged),
            "Draining" => (self.staged, self.granted),
            "Rebooting" => (self.granted, self.rebooted),
            "Monitoring" => (self.rebooted, self.ended),
            "Finishing" | "NoUpdate" => (self.ended, Timestamp::MAX),
            _ => return None,
        })
    }
}
