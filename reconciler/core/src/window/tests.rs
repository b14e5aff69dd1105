//! Expressions as upstream's users wrote them, durations, time zones, and the nights on which clocks are changed.

use std::slice;

use super::*;
use crate::tests::world::at;
use proptest::prelude::*;

fn schedule(text: &str) -> Schedule {
    Schedule::new(text, TimeZone::UTC, None).unwrap()
}

fn opening(text: &str, zone: &str, hours: i64) -> Schedule {
    Schedule::new(
        text,
        TimeZone::get(zone).unwrap(),
        Some(SignedDuration::from_hours(hours)),
    )
    .unwrap()
}

#[test]
fn what_an_expression_means_without_a_duration() {
    for (text, kind) in [
        ("* * * * * * *", "always"),
        ("  *  * * * * * * ", "always"),
        ("* * 10-11 * * * *", "while it matches"),
        ("* * * * * SAT,SUN *", "while it matches"),
        ("0-29 * * * * * *", "while it matches"),
        ("0 0 3 * * MON *", "for a while"),
        ("0 0 3 1 1 * 2030", "for a while"),
    ] {
        let is = match windows(text, TimeZone::UTC, None)
            .unwrap()
            .pop()
            .map(|schedule| schedule.kind)
        {
            None => "always",
            Some(ScheduleKind::WhileMatching(_)) => "while it matches",
            Some(ScheduleKind::After(_)) => "for a while",
        };
        assert_eq!(is, kind, "{text}");
    }
}

#[test]
fn a_daily_one_shot_needs_a_duration() {
    for text in [
        "0 0 3 * * * *",
        "0 0 3 * * MON-FRI *",
        "0 * * * * * *",
        "*/2 * * * * * *",
    ] {
        let sentence = Schedule::new(text, TimeZone::UTC, None).unwrap_err();
        assert!(
            sentence.contains("SCHEDULER_WINDOW_DURATION, such as 4h"),
            "{text}: {sentence}"
        );
        assert!(
            Schedule::new(text, TimeZone::UTC, Some(SignedDuration::from_hours(4))).is_ok(),
            "{text}"
        );
    }
}

#[test]
fn nonsense_is_refused() {
    for text in [
        "",
        "* * * * *",
        "* * * * * *",
        "61 * * * * * *",
        "a b c d e f g",
    ] {
        let sentence = Schedule::new(text, TimeZone::UTC, None).unwrap_err();
        assert!(sentence.contains("* * * * * * *"), "{text}: {sentence}");
    }
    let never = Schedule::new("* * * 31 2 * *", TimeZone::UTC, None).unwrap_err();
    assert_eq!(never, "it never fires: there is no such day");
}

fn open(schedule: &Schedule, time: &str) -> bool {
    is_open(schedule, at(time))
}

fn is_open(schedule: &Schedule, at: Timestamp) -> bool {
    span(slice::from_ref(schedule), at).is_some_and(|(start, end)| start <= at && at < end)
}

