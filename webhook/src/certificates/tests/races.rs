//! Several replicas with clocks of their own, one Secret, one configuration: the very pass that ships, interleaved call by
//! call, with conflicts, lost replicas, damage by others and clocks that jump by hours and years.

use super::super::pass::{Passed, Publication, Store, pass};
use super::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

const NAME: &str = "webhook.ns.svc";

/// The cluster.
#[derive(Default)]
struct World {
    /// With its resource version.
    secret: RefCell<(u64, Vec<CertificateGeneration>)>,
    configuration: RefCell<(u64, String)>,
    made: Cell<usize>,
    /// A replica took from `caBundle` what the Secret holds.
    withdrawn: Cell<bool>,
    writes: Cell<usize>,
    minute: Cell<i64>,
}

/// A conflict, in the end the only thing that goes wrong here.
#[derive(Debug)]
struct Outrun;

/// How one replica sees the cluster. Each call first lets the others have their turn.
#[derive(Clone, Default)]
struct Seen {
    world: Rc<World>,
    /// Its clock's error, in minutes.
    error: Rc<Cell<i64>>,
}

impl Store for Seen {
    type Error = Outrun;
    type Secret = u64;
    type Configuration = (u64, String);

    fn now(&self) -> Timestamp {
        at(self.world.minute.get() + self.error.get())
    }

    fn issue(&self, now: Timestamp, serve_from: Timestamp) -> Result<CertificateGeneration, Outrun> {
        let number = self.world.made.get();
        self.world.made.set(number + 1);
        let not_after = later(now, LIFETIMES.lifetime);
        Ok(CertificateGeneration { serve_from, not_after, ..generation(&format!("#{number}"), 0, 0) })
    }

    async fn secret(&self) -> Result<(u64, Vec<CertificateGeneration>), Outrun> {
        tokio::task::yield_now().await;
        Ok(self.world.secret.borrow().clone())
    }

    async fn replace(&self, read: u64, generations: &[CertificateGeneration]) -> Result<bool, Outrun> {
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

    async fn publish(&self, (read, had): &(u64, String), bundle: &str) -> Result<Publication, Outrun> {
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

    fn outrun(&self) -> Outrun {
        Outrun
    }

    fn overtaken(&self) -> Outrun {
        Outrun
    }
}

type Passing = Pin<Box<dyn Future<Output = Result<Passed<Outrun>, Outrun>>>>;

#[derive(Default)]
struct Replica {
    seen: Seen,
    passing: Option<Passing>,
    serving: Option<CertificateGeneration>,
    /// Version of the configuration when the pass began: later ones are events that it has not heard of.
    heard: Option<u64>,
    /// By its own clock; unset: at once.
    look_again: Option<Timestamp>,
}

impl Replica {
    /// One for each of these errors of a clock.
    fn all(world: &Rc<World>, errors: &[i64]) -> Vec<Self> {
        let seen = |error: &i64| Seen { world: Rc::clone(world), error: Rc::new(Cell::new(*error)) };
        errors.iter().map(|error| Self { seen: seen(error), ..Self::default() }).collect()
    }

    /// The version of the configuration.
    fn version(&self) -> u64 {
        self.seen.world.configuration.borrow().0
    }

    /// There is something to do.
    fn is_due(&self) -> bool {
        self.passing.is_some()
            || self.heard != Some(self.version())
            || self.look_again.is_none_or(|look_again| look_again <= self.seen.now())
    }

    /// Makes one call to the API server, or begins. What it went over to serve, if it did.
    fn step(&mut self) -> Option<CertificateGeneration> {
        if !self.is_due() {
            return None;
        }
        if self.passing.is_none() {
            self.heard = Some(self.version());
            let (seen, serving) = (self.seen.clone(), self.serving.clone());
            let passing = async move { pass(&seen, &[NAME.to_owned()], LIFETIMES, serving.as_ref()).await };
            self.passing = Some(Box::pin(passing));
        }
        let passing = self.passing.as_mut()?;
        let Poll::Ready(passed) = passing.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
            return None;
        };
        self.passing = None;
        self.look_again = None;
        let passed = passed.ok()?;
        self.look_again = passed.published.ok().map(|published| published.look_again);
        if passed.serve.is_some() {
            self.serving.clone_from(&passed.serve);
        }
        passed.serve
    }

    /// The process dies, in the middle of whatever it does, and is started again.
    fn restart(&mut self) {
        *self = Self { seen: self.seen.clone(), ..Self::default() };
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A replica makes a call.
    Call(usize),
    /// A replica's clock is off by this many minutes from now on.
    Jump(usize, i64),
    Restart(usize),
    /// Time passes, in minutes.
    Wait(i64),
    /// Somebody writes nonsense into `caBundle`.
    Wipe,
    /// Somebody empties the Secret.
    Damage,
}

fn error() -> impl Strategy<Value = i64> {
    const YEAR: i64 = 366 * 24 * 60;
    prop_oneof![Just(0), -3_i64..=3, -600_i64..600, (-30 * YEAR..30 * YEAR)]
}

fn steps(damage: u32) -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        60 => (0_usize..4).prop_map(Step::Call),
        4 => (0_usize..4, error()).prop_map(|(replica, error)| Step::Jump(replica, error)),
        2 => (0_usize..4).prop_map(Step::Restart),
        4 => prop_oneof![1_i64..10, 1_i64..8000].prop_map(Step::Wait),
        damage => prop_oneof![Just(Step::Wipe), Just(Step::Damage)],
    ];
    prop::collection::vec(step, 1..400)
}

