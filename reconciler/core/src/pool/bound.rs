//! All pools, within a bound: who may edit pools can make any number, each as large as the schema takes it.

use super::Pool;

/// Most bytes of all pools, as they are in memory: some 4,000 of usual size, and 90 of the largest.
const MAX: usize = 32 << 20;
/// Most bytes of what is left of those that are given up.
const LEFT_MAX: usize = 16 << 20;

/// Gives the largest up until the others fit; then of the largest of those the selectors are forgotten, until what is left of
/// them fits. Returns whether one has changed.
pub(crate) fn bound<'p>(pools: impl Iterator<Item = &'p mut Pool>) -> bool {
    let mut all: Vec<&mut Pool> = pools.collect();
    let given_up = forget_of(&mut all, MAX, |pool| !pool.is_given_up(), Pool::give_up);
    forget_of(&mut all, LEFT_MAX, Pool::is_given_up, Pool::forget_selector) || given_up
}

/// Forgets something of the largest of those that count, until they fit.
fn forget_of(
    pools: &mut [&mut Pool],
    most: usize,
    counts: impl Fn(&Pool) -> bool,
    forget: impl Fn(&mut Pool),
) -> bool {
    let bytes_of = |pool: &Pool| if counts(pool) { pool.bytes } else { 0 };
    let mut bytes: usize = pools.iter().map(|pool| bytes_of(pool)).sum();
    if bytes <= most {
        return false;
    }
    // What is forgotten last is the selector.
    let mut all: Vec<_> = pools
        .iter_mut()
        .filter(|pool| counts(pool) && pool.selector.is_some())
        .collect();
    // By name, too, so that it is always the same ones.
    all.sort_by(|one, other| {
        (other.bytes, &other.metadata.name).cmp(&(one.bytes, &one.metadata.name))
    });
    let mut has_forgotten = false;
    for pool in all {
        if bytes <= most {
            break;
        }
        bytes -= bytes_of(pool);
        forget(pool);
        bytes += bytes_of(pool);
        has_forgotten = true;
    }
    has_forgotten
}
