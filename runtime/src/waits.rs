//! Waits after failures.

use std::time::Duration;

/// The wait `first`, doubled so many `times`, but at most `longest`.
pub fn doubled(first: Duration, times: u32, longest: Duration) -> Duration {
    let factor = 1_u32.checked_shl(times).unwrap_or(u32::MAX);
    first.checked_mul(factor).unwrap_or(longest).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_doubles_up_to_the_longest() {
        let (first, longest) = (Duration::from_millis(250), Duration::from_secs(30));
        for (times, expected) in
            [(0, 250), (1, 500), (6, 16_000), (7, 30_000), (31, 30_000), (u32::MAX, 30_000)]
        {
            assert_eq!(doubled(first, times, longest), Duration::from_millis(expected), "{times} times");
        }
        assert_eq!(doubled(Duration::MAX, 1, longest), longest);
    }
}
