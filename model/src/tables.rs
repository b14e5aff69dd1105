//! Every marker, set of slots, record and failure there can be: facts borrow them.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use brupop_api::Marker;
use brupop_api::fleet::{AcknowledgedHalt, Done, Halt, NodeFailure, Slot, VersionRecord};
use brupop_api::shadow::Failures;

use crate::ledger::{DonePool, Ledger, Record, SUCCEEDED_MAX};
use crate::objects::{
    ATTEMPTS_MAX, Failed, LIVES, Mark, NODES, NODES_MAX, POOLS, SHADOWS, TIMES, UIDS, VERSIONS,
};

/// A number made of digits, each below its base; the first is the lowest.
fn code(digits: impl DoubleEndedIterator<Item = (usize, usize)>) -> usize {
    digits.rev().fold(0, |code, (digit, base)| code * base + digit.min(base - 1))
}

/// The digits of a code, one after the other.
struct Digits(usize);

impl Digits {
    fn next(&mut self, base: usize) -> usize {
        let digit = self.0 % base;
        self.0 /= base;
        digit
    }

    fn flag(&mut self) -> bool {
        self.next(2) == 1
    }
}

const ATTEMPTS: usize = ATTEMPTS_MAX + 1;
const MARKERS_COUNT: usize = NODES_MAX * LIVES * ATTEMPTS * 256;
/// A slot that is not taken, or one for a life and an attempt, whose node may be lost or not, and whose failure is counted or not.
const SLOT: usize = 1 + LIVES * ATTEMPTS * 4;
/// No time, or one of them.
const TIME: usize = 1 + TIMES.len();
const RECORDS_COUNT: usize = TIME.pow(5) * (SUCCEEDED_MAX as usize + 1);
const FAILURES_COUNT: usize = ATTEMPTS * ATTEMPTS * TIMES.len() * 2;

static MARKERS: LazyLock<Vec<Marker>> = LazyLock::new(|| {
    let marker = |code| {
        let mut digits = Digits(code);
        let time = TIMES[digits.next(2)];
        let when = |set: bool| set.then(|| time.to_owned());
        let (index, life, attempt) = (digits.next(NODES_MAX), digits.next(LIVES), digits.next(ATTEMPTS));
        let mut marker = Marker {
            shadow_uid: UIDS[index][life].to_owned(),
            attempt: attempt as u64,
            cordoned_at: when(digits.flag()),
            drain_started_at: when(digits.flag()),
            drained_at: when(digits.flag()),
            tainted: digits.flag(),
            evicted_owners: if digits.flag() { OWNERS.clone() } else { vec![] },
            left_owners: if digits.flag() { OWNERS.clone() } else { vec![] },
            kept_since: when(digits.flag()),
            ..Marker::default()
        };
        // Whatever is evicted here has an owner.
        marker.emptied = !marker.evicted_owners.is_empty();
        // They are set with the cordon.
        let annotated = marker.drain_started_at.is_some() || marker.kept_since.is_some();
        (marker.do_not_disrupt, marker.scale_down_disabled) = (annotated, annotated);
        marker
    };
    (0..MARKERS_COUNT).map(marker).collect()
});

/// Slots that were taken in no pool.
static SLOTS: LazyLock<Vec<Slots>> =
    LazyLock::new(|| (0..SLOT.pow(3)).map(|code| slots_of(code, [None; NODES_MAX])).collect());

type Slots = BTreeMap<String, Slot>;

fn slots_of(code: usize, pools: [Option<u8>; NODES_MAX]) -> Slots {
    let mut digits = Digits(code);
    let taken = (0..NODES_MAX).filter_map(|index| {
        let mut held = Digits(digits.next(SLOT).checked_sub(1)?);
        let (counted, lost, attempt) = (held.flag(), held.flag(), held.next(ATTEMPTS) as u64);
        let uid = UIDS[index][held.next(LIVES)].to_owned();
        let version = Some(VERSIONS[1].to_owned());
        let pool = pools[index].map(|pool| POOLS[usize::from(pool)].to_owned());
        Some((
            SHADOWS[index].to_owned(),
            Slot { uid, attempt, version, pool, lost, counted, ..Slot::default() },
        ))
    });
    taken.collect()
}

/// What the ledger remembers of versions.
pub(crate) type Versions = BTreeMap<String, VersionRecord>;

/// Made when they are first needed: of all that there could be, few come up.
static VERSION_RECORDS: [OnceLock<Versions>; RECORDS_COUNT] = [const { OnceLock::new() }; RECORDS_COUNT];

