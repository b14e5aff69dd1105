//! All pools, within a bound: who may edit pools can make any number, each as large as the schema takes it.

use crate::pool::Pool;

/// Most bytes of all pools, as they are in memory: some 4,000 of usual size, and 90 of the largest.
const MAX: usize = 32 << 20;

/// Gives the largest up until the others fit. Returns whether one was.
pub fn bound<'p>(pools: impl Iterator<Item = &'p mut Pool>) -> bool {
    let mut all: Vec<&mut Pool> = pools.filter(|pool| !pool.is_given_up()).collect();
    let mut bytes: usize = all.iter().map(|pool| pool.bytes).sum();
    if bytes <= MAX {
        return false;
    }
    // By name, too, so that it is always the same ones.
    all.sort_by(|one, other| (other.bytes, &other.metadata.name).cmp(&(one.bytes, &one.metadata.name)));
    for pool in all {
        if bytes <= MAX {
            break;
        }
        bytes -= pool.bytes;
        pool.give_up();
    }
    true
}
