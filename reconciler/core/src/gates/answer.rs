//! What a Prometheus answers, and what that says of a gate. Nothing of an answer is kept, or shown, but why an expression is none.

use brupop_api::printable::printable;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// Longest answer that is read, in bytes. A source is asked for one series.
pub const ANSWER_MAX: usize = 64 * 1024;
/// Most series of an answer that are looked at.
const SERIES_MAX: usize = 1024;
/// Most bytes that are shown of why an expression is none.
const REFUSAL_MAX: usize = 256;

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAnswer {
    /// All is well.
    Good,
    /// Something is wrong.
    Bad,
    /// There is none, or it says nothing.
    Unknown,
}

impl GateAnswer {
    /// Returns the answer, by whether the query found a series, and whether one was found of what it requires.
    pub fn of(query: bool, requires: Option<bool>) -> Self {
        if !query && requires != Some(false) {
            Self::Good
        } else {
            Self::Bad
        }
    }
}

/// Why an answer says nothing. The sentence has no word of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateAnswerError {
    /// It is longer than [`ANSWER_MAX`].
    #[error("its answer is longer than 64 KiB: let the expression find less")]
    TooLong,
    /// It is no answer of a Prometheus.
    #[error("its answer is not that of a Prometheus to a query")]
    Unreadable,
    /// It says that it failed.
    #[error("it says that it could not answer the query")]
    Failed,
    /// The expression is no instant vector.
    #[error("the expression is no instant vector: write one that finds series, or none")]
    NoVector,
    /// A series is not as Prometheus writes it.
    #[error("its answer has a series that cannot be read")]
    Series,
    /// Nothing was found, and it warns.
    #[error("it found nothing, and warns that this may be incomplete")]
    Incomplete,
}

#[derive(Deserialize)]
struct PrometheusAnswer<'a> {
    status: &'a str,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
    #[serde(borrow, default)]
    warnings: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(rename = "resultType")]
    kind: &'a str,
    #[serde(borrow)]
    result: &'a RawValue,
}

/// One series of an instant vector: a number or a histogram.
#[derive(Deserialize)]
struct PrometheusSeries {
    #[allow(dead_code, reason = "it has to be there")]
    metric: std::collections::BTreeMap<String, String>,
    #[serde(default)]
    value: Option<(f64, String)>,
    #[serde(default)]
    histogram: Option<(f64, IgnoredAny)>,
}

/// Why an expression is none, by the body of an answer with the HTTP status 400. Of other errors nothing is shown: they may have
/// words of what is measured.
pub fn refusal(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct PrometheusError {
        #[serde(rename = "errorType")]
        kind: String,
        error: String,
    }
    let PrometheusError { kind, error } = serde_json::from_slice(body).ok()?;
    (kind == "bad_data").then(|| format!("{kind}: \"{}\"", printable(&error, REFUSAL_MAX)))
}

/// Returns whether an expression finds a series, by the body of an answer to `/api/v1/query` with the HTTP status 200.
///
/// # Errors
/// It says nothing.
pub fn read(body: &[u8]) -> Result<bool, GateAnswerError> {
    if body.len() > ANSWER_MAX {
        return Err(GateAnswerError::TooLong);
    }
    let PrometheusAnswer {
        status,
        data,
        warnings,
    } = serde_json::from_slice(body).map_err(|_| GateAnswerError::Unreadable)?;
    if status != "success" {
        return Err(GateAnswerError::Failed);
    }
    let data = data.ok_or(GateAnswerError::Unreadable)?;
    let Data { kind, result } =
        serde_json::from_str(data.get()).map_err(|_| GateAnswerError::Unreadable)?;
    if kind != "vector" {
        return Err(GateAnswerError::NoVector);
    }
    let series: Vec<&RawValue> =
        serde_json::from_str(result.get()).map_err(|_| GateAnswerError::Unreadable)?;
    for series in series.iter().take(SERIES_MAX) {
        let PrometheusSeries {
            value, histogram, ..
        } = serde_json::from_str(series.get()).map_err(|_| GateAnswerError::Series)?;
        let is_number = value
            .as_ref()
            .is_some_and(|(_, value)| value.parse::<f64>().is_ok());
        if !is_number && histogram.is_none() {
            return Err(GateAnswerError::Series);
        }
    }
    let warns = warnings.is_some_and(|warnings| !matches!(warnings.get(), "null" | "[]"));
    if series.is_empty() && warns {
        Err(GateAnswerError::Incomplete)
    } else {
        Ok(!series.is_empty())
    }
}

#[cfg(test)]
mod tests;
