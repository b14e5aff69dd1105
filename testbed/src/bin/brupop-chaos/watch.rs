//! The checker while a run lasts: what it reads, and when.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use brupop_testbed::Fleet;
use brupop_testbed::audit::AuditReader;
use brupop_testbed::host::Ended;
use brupop_testbed::revisions::{News, Revision, Revisions};

use crate::checker::audit::Audited;
use crate::checker::objects::Objects;
use crate::checker::{Found, Violation, hosts};
use crate::people::node_name;
use crate::world::is_checked;

/// Files are read at every tenth look.
const FILES: u64 = 10;
/// The facts of hosts are checked this many looks later: the revisions to compare them with may come late while etcd stands
/// still.
const HOSTS: u64 = 200;

/// The checker with what it reads.
pub(crate) struct Watch {
    revisions: Revisions,
    audit: AuditReader,
    pub(crate) objects: Objects,
    pub(crate) audited: Audited,
    pub(crate) found: Found,
    /// The objects before a snapshot was made, and what has come since.
    kept: Option<(Objects, Vec<(Duration, Revision)>)>,
    boots: Vec<(String, Vec<Ended>)>,
    looks: u64,
    began: Instant,
}

impl Watch {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self {
            revisions: Revisions::of(&fleet.control_plane.etcd(), is_checked),
            audit: fleet.control_plane.audit(),
            objects: Objects::default(),
            audited: Audited::default(),
            found: Found::default(),
            kept: None,
            boots: vec![],
            looks: 0,
            began: Instant::now(),
        }
    }

    /// A snapshot is about to be made, from which etcd may be restored.
    pub(crate) fn keep(&mut self) {
        self.kept = Some((self.objects.clone(), vec![]));
    }

    pub(crate) fn look(&mut self, fleet: &Fleet) -> Result<()> {
        while let Some((read, news)) = self.revisions.take() {
            let now = read.duration_since(self.began);
            self.objects.now = now;
            match news {
                News::Revision(revision) => {
                    if let Some((_, since)) = &mut self.kept {
                        since.push((now, revision.clone()));
                    }
                    self.found.add(self.objects.take(revision));
                }
                News::Restored(to) => self.go_back(to, now)?,
            }
        }
        self.looks += 1;
        if self.looks.is_multiple_of(FILES) {
            self.read_files()?;
        }
        if self.looks.is_multiple_of(HOSTS) {
            self.found.add(hosts::check(&self.boots, &self.objects));
            self.boots = boots(fleet);
        }
        Ok(())
    }

    /// etcd was restored: what came after this revision is forgotten.
    fn go_back(&mut self, to: u64, now: Duration) -> Result<()> {
        let (mut then, since) = self
            .kept
            .take()
            .context("etcd was restored from nobody's snapshot")?;
        for (at, revision) in since
            .into_iter()
            .filter(|(_, revision)| revision.number <= to)
        {
            then.now = at;
            // What it violates was found when it came.
            drop(then.take(revision));
        }
        println!(
            "   etcd was restored to revision {to}, the last was {}",
            self.objects.last
        );
        then.now = now;
        self.objects.go_back(then);
        Ok(())
    }

    fn read_files(&mut self) -> Result<()> {
        // Lines of the last time: the writer of a revision may be logged after somebody who was answered with it.
        self.found.add(self.audited.compare(&self.objects));
        for event in self.audit.read()? {
            self.found.add(self.audited.take(&event));
        }
        Ok(())
    }

    /// Everything is at rest, and nothing more will come.
    pub(crate) fn conclude(&mut self, fleet: &Fleet) -> Result<()> {
        self.look(fleet)?;
        self.read_files()?;
        self.found.add(self.audited.compare(&self.objects));
        self.found.add(hosts::check(&boots(fleet), &self.objects));
        if self.audited.is_blind() || self.objects.grants.is_empty() {
            self.found.add([Violation::new(
                "blind",
                "no write of ours was read, or no grant",
            )]);
        }
        Ok(())
    }
}

/// The boots of each node that have ended.
fn boots(fleet: &Fleet) -> Vec<(String, Vec<Ended>)> {
    fleet
        .hosts
        .iter()
        .enumerate()
        .map(|(number, host)| (node_name(number), host.ended_boots()))
        .collect()
}
