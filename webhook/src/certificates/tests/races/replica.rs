//! A replica, with a clock of its own, and the cluster as it sees it.

use super::super::super::pass::{Outrun, Passed, Publication, Store, pass};
use super::super::*;
use super::NAME;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

#[derive(Default)]
pub(super) struct World {
    /// The Secret's generations, with its resource version.
    pub(super) secret: RefCell<(u64, Vec<CertificateGeneration>)>,
    pub(super) configuration: RefCell<(u64, String)>,
    pub(super) made: Cell<usize>,
    /// A replica took from `caBundle` what the Secret holds.
    pub(super) withdrawn: Cell<bool>,
    pub(super) writes: Cell<usize>,
    pub(super) minute: Cell<i64>,
}

/// One replica's view of the cluster. Each call first lets the others take their turn.
#[derive(Clone, Default)]
pub(super) struct Seen {
    world: Rc<World>,
    /// Its clock's error, in minutes.
    pub(super) error: Rc<Cell<i64>>,
}

impl Store for Seen {
    type Error = Outrun;
    type Secret = u64;
    type Configuration = (u64, String);

    fn now(&self) -> Timestamp {
        at(self.world.minute.get() + self.error.get())
    }

    fn issue(
        &self,
        now: Timestamp,
        serve_from: Timestamp,
    ) -> Result<CertificateGeneration, Outrun> {
        let number = self.world.made.get();
        self.world.made.set(number + 1);
        let not_after = later(now, LIFETIMES.lifetime);
        Ok(CertificateGeneration {
            serve_from,
            not_after,
            ..generation(&format!("#{number}"), 0, 0)
        })
    }

    async fn secret(&self) -> Result<(u64, Vec<CertificateGeneration>), Outrun> {
        tokio::task::yield_now().await;
        Ok(self.world.secret.borrow().clone())
    }

    async fn replace(
        &self,
        read: u64,
        generations: &[CertificateGeneration],
    ) -> Result<bool, Outrun> {
        tokio::task::yield_now().await;
        let mut secret = self.world.secret.borrow_mut();
        if secret.0 != read {
            return Ok(false);
        }
        *secret = (read + 1, generations.to_vec());
        self.world.writes.update(|writes| writes + 1);
        Ok(true)
    }

    async fn configuration(&self) -> Result<(u64, String), Outrun> {
        tokio::task::yield_now().await;
        Ok(self.world.configuration.borrow().clone())
    }

    fn trusted((_, bundle): &(u64, String)) -> String {
        bundle.clone()
    }

    async fn publish(
        &self,
        (read, had): &(u64, String),
        bundle: &str,
    ) -> Result<Publication, Outrun> {
        if had == bundle {
            return Ok(Publication::Found);
        }
        tokio::task::yield_now().await;
        let mut configuration = self.world.configuration.borrow_mut();
        if configuration.0 != *read {
            return Ok(Publication::Overtaken);
        }
        let lost = |made: &CertificateGeneration| {
            configuration.1.contains(&made.authority) && !bundle.contains(&made.authority)
        };
        if self.world.secret.borrow().1.iter().any(lost) {
            self.world.withdrawn.set(true);
        }
        *configuration = (read + 1, bundle.to_owned());
        self.world.writes.update(|writes| writes + 1);
        Ok(Publication::Written)
    }
}

type Passing = Pin<Box<dyn Future<Output = Result<Passed<Outrun>, Outrun>>>>;

#[derive(Default)]
pub(super) struct Replica {
    pub(super) seen: Seen,
    passing: Option<Passing>,
    pub(super) serving: Option<CertificateGeneration>,
    /// Version of the configuration when the pass began: later ones are events that it has not heard of.
    heard: Option<u64>,
    /// The minute of the world; unset: at once.
    pub(super) look_again: Option<i64>,
}

impl Replica {
    /// One for each of these errors of a clock.
    pub(super) fn all(world: &Rc<World>, errors: &[i64]) -> Vec<Self> {
        let seen = |error: &i64| Seen {
            world: Rc::clone(world),
            error: Rc::new(Cell::new(*error)),
        };
        errors
            .iter()
            .map(|error| Self {
                seen: seen(error),
                ..Self::default()
            })
            .collect()
    }

    /// The version of the configuration.
    fn version(&self) -> u64 {
        self.seen.world.configuration.borrow().0
    }

    /// There is something to do.
    pub(super) fn is_due(&self) -> bool {
        self.passing.is_some()
            || self.heard != Some(self.version())
            || self
                .look_again
                .is_none_or(|look_again| look_again <= self.seen.world.minute.get())
    }

    /// Makes one call to the API server, or begins. What it went over to serve, if it did.
    pub(super) fn step(&mut self) -> Option<CertificateGeneration> {
        if !self.is_due() {
            return None;
        }
        if self.passing.is_none() {
            self.heard = Some(self.version());
            let (seen, serving) = (self.seen.clone(), self.serving.clone());
            let passing =
                async move { pass(&seen, &[NAME.to_owned()], LIFETIMES, serving.as_ref()).await };
            self.passing = Some(Box::pin(passing));
        }
        let passing = self.passing.as_mut()?;
        let Poll::Ready(passed) = passing
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()))
        else {
            return None;
        };
        self.passing = None;
        self.look_again = None;
        let passed = passed.ok()?;
        let minute = self.seen.world.minute.get();
        let wait = passed.published.ok().map(|published| published.wait);
        self.look_again = wait.map(|wait| minute + (wait.as_secs() + 59) / 60);
        if passed.serve.is_some() {
            self.serving.clone_from(&passed.serve);
        }
        passed.serve
    }

    /// The process dies, in the middle of whatever it does, and is started again.
    pub(super) fn restart(&mut self) {
        *self = Self {
            seen: self.seen.clone(),
            ..Self::default()
        };
    }
}
