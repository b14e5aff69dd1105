mod races;

use super::*;

const LIFETIMES: Lifetimes = Lifetimes {
    lifetime: SignedDuration::from_hours(90),
    overlap: SignedDuration::from_mins(1),
};

const NAME: &str = "webhook.ns.svc";

/// The cells of a table's row.
fn cells<const N: usize>(row: &str) -> [&str; N] {
    let cells: Vec<_> = row.split('|').map(str::trim).collect();
    cells.try_into().unwrap()
}

fn number(cell: &str) -> i64 {
    cell.parse().unwrap()
}

fn at(minutes: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(1_000_000 + minutes)
}

fn generation(id: &str, serve_from: i64, not_after: i64) -> CertificateGeneration {
    CertificateGeneration {
        authority: format!("authority of {id}\n"),
        certificate: id.to_owned(),
        key: String::new(),
        names: vec![NAME.to_owned()],
        serve_from: at(serve_from),
        not_after: at(not_after),
    }
}

/// Returns what `plan` says, in short: the generation's id and the minute of the next look, or the minute of first service.
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
    // A generation lasts 5400 minutes, and is renewed when 1800 are left. `a` is served from minute 0 on, `b` from the
    // minute that is named.
    let month = 5400;
    for row in "
        the Secret as shipped                                        | | 0 | renew, serve from 0
        a fresh one                                                  | a | 10 | serve a, look at 15
        close to renewal: woken for it                               | a | 3598 | serve a, look at 3600
        a third left: the old one goes on until the new one is known | a | 3600 | renew, serve from 3601
        published, not yet served                                    | a b3601 | 3600 | serve a, look at 3601
        the newest is the last                                       | b2 a | 10 | serve a, look at 15
        served when due                                              | a b3601 | 3601 | serve b, look at 3606
        expired while nobody looked                                  | a | 5400 | renew, serve from 5400
        the old one expires beside the new one                       | a b3601 | 5400 | serve b, look at 5405
        the clock went back before all of them                       | b3601 | 3000 | serve b, look at 3005
        the newest was made by a clock far ahead                     | a b90000 | 10 | serve b, look at 15
        the newest was made by a clock far behind                    | a b-90000 | 10 | serve a, look at 15
        published by a clock that is ahead                           | b30 | 0 | serve b, look at 5
    "
    .trim()
    .lines()
    {
        let [case, found, now, expected] = cells(row);
        let made = |id: &str| match id.strip_prefix('b') {
            Some(from) => generation("b", number(from), number(from) + month),
            None => generation(id, 0, month),
        };
        let found: Vec<_> = found.split_whitespace().map(made).collect();
        assert_eq!(summary(&found, &[NAME], number(now)), expected, "{case}");
    }
}

#[test]
fn certificates_are_planned_by_the_names_they_are_good_for() {
    let of = |id: &str, serve_from, names: &[&str]| CertificateGeneration {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        ..generation(id, serve_from, 5400)
    };
    let (ours, more) = (of("a", 0, &[NAME]), of("a", 0, &[NAME, "::1"]));
    let other = of("b", 5, &["other"]);
    let served = "serve a, look at 15";
    for (found, name, expected) in [
        (
            vec![ours.clone()],
            "team-webhook.ns.svc",
            "renew, serve from 10",
        ),
        (vec![more], NAME, served),
        // Two replicas that want different names keep one each.
        (vec![ours, other], NAME, served),
    ] {
        assert_eq!(summary(&found, &[name], 10), expected, "{found:?}");
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
    let found = [
        generation("old", 0, 100),
        generation("other", 1, 200),
        generation("new", 2, 300),
    ];
    let of = |id: &str| found.iter().find(|it| it.certificate == id);
    for row in "
        it goes on with what is known                            | old | old | 10 |
        what it serves is not known any more, another is         | old | other | 10 | other
        a start: what is known comes before what is new          | | other | 10 | other
        a start, and nothing is known                            | | | 10 | new
        nothing is known, and what it serves is as good          | old | | 10 |
        what it serves has expired                               | old | old | 150 | new
        it has, and another is known                             | old | old other | 150 | other
    "
    .trim()
    .lines()
    {
        let [says, serving, published, now, expected] = cells(row);
        let published = published.split(' ').filter_map(of);
        let published: String = published.map(|it| it.authority.as_str()).collect();
        let names = [NAME.to_owned()];
        let chosen = fallback(
            &found,
            &found[2],
            of(serving),
            &published,
            &names,
            at(number(now)),
        );
        assert_eq!(chosen, of(expected), "{says}");
    }
}
