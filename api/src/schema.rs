//! Types of fields: what the API server accepts for the values of fields that have the same type in several places. A field names its type
//! here by `with`; a bound that one field alone has stands at that field.
#![expect(
    dead_code,
    reason = "fields hold plain strings and numbers; of these types only the schemas are used"
)]

use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::crds::{
    BOOT_ID_MAX, COUNTER_MAX, FAILED_NODES_MAX, LABEL_MAX, MESSAGE_MAX, NAME_MAX, POOL_NAME_MAX,
    TIME_MAX, VARIANT_MAX, VERSION_MAX, WORD_MAX,
};
use crate::printable::PATTERN;

/// The pattern of variants, as in [`is_variant`](crate::crds::is_variant).
const VARIANT: &str = "^[0-9A-Za-z._-]+$";
const VARIANT_HINT: &str = "write a variant of Bottlerocket, such as aws-k8s-1.36-arm64";
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
/// Names of objects that are keys: neither empty nor begun by a `-`, as an option of a command is.
const NAME_KEY: &str = "^[0-9a-z]([0-9a-z.-]*[0-9a-z])?$";
/// The pattern of words in CamelCase.
const WORD: &str = r"^[A-Z][A-Za-z]*$";
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
const LABEL_VALUE_HINT: &str =
    "write letters, digits, -, _ and . that begin and end with a letter or a digit, such as web-1";
const LABEL_KEY: &str =
    "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
const LABEL_KEY_MAX: usize = NAME_MAX + 1 + LABEL_MAX;
pub(crate) const LABEL_KEY_HINT: &str = "write the key of a label, such as example.org/rack";
const DNS_LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
const DNS_LABEL_HINT: &str = "write a name of letters in lower case, digits and -, such as main";
const POOL_NAME: &str = "^[0-9a-z.-]+$";
const POOL_NAME_HINT: &str =
    "write the name of a pool, of letters in lower case, digits, - and ., such as canary";
const DURATION: &str =
    "^([0-9]{1,5}h([0-9]{1,5}m)?([0-9]{1,6}s)?|[0-9]{1,5}m([0-9]{1,6}s)?|[0-9]{1,6}s)$";
const DURATION_MAX: usize = 32;
const DURATION_HINT: &str = "write hours, minutes and seconds, such as 24h or 1h30m";
/// The hint for a version.
pub const VERSION_HINT: &str = "write a semantic version, such as 1.20.0";
const TIME_ZONE: &str = "^[A-Za-z][A-Za-z0-9_+/-]*$";
const TIME_ZONE_MAX: usize = 64;
/// The hint for a time zone.
pub const TIME_ZONE_HINT: &str = "write a name of the IANA database, such as Europe/Berlin or UTC";
/// A day that no month has gets the same sentence, where the API server would say that it cannot be converted.
const WRITTEN_TIME: &str = concat!(
    "^([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))",
    "|([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29)",
    "T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]([.][0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
);
/// The hint for a time that a person writes.
pub const WRITTEN_TIME_HINT: &str =
    "write a time with its offset, such as 2026-12-20T00:00:00+01:00";
/// The characters of cron expressions of five fields.
const SCHEDULE: &str = "^ *([0-9A-Za-z*/,#?-]+ +){4}[0-9A-Za-z*/,#?-]+ *$";
const SCHEDULE_MAX: usize = 128;
/// The hint for the schedule of a window.
pub const FIVE_FIELDS: &str =
    "write five fields (minute hour day month weekday), such as \"0 2 * * SAT\"";
const MAX_UNAVAILABLE: &str =
    "type(self) == int ? self >= 1 && self <= 100000 : self.matches('^(100|[1-9][0-9]?)%$')";
/// The hint for a limit that is refused.
pub const MAX_UNAVAILABLE_HINT: &str =
    "write a number from 1, such as 2, or a percentage from 1% to 100%, such as \"10%\"";

// These types have plain comments: `kubectl explain` would show docstrings.