/// All make their calls until nobody has anything to do; fails if that does not end.
fn settle(replicas: &mut [Replica]) -> Result<(), TestCaseError> {
    for _ in 0..1000 {
        if !replicas.iter().any(Replica::is_due) {
            return Ok(());
        }
        for replica in &mut *replicas {
            replica.step();
        }
    }
    Err(TestCaseError::fail("they go on for ever"))
}

fn published(world: &World, generation: &CertificateGeneration) -> bool {
    world.configuration.borrow().1.contains(&generation.authority)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// What a replica goes over to is published at that moment, or nothing that is published is good any more; what it
    /// goes on with is published, or it has just not heard yet that it is not. And when the clocks are right again, all
    /// come to serve the same valid certificate, and then leave everything alone.
    #[test]
    fn racing_replicas_agree_and_serve_the_published(
        errors in prop::collection::vec(error(), 4),
        steps in steps(2),
    ) {
        let world = Rc::new(World::default());
        let mut replicas = Replica::all(&world, &errors);
        let names = [NAME.to_owned()];
        for step in steps {
            match step {
                Step::Call(number) => {
                    let served = replicas[number].step();
                    if let Some(served) = served.filter(|served| !published(&world, served)) {
                        let now = replicas[number].seen.now();
                        let secret = world.secret.borrow();
                        let better = secret.1.iter().find(|it| it.good_for(&names, now) && published(&world, it));
                        prop_assert!(better.is_none(), "{number} serves {served:?} instead of {better:?}");
                    }
                }
                // The rotator is woken by a jump.
                Step::Jump(number, error) => {
                    replicas[number].seen.error.set(error);
                    replicas[number].look_again = None;
                }
                Step::Restart(number) => replicas[number].restart(),
                Step::Wait(minutes) => world.minute.update(|minute| minute + minutes),
                Step::Wipe => drop(world.configuration.replace_with(|had| (had.0 + 1, "garbage".to_owned()))),
                Step::Damage => drop(world.secret.replace_with(|had| (had.0 + 1, vec![]))),
            }
            for (number, replica) in replicas.iter().enumerate() {
                let serving = replica.serving.as_ref();
                let sound = replica.is_due() || serving.is_none_or(|serving| published(&world, serving));
                prop_assert!(sound, "{number} rests and serves what nobody trusts: {serving:?}");
            }
            prop_assert!(world.secret.borrow().1.len() <= MAX_GENERATIONS);
            prop_assert!(!world.withdrawn.get(), "a replica withdrew what another has published");
        }

        // With clocks as they are, they come to rest.
        settle(&mut replicas)?;
        for replica in &mut replicas {
            replica.seen.error.set(0);
            replica.look_again = None;
        }
        settle(&mut replicas)?;
        // What waits for its time has come.
        world.minute.update(|minute| minute + 61);
        settle(&mut replicas)?;
        let first = replicas[0].serving.clone();
        for replica in &replicas {
            prop_assert_eq!(&replica.serving, &first);
        }
        let served = first.ok_or_else(|| TestCaseError::fail("nothing is served"))?;
        prop_assert!(served.good_for(&names, replicas[0].seen.now()) && published(&world, &served));

        let writes = world.writes.get();
        for _ in 0..20 {
            world.minute.update(|minute| minute + 1);
            settle(&mut replicas)?;
        }
        prop_assert!(world.writes.get() <= writes + 2, "they do not leave things alone");
    }

    /// Clocks that differ, by whatever, but do not jump: replicas come to rest after a few writes, and stay there.
    #[test]
    fn differing_clocks_cause_no_endless_writes(errors in prop::collection::vec(error(), 1..6)) {
        let world = Rc::new(World::default());
        let mut replicas = Replica::all(&world, &errors);
        settle(&mut replicas)?;
        prop_assert!(world.writes.get() <= 2 * replicas.len() + 2, "{} writes", world.writes.get());
        let writes = world.writes.get();
        for _ in 0..12 {
            world.minute.update(|minute| minute + 5);
            settle(&mut replicas)?;
        }
        prop_assert!(world.writes.get() <= writes + 2, "{} writes more", world.writes.get() - writes);
    }

    /// Months of renewals by replicas whose clocks differ by minutes: at no moment, not between two calls either, does
    /// one serve what is not published.
    #[test]
    fn renewals_leave_no_gap(
        errors in prop::collection::vec(-5_i64..=5, 3),
        order in prop::collection::vec(0_usize..3, 800),
    ) {
        let world = Rc::new(World::default());
        let mut replicas = Replica::all(&world, &errors);
        settle(&mut replicas)?;
        let first = replicas[0].serving.clone();
        for number in order {
            replicas[number].step();
            for replica in &replicas {
                let serving = replica.serving.as_ref().ok_or_else(|| TestCaseError::fail("nothing served"))?;
                prop_assert!(published(&world, serving), "{serving:?}");
                prop_assert!(serving.good_for(&[NAME.to_owned()], replica.seen.now()), "{serving:?}");
            }
            if !replicas.iter().any(Replica::is_due) {
                let secret = world.secret.borrow();
                let waits = replicas.iter().any(|it| secret.1.iter().any(|made| made.is_waiting(it.seen.now())));
                world.minute.update(|minute| minute + if waits { 1 } else { 600 });
            }
        }
        prop_assert!(replicas[0].serving != first && world.made.get() > 2, "{} made", world.made.get());
    }
}
