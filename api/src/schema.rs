//! What the API server accepts for the values of fields that have the same type in several places. A field names its type
//! here by `with`; a bound that one field alone has stands at that field.
#![expect(
    dead_code,
    reason = "fields hold plain strings and numbers; of these types only the schemas are used"
)]

use schemars::JsonSchema;

use crate::crds::{
    BOOT_ID_MAX, COUNTER_MAX, LABEL_MAX, MESSAGE_MAX, NAME_MAX, POOL_FAILURES_MAX, TIME_MAX, VARIANT_MAX,
    VERSION_MAX, WORD_MAX,
};
use crate::printable::PATTERN;

/// See [`is_variant`](crate::crds::is_variant).
const VARIANT: &str = "^[0-9A-Za-z._-]+$";
/// <https://semver.org/#is-there-a-suggested-regular-expression-regex-to-check-a-semver-string>
const SEMVER: &str = concat!(
    r"^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)",
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?",
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$"
);
const BOOT_ID: &str = r"^[0-9A-Za-z._-]+$";
/// RFC 3339, as far as characters go. The API server's own check of the format `date-time` lets other text follow.
pub(crate) const TIME: &str = r"^[0-9TZtz:.+-]*$";
pub(crate) const UID: &str = r"^[0-9A-Za-z._-]*$";
/// Names of Nodes: <https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names>
pub(crate) const NAME: &str = r"^[0-9a-z.-]*$";
/// In CamelCase.
const WORD: &str = r"^[A-Z][A-Za-z]*$";
const LABEL_VALUE: &str = r"^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const LABEL_KEY: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const DNS_LABEL: &str = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// What cron expressions consist of, as far as characters go.
pub(crate) const CRON: &str = r"^[0-9A-Za-z*/,#? -]+$";
/// The rule for hours, minutes, seconds. A rule has words of its own, in place of which a pattern would be shown.
const DURATION_RULE: &str = "self.matches('^([0-9]{1,5}h)?([0-9]{1,5}m)?([0-9]{1,6}s)?$')";
const DURATION_HINT: &str = "write hours, minutes and seconds, such as 24h or 1h30m";
const VERSION_HINT: &str = "write a semantic version, such as 1.20.0";
pub(crate) const TIME_ZONE: &str = r"^[A-Za-z][A-Za-z0-9_+/-]*$";
/// The rule for limits.
pub(crate) const MAX_UNAVAILABLE_RULE: &str =
    "type(self) == int ? self >= 1 && self <= 100000 : self.matches('^(100|[1-9][0-9]?)%$')";
/// What to write instead.
pub(crate) const MAX_UNAVAILABLE_HINT: &str =
    "write a number from 1, such as 2, or a percentage from 1% to 100%, such as \"10%\"";

// These types have plain comments: `kubectl explain` would show docstrings.

// A count that only grows, or one of objects.
#[derive(JsonSchema)]
pub(crate) struct Counter(#[schemars(range(min = 0, max = COUNTER_MAX))] i64);

// How many failures a pool lets pass.
#[derive(JsonSchema)]
pub(crate) struct FailureCount(#[schemars(range(min = 1, max = POOL_FAILURES_MAX))] i32);

// A time as RFC 3339 has it.
#[derive(JsonSchema)]
pub(crate) struct Time(
    #[schemars(length(max = TIME_MAX), regex(pattern = TIME), extend("format" = "date-time"))] String,
);

// A span of time, such as `1h30m`.
#[derive(JsonSchema)]
pub(crate) struct Duration(
    #[schemars(
    length(min = 2, max = 32),
    extend("x-kubernetes-validations" = [{"rule": DURATION_RULE, "message": DURATION_HINT}])
)]
    String,
);

// A version of Bottlerocket.
#[derive(JsonSchema)]
pub(crate) struct Version(#[schemars(length(max = VERSION_MAX), regex(pattern = SEMVER))] String);

// A version that a person writes.
#[derive(JsonSchema)]
pub(crate) struct WrittenVersion(
    #[schemars(
    length(max = VERSION_MAX),
    extend("x-kubernetes-validations" = [{"rule": format!("self.matches(r'{SEMVER}')"), "message": VERSION_HINT}])
)]
    String,
);

// A variant of Bottlerocket.
#[derive(JsonSchema)]
pub(crate) struct Variant(#[schemars(length(max = VARIANT_MAX), regex(pattern = VARIANT))] String);

// The id of a boot.
#[derive(JsonSchema)]
pub(crate) struct BootId(#[schemars(length(min = 1, max = BOOT_ID_MAX), regex(pattern = BOOT_ID))] String);

// A type or a reason, in CamelCase.
#[derive(JsonSchema)]
pub(crate) struct Word(#[schemars(length(min = 1, max = WORD_MAX), regex(pattern = WORD))] String);

// A sentence, or several, for people.
#[derive(JsonSchema)]
pub(crate) struct Sentence(#[schemars(length(max = MESSAGE_MAX), regex(pattern = PATTERN))] String);

// The key of a label.
#[derive(JsonSchema)]
pub(crate) struct LabelKey(
    #[schemars(length(max = NAME_MAX + 1 + LABEL_MAX), regex(pattern = LABEL_KEY))] String,
);

// The value of a label.
#[derive(JsonSchema)]
pub(crate) struct LabelValue(#[schemars(length(max = LABEL_MAX), regex(pattern = LABEL_VALUE))] String);

// A label of DNS.
#[derive(JsonSchema)]
pub(crate) struct DnsLabel(#[schemars(length(min = 1, max = LABEL_MAX), regex(pattern = DNS_LABEL))] String);