// A count that only grows, or one of objects.
#[derive(JsonSchema)]
pub(crate) struct Counter(#[schemars(range(min = 0, max = COUNTER_MAX))] i64);

// A number of failed nodes; a record of the ledger keeps the last failures.
#[derive(JsonSchema)]
pub(crate) struct Threshold(#[schemars(range(min = 1, max = FAILED_NODES_MAX))] i64);

// A time as RFC 3339 has it.
#[derive(JsonSchema)]
pub(crate) struct Time(
    #[schemars(length(max = TIME_MAX), regex(pattern = TIME), extend("format" = "date-time"))]
    String,
);

// A version of Bottlerocket.
#[derive(JsonSchema)]
pub(crate) struct Version(#[schemars(length(max = VERSION_MAX), regex(pattern = SEMVER))] String);

// A variant of Bottlerocket.
#[derive(JsonSchema)]
pub(crate) struct Variant(#[schemars(length(max = VARIANT_MAX), regex(pattern = VARIANT))] String);

// The id of a boot.
#[derive(JsonSchema)]
pub(crate) struct BootId(
    #[schemars(length(min = 1, max = BOOT_ID_MAX), regex(pattern = BOOT_ID))] String,
);

// A type or a reason, in CamelCase.
#[derive(JsonSchema)]
pub(crate) struct Word(#[schemars(length(min = 1, max = WORD_MAX), regex(pattern = WORD))] String);

// A sentence, or several, for people.
#[derive(JsonSchema)]
pub(crate) struct Sentence(#[schemars(length(max = MESSAGE_MAX), regex(pattern = PATTERN))] String);

// A number of nodes, or a percentage. It is said here because no other field needs the schemas of Kubernetes' own types.
#[derive(JsonSchema)]
pub(crate) struct MaxUnavailable(
    #[schemars(extend(
        "x-kubernetes-int-or-string" = true,
        "x-kubernetes-validations" = [{"rule": MAX_UNAVAILABLE, "message": MAX_UNAVAILABLE_HINT}]
    ))]
    Value,
);

// Types of values that people write. A rule has words of its own, in place of which a pattern would be shown.
macro_rules! written {
    ($name:ident, $most:ident, $pattern:ident, $hint:ident) => {
        #[derive(JsonSchema)]
        pub(crate) struct $name(
            #[schemars(
                length(max = $most),
                extend("x-kubernetes-validations" = [{"rule": matches("self", $pattern), "message": $hint}])
            )]
            String,
        );
    };
}

written!(LabelKey, LABEL_KEY_MAX, LABEL_KEY, LABEL_KEY_HINT);
written!(LabelValue, LABEL_MAX, LABEL_VALUE, LABEL_VALUE_HINT);
written!(DnsLabel, LABEL_MAX, DNS_LABEL, DNS_LABEL_HINT);
written!(PoolName, POOL_NAME_MAX, POOL_NAME, POOL_NAME_HINT);
written!(Duration, DURATION_MAX, DURATION, DURATION_HINT);
written!(WrittenVersion, VERSION_MAX, SEMVER, VERSION_HINT);
written!(WrittenVariant, VARIANT_MAX, VARIANT, VARIANT_HINT);
written!(WrittenTime, TIME_MAX, WRITTEN_TIME, WRITTEN_TIME_HINT);
written!(Schedule, SCHEDULE_MAX, SCHEDULE, FIVE_FIELDS);
written!(TimeZone, TIME_ZONE_MAX, TIME_ZONE, TIME_ZONE_HINT);

/// The rule that this text is of this pattern.
fn matches(text: &str, pattern: &str) -> String {
    format!("{text}.matches(r'{pattern}')")
}

/// The rule that the keys of a map, which no type has, are names of objects.
pub(crate) fn name_keys(most: usize) -> Value {
    let rule = format!(
        "self.all(key, key.size() <= {most} && {})",
        matches("key", NAME_KEY)
    );
    json!([{"rule": rule, "message": "each key is the name of an object"}])
}

/// The status of an object that the reconciler has not seen. kstatus, and with it Flux and Helm, would take an object without a
/// status for one that is ready.
pub(crate) fn unobserved() -> Value {
    json!({"observedGeneration": 0})
}

/// The rule that `start` comes before `end`. Of one that is no time, its own rule tells.
pub(crate) fn ordered() -> String {
    let (start, end) = (
        matches("self.start", WRITTEN_TIME),
        matches("self.end", WRITTEN_TIME),
    );
    format!("!({start} && {end}) || timestamp(self.start) < timestamp(self.end)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex::Regex;

    #[test]
    fn people_write_days_that_there_are() {
        let written = Regex::new(WRITTEN_TIME).unwrap();
        let years = [1999, 2000, 2023, 2024, 2026, 2096, 2100];
        let months = |year| (0..=13).map(move |month| (year, month));
        let days = |(year, month)| (0..=32).map(move |day| (year, month, day));
        for (year, month, day) in years.into_iter().flat_map(months).flat_map(days) {
            let text = format!("{year}-{month:02}-{day:02}T00:00:00Z");
            assert_eq!(
                written.is_match(&text),
                text.parse::<jiff::Timestamp>().is_ok(),
                "{text}"
            );
        }
    }
}
