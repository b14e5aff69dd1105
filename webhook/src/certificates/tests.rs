mod races;

use super::*;

const LIFETIMES: Lifetimes = Lifetimes {
    lifetime: SignedDuration::from_hours(90),
    overlap: SignedDuration::from_mins(1),
};

fn at(minutes: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1_000_000 + minutes)
}

fn generation(id: &str, serve_from: i64, not_after: i64) -> CertificateGeneration {
    CertificateGeneration {
        authority: format!("authority of {id}\n"),
        certificate: id.to_owned(),
        key: String::new(),
        names: vec!["webhook.ns.svc".to_owned()],
        serve_from: at(serve_from),
        not_after: at(not_after),
    }
}

/// What `plan` says, in short: the generation's id and the minute of the next look, or the minute of first service.
fn summary(found: &[CertificateGeneration], names: &[&str], now: i64) -> String {
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let minute = |time: Timestamp| (time - at(0)).total(jiff::Unit::Minute).unwrap();
    match plan(found, &names, LIFETIMES, at(now)) {
        RotationStep::Renew { serve_from } => format!("renew, serve from {}", minute(serve_from)),
        RotationStep::Serve { generation, wait } => {
            let look_again = minute(at(now) + wait);
            format!("serve {}, look at {look_again}", generation.certificate)
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
        (
            "the Secret as shipped",
            vec![],
            name,
            0,
            "renew, serve from 0",
        ),
        ("a fresh one", vec![a()], name, 10, "serve a, look at 15"),
        (
            "close to renewal: woken for it",
            vec![a()],
            name,
            3598,
            "serve a, look at 3600",
        ),
        (
            "a third left: the old one goes on until the new one is known",
            vec![a()],
            name,
            3600,
            "renew, serve from 3601",
        ),
        (
            "published, not yet served",
            vec![a(), b(3601)],
            name,
            3600,
            "serve a, look at 3601",
        ),
        (
            "the newest is the last",
            vec![b(2), a()],
            name,
            10,
            "serve a, look at 15",
        ),
        (
            "served when due",
            vec![a(), b(3601)],
            name,
            3601,
            "serve b, look at 3606",
        ),
        (
            "expired while nobody looked",
            vec![a()],
            name,
            month,
            "renew, serve from 5400",
        ),
        (
            "the old one expires beside the new one",
            vec![a(), b(3601)],
            name,
            month,
            "serve b, look at 5405",
        ),
        (
            "the clock went back before all of them",
            vec![b(3601)],
            name,
            3000,
            "serve b, look at 3005",
        ),
        (
            "the newest was made by a clock far ahead",
            vec![a(), b(90_000)],
            name,
            10,
            "serve b, look at 15",
        ),
        (
            "the newest was made by a clock far behind",
            vec![a(), b(-90_000)],
            name,
            10,
            "serve a, look at 15",
        ),
        (
            "published by a clock that is ahead",
            vec![b(30)],
            name,
            0,
            "serve b, look at 5",
        ),
        (
            "good for another name only",
            vec![a()],
            &["team-webhook.ns.svc"],
            10,
            "renew, serve from 10",
        ),
        (
            "good for more names than needed",
            vec![CertificateGeneration {
                names: vec!["webhook.ns.svc".into(), "::1".into()],
                ..a()
            }],
            name,
            10,
            "serve a, look at 15",
        ),
        (
            "two replicas that want different names keep one each",
            vec![
                a(),
                CertificateGeneration {
                    names: vec!["other".into()],
                    ..b(5)
                },
            ],
            name,
            10,
            "serve a, look at 15",
        ),
    ] {
        assert_eq!(summary(&found, names, now), expected, "{case}");
    }
}

#[test]
fn the_bundle_holds_all_authorities_at_any_time() {
    let found = [generation("b", 3601, 9000), generation("a", 0, 5400)];
    assert_eq!(bundle(&found), "authority of a\nauthority of b\n");
    assert_eq!(bundle(&[]), "");
}

#[test]
fn the_newest_are_retained() {
    let found: Vec<_> = (1..=5)
        .map(|n| generation(&n.to_string(), n, n * 100))
        .collect();
    let ids: Vec<_> = retained(&found)
        .into_iter()
        .map(|it| it.certificate)
        .collect();
    assert_eq!(ids, ["3", "4", "5"]);
    assert_eq!(retained(&found[..2]), found[..2]);
}

#[test]
fn unpublished_certificates_are_served_as_last_resort() {
    let (old, other, new) = (
        generation("old", 0, 100),
        generation("other", 1, 200),
        generation("new", 2, 300),
    );
    let found = [old.clone(), other.clone(), new.clone()];
    let names = ["webhook.ns.svc".to_owned()];
    for (says, serving, published, now, expected) in [
        (
            "it goes on with what is known",
            Some(&old),
            "authority of old\n",
            10,
            None,
        ),
        (
            "what it serves is not known any more, another is",
            Some(&old),
            "authority of other\n",
            10,
            Some("other"),
        ),
        (
            "a start: what is known comes before what is new",
            None,
            "authority of other\n",
            10,
            Some("other"),
        ),
        ("a start, and nothing is known", None, "", 10, Some("new")),
        (
            "nothing is known, and what it serves is as good",
            Some(&old),
            "",
            10,
            None,
        ),
        (
            "what it serves has expired",
            Some(&old),
            "authority of old\n",
            150,
            Some("new"),
        ),
        (
            "it has, and another is known",
            Some(&old),
            "authority of old\nauthority of other\n",
            150,
            Some("other"),
        ),
    ] {
        let chosen = fallback(&found, &new, serving, published, &names, at(now));
        assert_eq!(chosen.map(|it| it.certificate.as_str()), expected, "{says}");
    }
}
