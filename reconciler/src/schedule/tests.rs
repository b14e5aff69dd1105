//! Expressions as upstream's users wrote them, spans, time zones, and the nights on which clocks are changed.

use super::*;

fn schedule(text: &str) -> Schedule {
    Schedule::new(text, TimeZone::UTC, None).unwrap()
}

fn spans(text: &str, zone: &str, hours: i64) -> Schedule {
    Schedule::new(text, TimeZone::get(zone).unwrap(), Some(SignedDuration::from_hours(hours))).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn two_meanings_of_an_expression() {
    for (text, kind) in [
        ("* * * * * * *", Kind::Always),
        ("  *  * * * * * * ", Kind::Always),
        ("* * 10-11 * * * *", Kind::Window),
        ("* * * * * SAT,SUN *", Kind::Window),
        ("0-29 * * * * * *", Kind::Window),
        ("0 0 3 * * MON *", Kind::Shot),
        ("0 * * * * * *", Kind::Shot),
        ("*/2 * * * * * *", Kind::Shot),
        ("0 0 3 1 1 * 2030", Kind::Shot),
    ] {
        assert_eq!(schedule(text).kind(), kind, "{text}");
    }
}

#[test]
fn nonsense_is_refused() {
    for text in ["", "* * * * *", "* * * * * *", "61 * * * * * *", "* * * 31 2 * *", "a b c d e f g"] {
        let sentence = Schedule::new(text, TimeZone::UTC, None).unwrap_err();
        assert!(sentence.contains("* * * * * * *"), "{text}: {sentence}");
    }
}

#[test]
fn a_window_is_open_while_it_matches() {
    let window = schedule("* * 10-11 * * MON-FRI *");
    let mut starts = Starts::default();
    for (time, open) in [
        ("2026-11-20T09:59:59Z", false), // a Friday
        ("2026-11-20T10:00:00Z", true),
        ("2026-11-20T11:59:59.999Z", true),
        ("2026-11-20T12:00:00Z", false),
        ("2026-11-21T10:30:00Z", false),
    ] {
        assert_eq!(starts.allowed(&window, at(time), SignedDuration::ZERO, || false), open, "{time}");
    }
    assert_eq!(window.opens(at("2026-11-20T12:00:00Z")), Some(at("2026-11-23T10:00:00Z")));
}

#[test]
fn a_shot_lasts_until_none_is_left() {
    let nightly = schedule("0 0 3 * * * *");
    let mut starts = Starts::default();
    let allowed =
        |time: &str, starts: &mut Starts| starts.allowed(&nightly, at(time), SignedDuration::ZERO, || false);
    assert!(!allowed("2026-11-20T02:59:59Z", &mut starts));
    assert!(allowed("2026-11-20T03:00:07Z", &mut starts), "fired between two looks");
    assert!(allowed("2026-11-20T09:00:00Z", &mut starts));
    starts.none_left();
    assert!(!allowed("2026-11-20T09:00:01Z", &mut starts));
    assert!(allowed("2026-11-21T03:00:00Z", &mut starts));
}

#[test]
fn a_new_leader_goes_on_with_a_shot_that_is_under_way() {
    let nightly = schedule("0 0 3 * * * *");
    assert!(Starts::default().allowed(&nightly, at("2026-11-20T04:00:00Z"), SignedDuration::ZERO, || true));
    assert!(!Starts::default().allowed(&nightly, at("2026-11-20T04:00:00Z"), SignedDuration::ZERO, || false));
    assert!(open(&nightly, "2026-11-20T03:00:20Z"), "it was fired while nobody led");
    assert!(!open(&nightly, "2026-11-20T03:03:00Z"));
}

fn open(schedule: &Schedule, time: &str) -> bool {
    Starts::default().allowed(schedule, at(time), SignedDuration::ZERO, || false)
}

#[test]
fn a_span_is_open_for_its_length_in_its_time_zone() {
    let nights = spans("0 22 * * MON-FRI", "Europe/Berlin", 4);
    assert_eq!(nights.kind(), Kind::Span(SignedDuration::from_hours(4)));
    for (time, expected) in [
        ("2026-11-20T20:59:59Z", false), // a Friday, 21:59:59 in Berlin
        ("2026-11-20T21:00:00Z", true),
        ("2026-11-21T00:59:59Z", true),
        ("2026-11-21T01:00:00Z", false),
        ("2026-11-21T21:30:00Z", false), // a Saturday
    ] {
        assert_eq!(open(&nights, time), expected, "{time}");
    }
    assert_eq!(nights.opens(at("2026-11-21T12:00:00Z")), Some(at("2026-11-23T21:00:00Z")));
    let overlapping = spans("0 * * * *", "UTC", 2);
    assert!(open(&overlapping, "2026-11-21T12:34:56Z"));
}

#[test]
fn seven_fields_with_a_duration_are_a_span_too() {
    let hours = |text: &str| Schedule::new(text, TimeZone::UTC, Some(SignedDuration::from_hours(1)));
    assert!(open(&hours("30 0 3 * * * *").unwrap(), "2026-11-21T03:59:59Z"));
    // The default expression, too: who sets only the duration wants a window, and would have none.
    for each_second in [ALWAYS, "* * 3 * * * *"] {
        let sentence = hours(each_second).unwrap_err();
        assert!(sentence.contains("fires each second") && sentence.contains("0 2 * * SAT"), "{sentence}");
    }
    let sentence = Schedule::new("0 3 * * *", TimeZone::UTC, None).unwrap_err();
    assert!(sentence.contains("seven fields"), "{sentence}");
}

#[test]
fn what_the_clock_skips_in_spring_comes_later_and_what_it_repeats_in_autumn_comes_once() {
    // 02:30 does not exist in Berlin on 2026-03-29, and comes twice on 2026-10-25.
    let nightly = spans("30 2 * * *", "Europe/Berlin", 1);
    let fires = |from: &str| nightly.next(at(from)).unwrap().to_string();
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
    assert_eq!(
        window.opens(at("2026-03-29T00:30:00Z")),
        Some(at("2026-03-30T00:00:00Z")),
        "skipped in spring"
    );
    let one = Schedule::new("* * 1 * * * *", berlin(), None).unwrap();
    assert_eq!(one.opens(at("2026-10-25T00:30:00Z")), Some(at("2026-10-26T00:00:00Z")));
}

#[test]
fn what_fits_into_no_window_is_told_from_what_only_comes_too_late() {
    let window = schedule("* * 10-11 * * * *");
    let two_hours = spans("0 10 * * *", "UTC", 2);
    for (minutes, fits) in [(0, true), (1, true), (60, true), (114, true), (116, false), (10_000, false)] {
        let takes = SignedDuration::from_mins(minutes);
        for time in ["2026-11-20T10:00:30Z", "2026-11-20T11:10:00Z", "2026-11-20T11:59:30Z"] {
            assert_eq!(window.fits(at(time), takes), fits, "{minutes} minutes at {time}");
        }
        assert_eq!(two_hours.fits(at("2026-11-20T11:10:00Z"), takes), fits, "{minutes} minutes");
        assert!(schedule("0 0 3 * * * *").fits(at("2026-11-20T11:10:00Z"), takes), "a shot has no end");
    }
}

#[test]
fn what_does_not_fit_into_the_rest_does_not_start() {
    let window = schedule("* * 10-11 * * * *");
    let two_hours = spans("0 10 * * *", "UTC", 2);
    let ends = at("2026-11-20T11:40:00Z");
    assert_eq!(window.opens(ends), Some(at("2026-11-21T10:00:00Z")), "not in the next second");
    let hourly = spans("0 * * * *", "UTC", 2);
    for schedule in [&window, &two_hours] {
        let fits = |time: &str, minutes| {
            Starts::default().allowed(schedule, at(time), SignedDuration::from_mins(minutes), || false)
        };
        assert!(fits("2026-11-20T11:00:00Z", 59));
        assert!(!fits("2026-11-20T11:30:30Z", 30));
        assert!(!fits("2026-11-20T11:59:00Z", 2));
    }
    assert!(Starts::default().allowed(
        &hourly,
        at("2026-11-20T11:59:00Z"),
        SignedDuration::from_hours(100),
        || false
    ));
}

#[test]
fn an_expression_of_years_gone_by_never_opens_again() {
    let now = at("2026-11-22T12:00:00Z");
    for (text, ever) in [
        ("* * * * * * *", true),
        ("0 0 2 * * SAT 2025", false),
        ("0 0 2 * * * 2026", true),
        ("0 0 2 21 11 * 2026", false),
        ("* * * 22 11 * 2026", true),
    ] {
        assert_eq!(Schedule::new(text, TimeZone::UTC, None).unwrap().opens_ever(now), ever, "{text}");
    }
    let span =
        |hours| Schedule::new("0 0 6 22 11 * 2026", TimeZone::UTC, Some(SignedDuration::from_hours(hours)));
    assert!(span(8).unwrap().opens_ever(now) && !span(4).unwrap().opens_ever(now));
}
