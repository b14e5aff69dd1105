//! What the reconciler asks of the API server, by its audit log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::Result;
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::{ControlPlane, await_until};
use jiff::Timestamp;

/// Nothing more is to come when nothing came for so long.
const SETTLED: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_mins(10);

/// Requests of the reconciler's account, without its Lease, its dry runs and its watches.
pub struct Asked {
    reader: AuditReader,
    counts: Counts,
}

/// How many of what.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// By verb and resource.
    pub by_kind: BTreeMap<String, usize>,
    /// Shadows whose conditions were written.
    pub conditions: BTreeSet<String>,
    /// Names of shadows by each time that one's conditions were written.
    told: Vec<String>,
    /// Nodes that were changed.
    pub begun: Vec<String>,
    /// When specs of shadows were written.
    pub actions: Vec<Timestamp>,
}

impl std::ops::Deref for Asked {
    type Target = Counts;

    fn deref(&self) -> &Counts {
        &self.counts
    }
}

impl Asked {
    /// Counts from now on.
    pub fn from_now(control_plane: &ControlPlane) -> Self {
        Self { reader: control_plane.audit().from_now(), counts: Counts::default() }
    }

    /// Counts what has come.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn read(&mut self) -> Result<()> {
        for event in self.reader.read()? {
            self.counts.take(&event);
        }
        Ok(())
    }

    /// The counts so far.
    pub fn clone(&self) -> Counts {
        self.counts.clone()
    }

    /// Awaits something of the counts.
    ///
    /// # Errors
    /// It did not come about in time.
    pub async fn until(
        &mut self,
        what: &str,
        deadline: Duration,
        is_so: impl Fn(&Counts) -> bool,
    ) -> Result<()> {
        let so = async || {
            self.read().ok()?;
            is_so(&self.counts).then_some(())
        };
        Ok(await_until(what, deadline, so).await?)
    }

    /// Awaits that conditions are written no more, but for those of the nodes in mid-update.
    ///
    /// # Errors
    /// They still are after minutes.
    pub async fn until_settled(&mut self) -> Result<()> {
        let (mut known, mut since) = (self.conditions.len(), Instant::now());
        let so = async || {
            self.read().ok()?;
            if self.counts.conditions.len() != known {
                (known, since) = (self.counts.conditions.len(), Instant::now());
            }
            (since.elapsed() >= SETTLED).then_some(())
        };
        Ok(await_until("conditions have settled", DEADLINE, so).await?)
    }

    /// What came since those counts.
    pub fn since(&self, before: &Counts) -> Counts {
        let told = self.told[before.told.len()..].to_vec();
        let by_kind = self
            .by_kind
            .iter()
            .map(|(kind, count)| (kind.clone(), count - before.by_kind.get(kind).copied().unwrap_or(0)));
        Counts {
            by_kind: by_kind.filter(|(_, count)| *count > 0).collect(),
            conditions: told.iter().cloned().collect(),
            told,
            begun: self.begun[before.begun.len()..].to_vec(),
            actions: self.actions[before.actions.len()..].to_vec(),
        }
    }
}

impl Counts {
    /// All requests.
    pub fn requests(&self) -> usize {
        self.by_kind.values().sum()
    }

    /// Those that write.
    pub fn writes(&self) -> usize {
        let reads = ["get ", "list "];
        let writes = self.by_kind.iter().filter(|(kind, _)| !reads.iter().any(|read| kind.starts_with(read)));
        writes.map(|(_, count)| count).sum()
    }

    fn take(&mut self, event: &Event) {
        let Some(object) = &event.object_ref else { return };
        let ours = event.user.username.ends_with(":brupop-reconciler");
        if !ours
            || event.verb == "watch"
            || object.resource == "leases"
            || event.request_uri.contains("dryRun=All")
            || !(200..300).contains(&event.code())
        {
            return;
        }
        let shadow = object.resource == "bottlerocketshadows";
        let kind = match object.subresource.as_str() {
            "" => format!("{} {}", event.verb, object.resource),
            sub => format!("{} {}/{sub}", event.verb, object.resource),
        };
        if shadow && object.subresource == "status" {
            self.conditions.insert(object.name.clone());
            self.told.push(object.name.clone());
        }
        if shadow && object.subresource.is_empty() && event.verb == "patch" {
            self.actions.push(event.request_received_timestamp);
            if !self.begun.contains(&object.name) {
                self.begun.push(object.name.clone());
            }
        }
        *self.by_kind.entry(kind).or_default() += 1;
    }
}
