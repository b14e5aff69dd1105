//! The checker while a run lasts: what it reads, and when.

use std::time::Instant;

use anyhow::Result;
use brupop_testbed::Fleet;
use brupop_testbed::audit::AuditReader;
use brupop_testbed::host::Ended;
use brupop_testbed::revisions::Revisions;

use crate::checker::audit::Audited;
use crate::checker::objects::Objects;
use crate::checker::processes::Memory;
use crate::checker::{Found, hosts};
use crate::people::node_name;
use crate::prometheus::Prometheus;
use crate::world::is_checked;

/// Files are read at every tenth look.
const FILES: u64 = 10;
/// What hosts say is believed so many looks later: the revisions that it is held against may come late while etcd stands
/// still.
const HOSTS: u64 = 200;

/// The checker with what it reads.
pub(crate) struct Watch {
    revisions: Revisions,
    audit: AuditReader,
    pub(crate) objects: Objects,
    pub(crate) audited: Audited,
    pub(crate) memory: Memory,
    pub(crate) found: Found,
    boots: Vec<(String, Vec<Ended>)>,
    looks: u64,
    began: Instant,
}

impl Watch {
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self {
            revisions: Revisions::of(&fleet.control_plane.etcd(), is_checked),
            audit: fleet.control_plane.audit().from_start(),
            objects: Objects::default(),
            audited: Audited::default(),
            memory: Memory::default(),
            found: Found::default(),
            boots: vec![],
            looks: 0,
            began: Instant::now(),
        }
    }

    /// Reads what is new.
    pub(crate) fn look(&mut self, fleet: &Fleet, prometheus: &Prometheus) -> Result<()> {
        while let Some((read, revision)) = self.revisions.take() {
            // What a revision rests on was answered before it.
            self.objects.pools.answers.extend(prometheus.answers());
            self.objects.pools.now = read.duration_since(self.began);
            self.found.add(self.objects.take(revision));
        }
        self.looks += 1;
        if self.looks.is_multiple_of(FILES) {
            self.read_files(fleet)?;
        }
        if self.looks.is_multiple_of(HOSTS) {
            self.found.add(hosts::check(&self.boots, &self.objects));
            self.boots = boots(fleet);
        }
        Ok(())
    }

    fn read_files(&mut self, fleet: &Fleet) -> Result<()> {
        // Lines of the last time: whoever wrote a revision may be logged after somebody who was answered with it.
        self.found.add(self.audited.compare(&self.objects));
        for event in self.audit.read_whole_lines()? {
            self.found.add(self.audited.take(&event));
        }
        self.found.add(self.memory.look(&fleet.kubelets.processes()));
        Ok(())
    }

    /// Everything is at rest, and nothing more will come.
    pub(crate) fn conclude(&mut self, fleet: &Fleet, prometheus: &Prometheus) -> Result<()> {
        self.look(fleet, prometheus)?;
        self.read_files(fleet)?;
        self.found.add(self.audited.compare(&self.objects));
        self.found.add(hosts::check(&boots(fleet), &self.objects));
        Ok(())
    }
}

/// The boots of each node that have ended.
fn boots(fleet: &Fleet) -> Vec<(String, Vec<Ended>)> {
    fleet.hosts.iter().enumerate().map(|(number, host)| (node_name(number), host.ended_boots())).collect()
}
