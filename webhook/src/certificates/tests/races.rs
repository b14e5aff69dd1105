//! Several replicas with clocks of their own, one Secret, one configuration: the very pass that ships, interleaved call by
//! call, with conflicts, lost replicas, damage by others and clocks that jump by hours and years.

mod replica;

use super::super::pass::Store as _;
use super::*;
use proptest::prelude::*;
use replica::{Replica, World};
use std::rc::Rc;

#[derive(Clone, Debug)]
enum Step {
    /// A replica makes a call.
    Call(usize),
    /// A replica's clock is off by this many minutes from now on.
    Jump(usize, i64),
    Restart(usize),
    Wait(i64),
    /// Somebody writes nonsense into `caBundle`.
    Wipe,
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
    world
        .configuration
        .borrow()
        .1
        .contains(&generation.authority)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    /// Checks replicas: a generation that one changes to is published at that moment, or nothing that is published is good any more; what it
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
                Step::Jump(number, error) => replicas[number].seen.error.set(error),
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
        // The time of each waiting replica has come.
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
