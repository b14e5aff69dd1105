//! Writes of statuses that wait until they have settled.

use std::time::Duration;

use super::*;

#[test]
fn what_passes_at_once_is_not_written() {
    let ms = Duration::from_millis;
    let mut debounced = Debounced::default();
    assert_eq!(debounced.waits_until(1, ms(0)), Some(ms(1000)));
    assert_eq!(
        debounced.waits_until(2, ms(100)),
        Some(ms(1100)),
        "another reason begins again"
    );
    assert_eq!(debounced.waits_until(2, ms(1099)), Some(ms(1100)));
    assert_eq!(debounced.waits_until(2, ms(1100)), None);
    assert_eq!(debounced.waits_until(2, ms(1150)), None, "not yet written");
    debounced.forget();
    assert_eq!(debounced.waits_until(2, ms(1200)), Some(ms(2200)));
}

#[test]
fn what_always_changes_is_written_now_and_then() {
    let mut debounced = Debounced::default();
    let due = (0..600).filter(|tick| {
        let now = Duration::from_millis(100) * *tick;
        debounced.waits_until(*tick, now).is_none()
    });
    assert_eq!(
        due.collect::<Vec<_>>(),
        (1..12).map(|nth| nth * 50).collect::<Vec<_>>()
    );
}
