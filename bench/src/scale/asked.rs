//! What the reconciler asks of the API server, by its audit log.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use brupop_testbed::audit::{AuditReader, Event};
use brupop_testbed::{ControlPlane, await_within};
use jiff::Timestamp;

/// Nothing more is to come when nothing came for so long.
const SETTLED: Duration = Duration::from_secs(3);
const DEADLINE: Duration = Duration::from_mins(10);

/// Writes of the reconciler's account, without its Lease and its dry runs.
pub struct Asked {
    reader: AuditReader,
    /// How many, and each by verb and resource.
    pub writes: Vec<String>,
    /// Shadows whose conditions were written.
    pub conditions: BTreeSet<String>,
    /// Shadows whose specs were written.
    pub begun: BTreeSet<String>,
    /// When specs of shadows were written.
    pub actions: Vec<Timestamp>,
}

impl Asked {
    pub fn from_now(control_plane: &ControlPlane) -> Self {
        Self {
            reader: control_plane.audit().from_now(),
            writes: vec![],
            conditions: BTreeSet::new(),
            begun: BTreeSet::new(),
            actions: vec![],
        }
    }

    pub fn read(&mut self) -> Result<()> {
        for event in self.reader.read()? {
            self.take(&event);
        }
        Ok(())
    }

    /// Awaits something of the counts.
    pub async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) -> Result<()> {
        let so = async || {
            self.read().ok()?;
            is_so(self).then_some(())
        };
        await_within(DEADLINE, what, so).await
    }

    /// Awaits that nothing is written any more.
    pub async fn until_settled(&mut self) -> Result<()> {
        let (mut known, mut since) = (self.writes.len(), Instant::now());
        let so = async || {
            self.read().ok()?;
            if self.writes.len() != known {
                (known, since) = (self.writes.len(), Instant::now());
            }
            (since.elapsed() >= SETTLED).then_some(())
        };
        await_within(DEADLINE, "the writes have ended", so).await
    }

    fn take(&mut self, event: &Event) {
        let object = &event.object;
        if object.resource.is_empty()
            || !event.user.username.ends_with(":brupop-reconciler")
            || ["get", "list", "watch"].contains(&event.verb.as_str())
            || object.resource == "leases"
            || event.is_dry_run()
            || !(200..300).contains(&event.code())
        {
            return;
        }
        self.writes.push(format!(
            "{} {}/{}",
            event.verb, object.resource, object.subresource
        ));
        if object.resource != "bottlerocketshadows" {
            return;
        }
        if object.subresource == "status" {
            self.conditions.insert(object.name.clone());
        } else if event.verb == "patch" {
            self.actions.push(event.request_received_timestamp);
            self.begun.insert(object.name.clone());
        }
    }
}