#[test]
fn a_window_opens_and_closes_to_the_second() {
    let (matching, one_shot) = (
        schedule("* * 10-11 * * MON-FRI *"),
        schedule("0 0 3 * * MON *"),
    );
    let nights = opening("0 22 * * MON-FRI", "Europe/Berlin", 4);
    for (what, schedule, time, expected) in [
        ("on a Friday", &matching, "2026-11-20T09:59:59Z", false),
        ("while it matches", &matching, "2026-11-20T10:00:00Z", true),
        ("to its end", &matching, "2026-11-20T11:59:59.999Z", true),
        ("and no longer", &matching, "2026-11-20T12:00:00Z", false),
        (
            "nor on a Saturday",
            &matching,
            "2026-11-21T10:30:00Z",
            false,
        ),
        ("on a Monday", &one_shot, "2026-11-23T02:59:59Z", false),
        ("for a day", &one_shot, "2026-11-23T03:00:00Z", true),
        ("to its end", &one_shot, "2026-11-24T02:59:59Z", true),
        ("and no longer", &one_shot, "2026-11-24T03:00:00Z", false),
        (
            "on a Friday, 21:59:59 in Berlin",
            &nights,
            "2026-11-20T20:59:59Z",
            false,
        ),
        ("in its time zone", &nights, "2026-11-20T21:00:00Z", true),
        ("to its end", &nights, "2026-11-21T00:59:59Z", true),
        ("and no longer", &nights, "2026-11-21T01:00:00Z", false),
        ("nor on a Saturday", &nights, "2026-11-21T21:30:00Z", false),
        (
            "while one is open",
            &opening("0 * * * *", "UTC", 2),
            "2026-11-21T12:34:56Z",
            true,
        ),
    ] {
        assert_eq!(open(schedule, time), expected, "{what}: {time}");
    }
    for (schedule, after, opens) in [
        (&matching, "2026-11-20T12:00:00Z", "2026-11-23T10:00:00Z"),
        (&one_shot, "2026-11-24T03:00:00Z", "2026-11-30T03:00:00Z"),
        (&nights, "2026-11-21T12:00:00Z", "2026-11-23T21:00:00Z"),
    ] {
        assert_eq!(schedule.opens(at(after)), Some(at(opens)), "after {after}");
    }
}

#[test]
fn seven_fields_may_have_a_duration_too() {
    let hours =
        |text: &str| Schedule::new(text, TimeZone::UTC, Some(SignedDuration::from_hours(1)));
    assert!(open(
        &hours("30 0 3 * * * *").unwrap(),
        "2026-11-21T03:59:59Z"
    ));
    // The default expression, too: who sets only the duration wants a window, and would have none.
    for each_second in [ALWAYS, "* * 3 * * * *"] {
        let sentence = hours(each_second).unwrap_err();
        assert!(
            sentence.contains("fires each second") && sentence.contains("0 2 * * SAT"),
            "{sentence}"
        );
    }
    let sentence = Schedule::new("0 3 * * *", TimeZone::UTC, None).unwrap_err();
    assert!(sentence.contains("seven fields"), "{sentence}");
}

#[test]
fn a_skipped_hour_delays_a_repeated_counts_once() {
    // 02:30 does not exist in Berlin on 2026-03-29, and comes twice on 2026-10-25.
    let nightly = opening("30 2 * * *", "Europe/Berlin", 1);
    let fires = |from: &str| nightly.opens(at(from)).unwrap().to_string();
    assert_eq!(fires("2026-03-28T12:00:00Z"), "2026-03-29T01:30:00Z"); // 03:30, summer time
    assert_eq!(fires("2026-03-29T01:30:00Z"), "2026-03-30T00:30:00Z");
    assert_eq!(fires("2026-10-24T12:00:00Z"), "2026-10-25T00:30:00Z"); // the first 02:30
    assert_eq!(fires("2026-10-25T00:30:00Z"), "2026-10-26T01:30:00Z"); // the second one is no fire
    for (time, expected) in [
        ("2026-03-29T01:29:59Z", false),
        ("2026-03-29T02:29:59Z", true),
        ("2026-03-29T02:30:00Z", false),
        ("2026-10-25T00:30:00Z", true),
        ("2026-10-25T01:29:59Z", true),
        ("2026-10-25T01:30:00Z", false),
    ] {
        assert_eq!(open(&nightly, time), expected, "{time}");
    }
}

