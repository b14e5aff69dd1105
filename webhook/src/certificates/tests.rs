use super::*;
use proptest::prelude::*;

const POLICY: Policy =
    Policy { lifetime: SignedDuration::from_hours(90), overlap: SignedDuration::from_mins(1) };

fn at(minutes: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1_000_000 + minutes)
}

fn generation(id: &str, serve_from: i64, not_after: i64) -> Generation {
    Generation {
        authority: format!("authority of {id}\n"),
        certificate: id.to_owned(),
        key: String::new(),
        names: vec!["webhook.ns.svc".to_owned()],
        serve_from: at(serve_from),
        not_before: at(serve_from - 60),
        not_after: at(not_after),
    }
}

/// What `plan` says, in short: the generation's id and the minute of the next look, or the minute of first service.
fn said(found: &[Generation], names: &[&str], now: i64) -> String {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let minute = |time: Timestamp| (time - at(0)).total(jiff::Unit::Minute).unwrap();
    match plan(found, &names, POLICY, at(now)) {
        Action::Renew { serve_from } => format!("renew, serve from {}", minute(serve_from)),
        Action::Serve { generation, look_again } => {
            format!("serve {}, look at {}", generation.certificate, minute(look_again))
        }
    }
}

#[test]
fn the_plan_row_by_row() {
    let month = 5400; // lifetime in minutes; renewed when 1800 are left
    let a = || generation("a", 0, month);
    let b = |serve_from| generation("b", serve_from, serve_from + month);
    let name: &[&str] = &["webhook.ns.svc"];
    for (case, found, names, now, expected) in [
        ("the Secret as shipped", vec![], name, 0, "renew, serve from 0"),
        ("a fresh one", vec![a()], name, 10, "serve a, look at 15"),
        ("close to renewal: woken for it", vec![a()], name, 3598, "serve a, look at 3600"),
        (
            "a third left: the old one goes on until the new one is known",
            vec![a()],
            name,
            3600,
            "renew, serve from 3601",
        ),
        ("published, not yet served", vec![a(), b(3601)], name, 3600, "serve a, look at 3601"),
        ("the order in the Secret does not matter", vec![b(3601), a()], name, 3600, "serve a, look at 3601"),
        ("served when due", vec![a(), b(3601)], name, 3601, "serve b, look at 3606"),
        ("expired while nobody looked", vec![a()], name, month, "renew, serve from 5400"),
        ("the old one expires beside the new one", vec![a(), b(3601)], name, month, "serve b, look at 5405"),
        ("the clock went back before all of them", vec![b(3601)], name, 3000, "renew, serve from 3000"),
        ("published by a clock that is ahead", vec![b(30)], name, 0, "serve b, look at 5"),
        ("good for another name only", vec![a()], &["team-webhook.ns.svc"], 10, "renew, serve from 10"),
        (
            "good for more names than needed",
            vec![Generation { names: vec!["webhook.ns.svc".into(), "::1".into()], ..a() }],
            name,
            10,
            "serve a, look at 15",
        ),
        (
            "two replicas that want different names keep one each",
            vec![a(), Generation { names: vec!["other".into()], ..b(5) }],
            name,
            10,
            "serve a, look at 15",
        ),
    ] {
        assert_eq!(said(&found, names, now), expected, "{case}");
    }
}

#[test]
fn the_bundle_holds_old_and_new_until_the_old_one_expires() {
    let found = [generation("b", 3601, 9000), generation("a", 0, 5400)];
    assert_eq!(bundle(&found, at(3600)), "authority of a\nauthority of b\n");
    assert_eq!(bundle(&found, at(5400)), "authority of b\n");
    assert_eq!(bundle(&[], at(0)), "");
}

#[test]
fn what_expired_and_what_is_too_much_is_not_kept() {
    let found: Vec<_> = (1..=5).map(|n| generation(&n.to_string(), n, n * 100)).collect();
    let ids: Vec<_> = kept(&found, at(100)).into_iter().map(|it| it.certificate).collect();
    assert_eq!(ids, ["5", "4"]);
    assert!(kept(&found, at(500)).is_empty());
}

proptest! {
    /// Whatever the clock does between two looks, something valid is served right after each, what is served was
    /// published, and the Secret does not grow.
    #[test]
    fn any_clock_ends_with_something_valid_served(steps in prop::collection::vec(-8000_i64..8000, 1..20)) {
        let names = vec!["webhook.ns.svc".to_owned()];
        let (mut found, mut now) = (Vec::new(), 0);
        for (number, step) in steps.into_iter().enumerate() {
            now += step;
            if let Action::Renew { serve_from } = plan(&found, &names, POLICY, at(now)) {
                found = kept(&found, at(now));
                let fresh = generation(&number.to_string(), 0, 0);
                let not_after = at(now) + POLICY.lifetime;
                let not_before = at(now) - SignedDuration::from_hours(1);
                found.push(Generation { serve_from, not_before, not_after, ..fresh });
            }
            let Action::Serve { generation, look_again } = plan(&found, &names, POLICY, at(now)) else {
                panic!("renewing twice at one time");
            };
            prop_assert!(generation.not_before <= at(now) && at(now) < generation.not_after);
            prop_assert!(bundle(&found, at(now)).contains(&generation.authority));
            prop_assert!(at(now) < look_again && look_again <= at(now + 5));
            prop_assert!(found.len() <= KEPT);
        }
    }
}
