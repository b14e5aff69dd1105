//! Whether a reboot that was asked for may still come, and so whether its claim may be taken back.

use std::time::Duration;

use brupop_api::{Field, Value, Write};
use tokio::time::Instant;

/// A reboot that was asked for, and that the host accepted, has come by then, or does not come: the host stops its services
/// within a few minutes.
const OVER: Duration = Duration::from_mins(30);

/// The requests for the reboot of one attempt.
#[derive(Debug, Default)]
pub(super) struct Reboots {
    attempt: Option<u64>,
    /// When a request was last made that the host has accepted, or may have. What this process has not asked for, another one
    /// asked for before this one knew of the attempt.
    asked_at: Option<Instant>,
}

impl Reboots {
    /// Notes the attempt that the spec asks for. A new attempt forgets what happened in the one before.
    pub(super) fn begin_attempt(&mut self, attempt: Option<u64>) {
        if self.attempt != attempt {
            *self = Self {
                attempt,
                asked_at: Some(Instant::now()),
            };
        }
    }

    /// The API server has taken a report. If this process has claimed the reboot, none before it can have asked for it.
    pub(super) fn on_report(&mut self, write: &Write<'_>) {
        let claims = |(field, value): &(Field<'_>, Value<'_>)| {
            *field == Field::StatusRebootClaimedBootId && *value != Value::Absent
        };
        if write.sets.iter().any(claims) {
            self.asked_at = None;
        }
    }

    /// The host has accepted a request, or may have. The reboot may come at any moment.
    pub(super) fn on_request(&mut self) {
        self.asked_at = Some(Instant::now());
    }

    /// Whether a reboot may still come that was asked for in this boot. Until then, its claim is not taken back.
    pub(super) fn may_come(&self) -> bool {
        self.asked_at.is_some_and(|at| at.elapsed() < OVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use brupop_api::Object;

    fn claim(value: Value<'static>) -> Write<'static> {
        Write {
            object: Object::ShadowStatus("brs-a"),
            tests: vec![],
            sets: vec![(Field::StatusRebootClaimedBootId, value)],
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_accepted_or_inherited_reboot_may_still_come() {
        let mut reboots = Reboots::default();
        reboots.begin_attempt(Some(1));
        assert!(reboots.may_come(), "an earlier process may have asked");
        reboots.on_report(&claim(Value::Absent));
        assert!(reboots.may_come(), "no claim");
        reboots.on_report(&claim(Value::text("boot-1")));
        assert!(!reboots.may_come(), "nobody could ask before the claim");
        reboots.begin_attempt(Some(1));
        assert!(!reboots.may_come(), "it was refused at most");
        reboots.on_request();
        assert!(reboots.may_come());
        tokio::time::advance(OVER).await;
        assert!(!reboots.may_come());
        reboots.begin_attempt(Some(2));
        assert!(reboots.may_come(), "another attempt");
        tokio::time::advance(OVER).await;
        assert!(!reboots.may_come());
    }
}