#[test]
fn a_window_follows_the_clock_on_the_wall() {
    let berlin = || TimeZone::get("Europe/Berlin").unwrap();
    let window = Schedule::new("* * 2 * * * *", berlin(), None).unwrap();
    for (time, expected) in [
        ("2026-03-29T00:59:59Z", false), // 01:59:59, then it is 03:00
        ("2026-03-29T01:00:00Z", false),
        ("2026-10-25T00:00:00Z", true), // 02:00 in summer time
        ("2026-10-25T01:30:00Z", true), // 02:30 once more, in winter time
        ("2026-10-25T02:00:00Z", false),
    ] {
        assert_eq!(open(&window, time), expected, "{time}");
    }
    let of = |text: &str| Schedule::new(text, berlin(), None).unwrap();
    let (half, quarters) = (of("* 30-59 2 * * * *"), of("* 5,40 2 * * * *"));
    for (what, schedule, after, opens) in [
        (
            "skipped in spring",
            &window,
            "2026-03-29T00:30:00Z",
            "2026-03-30T00:00:00Z",
        ),
        (
            "on the second",
            &of("* * 2,4 * * * *"),
            "2026-03-29T00:30:00Z",
            "2026-03-29T02:00:00Z",
        ),
        (
            "the second 02:30",
            &half,
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
        ),
        (
            "the second 02:30",
            &half,
            "2026-10-25T01:10:00Z",
            "2026-10-25T01:30:00Z",
        ),
        (
            "02:05 once more",
            &quarters,
            "2026-10-25T00:41:00Z",
            "2026-10-25T01:05:00Z",
        ),
        (
            "the next day",
            &quarters,
            "2026-10-25T01:41:00Z",
            "2026-10-26T01:05:00Z",
        ),
        (
            "not twice",
            &of("* * 1 * * * *"),
            "2026-10-25T00:30:00Z",
            "2026-10-26T00:00:00Z",
        ),
    ] {
        assert_eq!(schedule.opens(at(after)), Some(at(opens)), "{what}");
    }
}

proptest! {
    /// The same as if each fire time was looked at.
    #[test]
    fn a_window_is_what_its_fire_times_make(
        minute in prop::sample::select(vec!["0", "30", "*/7", "*/20", "59", "10-20", "0,5,50"]),
        hour in prop::sample::select(vec!["0", "2", "*", "*/5", "2-4", "23", "22-23"]),
        days in prop::sample::select(vec!["* * *", "* * SAT", "1,20-22 * *", "* 11 MON-FRI", "L * *", "* * SUN#2"]),
        minutes in prop::sample::select(vec![1_i64, 7, 20, 60, 300, 1440, 3000]),
        zone in prop::sample::select(vec!["UTC", "Asia/Kolkata", "America/New_York"]),
        second in 0_i64..40 * 24 * 3600,
    ) {
        // No clock is changed from December to February in these.
        let (from, until) = (at("2026-11-25T00:00:00Z"), at("2027-02-25T00:00:00Z"));
        let now = at("2026-12-10T00:00:00Z") + SignedDuration::from_secs(second);
        let text = format!("{minute} {hour} {days}");
        let (zone, length) = (TimeZone::get(zone).unwrap(), SignedDuration::from_mins(minutes));
        let cron: Cron = CronParser::builder().seconds(Seconds::Disallowed).build().parse(&text).unwrap();
        let fires = cron.iter_after(zone.to_datetime(from)).map(|at| zone.to_timestamp(at).unwrap());
        let mut spans: Vec<Span> = vec![];
        for fires in fires.take_while(|fires| *fires < until) {
            match spans.last_mut() {
                Some((_, end)) if fires <= *end => *end = fires + length,
                _ => spans.push((fires, fires + length)),
            }
        }
        let expected = spans.into_iter().find(|(_, end)| now < *end);
        let month = SignedDuration::from_hours(14 * 24);
        // What lasts for longer is not looked at to its end; what is far away is not in the list.
        prop_assume!(expected.is_some_and(|(start, end)| end.duration_since(start) < month));
        let schedule = Schedule::new(&text, zone, Some(length)).unwrap();
        prop_assert_eq!(span(slice::from_ref(&schedule), now), expected, "{} at {}", text, now);
        let (start, end) = expected.unwrap();
        prop_assert_eq!(is_open(&schedule, now), start <= now);
        prop_assert_eq!(is_open(&schedule, end), false);
    }
}