fn version_record(code: usize, done: Option<DonePool>) -> Versions {
    let mut digits = Digits(code);
    let time = |digits: &mut Digits| Some(TIMES[digits.next(TIME).checked_sub(1)?].to_owned());
    let failures = (0..NODES_MAX).filter_map(|index| {
        let at = time(&mut digits)?;
        Some(NodeFailure {
            node: NODES[index].to_owned(),
            at,
            reason: "FellBack".to_owned(),
            ..NodeFailure::default()
        })
    });
    let record = VersionRecord {
        failures: failures.collect(),
        acknowledged_at: time(&mut digits),
        succeeded: digits.next(usize::from(SUCCEEDED_MAX) + 1) as u64,
        halted: time(&mut digits).map(|at| Halt { at, reason: "0 (FellBack)".to_owned(), ..Halt::default() }),
        done_pools: done
            .map(|done| {
                let since = done.since.map(|at| TIMES[usize::from(at)].to_owned());
                (POOLS[0].to_owned(), Done { since, longest_seconds: done.before.into() })
            })
            .into_iter()
            .collect(),
        ..VersionRecord::default()
    };
    BTreeMap::from([(VERSIONS[1].to_owned(), record)])
}

static FAILURES: LazyLock<Vec<Failures>> = LazyLock::new(|| {
    let failures = |code| {
        let mut digits = Digits(code);
        Failures {
            count: digits.next(ATTEMPTS) as u64,
            attempt: digits.next(ATTEMPTS) as u64,
            at: TIMES[digits.next(TIMES.len())].to_owned(),
            reason: if digits.flag() { "FellBack" } else { "StepFailed" }.to_owned(),
            obstacle: None,
        }
    };
    (0..FAILURES_COUNT).map(failures).collect()
});

/// The workloads whose pods run on every node.
pub(crate) static OWNERS: LazyLock<Vec<String>> =
    LazyLock::new(|| vec!["apps/v1/ReplicaSet/shop/cart".to_owned()]);

/// What may stand in `spec.acknowledgedHalts`, by its time.
static ACKNOWLEDGED: LazyLock<[[AcknowledgedHalt; 1]; TIMES.len()]> = LazyLock::new(|| {
    TIMES.map(|at| [AcknowledgedHalt { version: VERSIONS[1].to_owned(), halted_at: at.to_owned() }])
});

pub(crate) fn acknowledged(time: Option<u8>) -> &'static [AcknowledgedHalt] {
    time.map_or(&[], |time| &ACKNOWLEDGED[usize::from(time)])
}

pub(crate) fn marker(index: u8, mark: Mark) -> &'static Marker {
    let bits = [mark.cordoned, mark.started, mark.drained, mark.tainted, mark.owners, mark.left, mark.kept];
    let numbers = [
        (usize::from(mark.again), 2),
        (usize::from(index), NODES_MAX),
        (usize::from(mark.life), LIVES),
        (usize::from(mark.attempt), ATTEMPTS),
    ];
    let code = code(numbers.into_iter().chain(bits.map(|bit| (usize::from(bit), 2))));
    &MARKERS[code]
}

pub(crate) fn slots(ledger: &Ledger) -> &'static Slots {
    let digit = |held: crate::ledger::Held| {
        let digits = [
            (usize::from(held.counted), 2),
            (usize::from(held.lost), 2),
            (usize::from(held.attempt), ATTEMPTS),
            (usize::from(held.life), LIVES),
        ];
        1 + code(digits.into_iter())
    };
    let code = code(ledger.slots.iter().map(|slot| (slot.map_or(0, digit), SLOT)));
    let pools = ledger.slots.map(|slot| slot.and_then(|held| held.pool));
    if pools == [None; NODES_MAX] { &SLOTS[code] } else { in_pools(code, pools) }
}

/// A code of slots, and the pools in which they were taken.
type InPools = (usize, [Option<u8>; NODES_MAX]);

/// Made when they are first needed, as few of them are.
fn in_pools(code: usize, pools: [Option<u8>; NODES_MAX]) -> &'static Slots {
    static KNOWN: Mutex<BTreeMap<InPools, &'static Slots>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.entry((code, pools)).or_insert_with(|| Box::leak(Box::new(slots_of(code, pools))))
}

pub(crate) fn versions(record: Option<Record>) -> &'static Versions {
    static NONE: Versions = BTreeMap::new();
    let Some(record) = record else { return &NONE };
    let time = |time: Option<u8>| (time.map_or(0, |time| usize::from(time) + 1), TIME);
    let rest = [
        time(record.acknowledged),
        (usize::from(record.succeeded), usize::from(SUCCEEDED_MAX) + 1),
        time(record.halted),
    ];
    let code = code(record.failures.map(time).into_iter().chain(rest));
    match record.done {
        None => VERSION_RECORDS[code].get_or_init(|| version_record(code, None)),
        Some(done) => {
            static KNOWN: Mutex<BTreeMap<(usize, DonePool), &'static Versions>> = Mutex::new(BTreeMap::new());
            let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry((code, done)).or_insert_with(|| Box::leak(Box::new(version_record(code, Some(done)))))
        }
    }
}

pub(crate) fn failures(failed: Failed) -> &'static Failures {
    let digits = [
        (usize::from(failed.count), ATTEMPTS),
        (usize::from(failed.attempt), ATTEMPTS),
        (usize::from(failed.at), TIMES.len()),
        (usize::from(failed.corroborated), 2),
    ];
    &FAILURES[code(digits.into_iter())]
}
