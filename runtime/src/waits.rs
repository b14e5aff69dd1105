//! Waits between tries: back-off and jitter.

use std::time::Duration;

/// The wait `first`, doubled `times` times, but at most `longest`.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    first.checked_mul(factor).unwrap_or(longest).min(longest)
}

/// A random duration that is at most this share longer or shorter, so that the processes of a fleet do not all ask at once.
pub fn jittered(duration: Duration, share: f64) -> Duration {
    duration.mul_f64(1.0 + share * (2.0 * fastrand::f64() - 1.0))
}

/// A random part of this duration.
pub fn random_part(duration: Duration) -> Duration {
    duration.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_the_longest() {
        let (first, longest) = (Duration::from_millis(250), Duration::from_secs(30));
        for (times, expected) in [
            (0, 250),
            (1, 500),
            (6, 16_000),
            (7, 30_000),
            (31, 30_000),
            (u32::MAX, 30_000),
        ] {
            assert_eq!(
                doubled(first, times, longest),
                Duration::from_millis(expected),
                "{times} times"
            );
        }
        assert_eq!(doubled(Duration::MAX, 1, longest), longest);
    }
}
