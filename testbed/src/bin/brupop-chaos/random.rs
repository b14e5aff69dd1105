//! Random numbers that are the same for the same seed, whatever becomes of libraries: `SplitMix64`.

use std::ops::Range;

/// A source of random numbers.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of this range, which must not be empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start).max(1)
    }

    pub(crate) fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        let index = self.within(0..u64::try_from(of.len()).unwrap_or(u64::MAX));
        &of[usize::try_from(index).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_from_the_seed() {
        let mut random = Random::new(1_234_567);
        assert_eq!(
            [random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
        assert!((0..100).all(|_| (3..5).contains(&random.within(3..5))));
    }
}
