//! What one run came to, or several together.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use crate::checker::Violation;
use crate::checker::writes::Share;

/// What a run came to; of several, the sums, and the most where a sum says nothing.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) violations: Vec<Violation>,
    /// Faults that were made, by kind.
    pub(crate) made: BTreeMap<String, usize>,
    /// How long faults were made.
    pub(crate) made_for: Duration,
    /// Reboots that were granted before the faults stopped, and in all; and those that hosts were asked for.
    pub(crate) granted_under_faults: usize,
    pub(crate) granted: usize,
    pub(crate) reboots: usize,
    /// Seconds from the last fault to rest, if it came to that: the least and the most of the runs that did.
    pub(crate) settled_in: Option<[u64; 2]>,
    /// The most writes of one object in a minute, compared with what might be, by program and resource.
    pub(crate) writes: BTreeMap<(String, String), Share>,
    /// The most memory of a process, by component, in MiB.
    pub(crate) memory: BTreeMap<String, u64>,
}

impl Report {
    /// Adds another run.
    pub(crate) fn add(&mut self, run: Self) {
        self.violations.extend(run.violations);
        for (kind, count) in run.made {
            *self.made.entry(kind).or_default() += count;
        }
        self.made_for += run.made_for;
        self.granted_under_faults += run.granted_under_faults;
        self.granted += run.granted;
        self.reboots += run.reboots;
        self.settled_in = match (self.settled_in, run.settled_in) {
            (Some([least, most]), Some([less, more])) => Some([least.min(less), most.max(more)]),
            (one, other) => one.or(other),
        };
        for (of, share) in run.writes {
            let most = self.writes.entry(of).or_default();
            *most = most.larger(share);
        }
        for (of, mebibytes) in run.memory {
            let most = self.memory.entry(of).or_default();
            *most = mebibytes.max(*most);
        }
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let made: usize = self.made.values().sum();
        let rest = match self.settled_in {
            None => "never at rest".to_owned(),
            Some([least, most]) if least == most => format!("at rest after {most} s"),
            Some([least, most]) => format!("at rest after {least} to {most} s"),
        };
        writeln!(
            f,
            "{made} faults in {} s, {} reboots granted ({} under faults), {} asked for, {rest}",
            self.made_for.as_secs(),
            self.granted,
            self.granted_under_faults,
            self.reboots
        )?;
        writeln!(f, "   faults: {}", join(self.made.iter().map(|(kind, count)| format!("{kind} {count}"))))?;
        let writes = self.writes.iter().map(|((program, of), most)| format!("{program} {of} {most}"));
        writeln!(f, "   most writes of an object in a minute, and how many might be: {}", join(writes))?;
        let memory = self.memory.iter().map(|(of, most)| format!("{of} {most}"));
        write!(f, "   most memory, MiB: {}", join(memory))?;
        for violation in &self.violations {
            write!(f, "\n   VIOLATED {violation}")?;
        }
        if self.violations.is_empty() {
            write!(f, "\n   nothing was violated")?;
        }
        Ok(())
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_happened_is_added_and_of_the_rest_the_most_is_kept() {
        let run = |faults, settled_in, mebibytes| Report {
            violations: vec![Violation::new("limit", "too many")],
            made: BTreeMap::from([("kill".to_owned(), faults)]),
            made_for: Duration::from_mins(2),
            granted_under_faults: 1,
            granted: 2,
            reboots: 2,
            settled_in,
            writes: [(("agent".to_owned(), "nodes".to_owned()), Share { of: faults, all: 9 })].into(),
            memory: BTreeMap::from([("agent".to_owned(), mebibytes)]),
        };
        let mut sum = Report::default();
        sum.add(run(3, Some([40; 2]), 18));
        sum.add(run(2, Some([50; 2]), 17));
        sum.add(run(0, None, 16));
        let told = sum.to_string();
        let expected = [
            "5 faults in 360 s, 6 reboots granted (3 under faults), 6 asked for, at rest after 40 to 50 s",
            "   faults: kill 5",
            "   most writes of an object in a minute, and how many might be: agent nodes 3 of 9",
            "   most memory, MiB: agent 18",
            "   VIOLATED limit: too many",
            "   VIOLATED limit: too many",
            "   VIOLATED limit: too many",
        ];
        assert_eq!(told.lines().collect::<Vec<_>>(), expected);
    }
}
