//! Tests of the reported problem.

use brupop_api::printable::is_printable;
use brupop_apply::apply;

use super::*;

/// Returns what the shadow says after a prepare that failed with this status and this on stderr.
fn message_after(exit_status: Option<i32>, stderr: &str) -> String {
    let ended = LastCommand {
        exit_status,
        stderr,
        ..last(Command::Prepare, false, 2)
    };
    let updates = known(UpdateState::Available, Some(NEW), None, ended);
    let host = HostFacts {
        updates,
        ..old(Updates::Unknown)
    };
    let mut shadow = shadow(State::StagedAndPerformedUpdate);
    let read = shadow.clone();
    let (Step::Report(write), memory) = step(&host, &facts(&read), &asked(Command::Prepare, 1))
    else {
        panic!("a failure is reported")
    };
    apply(&write, &mut shadow).unwrap();
    let (next, _) = step(&host, &facts(&shadow), &memory);
    assert_eq!(words(&next), "wait", "it is said once");
    shadow.status.unwrap().message.unwrap()
}

#[test]
fn whatever_the_host_says_can_be_reported() {
    let begins = "prepare failed with exit status 1: ";
    for (stderr, expected) in [
        (
            " Failed to update:\n  no space\r\n\t(os error 28)\n",
            "Failed to update: no space (os error 28)",
        ),
        ("\0\u{1b}[2J\u{7}\u{9b}", "\\u{0}\\u{1b}[2J\\u{7}\\u{9b}"),
        (
            "a\u{202e}b\u{2066}\u{200b}\u{feff}",
            "a\\u{202e}b\\u{2066}\\u{200b}\\u{feff}",
        ),
        ("a\u{2028}b\u{85}c", "a b c"),
    ] {
        assert_eq!(
            message_after(Some(1), stderr),
            format!("{begins}{expected}")
        );
    }
    for (status, told) in [
        (None, "no exit status"),
        (Some(9), "exit status or signal 9"),
    ] {
        assert_eq!(
            message_after(status, "no space\n"),
            format!("prepare failed with {told}: no space")
        );
    }
    for long in ["é", "\0", "\u{1b}[31mno \n", "x"].map(|word| word.repeat(400_000)) {
        let message = message_after(Some(1), &long);
        assert!(
            (1010..=1024).contains(&message.len()) && is_printable(&message),
            "{message:?}"
        );
        assert!(message.ends_with('…'), "{message:?}");
    }
}

#[test]
fn trouble_with_the_host_is_said_once() {
    let reported = |shadow: &BottlerocketShadow, reason: &str| {
        let write = host_trouble(&facts(shadow), Problem::HostUnreachable, reason, NOW);
        write.map(|write| words(&Step::Report(write)))
    };
    assert_eq!(
        reported(&shadow(State::Idle), "no socket").as_deref(),
        Some("HostUnreachable \"no socket\"")
    );
    let standing = says(shadow(State::Idle), Problem::HostUnreachable, "no socket");
    assert_eq!(reported(&standing, "no socket"), None);
    assert_eq!(
        reported(&standing, "half an answer").as_deref(),
        Some("\"half an answer\"")
    );
}
