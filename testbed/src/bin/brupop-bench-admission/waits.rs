//! How long the API server says that it waited for webhooks, and how often it asked them.

use std::time::Duration;

use anyhow::{Context as _, Result};

const METRIC: &str = "apiserver_admission_webhook_admission_duration_seconds_";

/// How long the API server waited for a webhook's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wait {
    /// Reviews that were allowed.
    pub reviews: u32,
    /// Seconds for all of them together.
    pub seconds: f64,
}

impl Wait {
    /// For one review.
    pub fn mean(&self) -> Duration {
        Duration::try_from_secs_f64(self.seconds / f64::from(self.reviews)).unwrap_or_default()
    }
}

/// Sums up the histogram of this webhook's allowed reviews.
///
/// # Errors
/// A line of it is not as expected.
pub fn wait(metrics: &str, webhook: &str) -> Result<Wait> {
    let name = format!(r#"name="{webhook}""#);
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(METRIC));
    let lines = lines.filter(|line| line.contains(&name) && line.contains(r#"rejected="false""#));
    let mut wait = Wait::default();
    for line in lines {
        let value = line.rsplit(' ').next().context("an empty line")?;
        if line.starts_with("sum{") {
            wait.seconds += value.parse::<f64>()?;
        } else if line.starts_with("count{") {
            wait.reviews += value.parse::<u32>()?;
        }
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_summed_over_a_webhooks_operations() {
        let line = |kind: &str, operation: &str, rejected: bool, value: &str| {
            format!(
                r#"{METRIC}{kind}{{name="w",operation="{operation}",rejected="{rejected}",type="validating"}} {value}"#
            )
        };
        let metrics = [
            line("sum", "UPDATE", false, "1.5"),
            line("count", "UPDATE", false, "300"),
            line("sum", "CREATE", false, "0.5"),
            line("count", "CREATE", false, "100"),
            line("count", "UPDATE", true, "7"),
        ]
        .join("\n");
        let found = wait(&metrics, "w").unwrap();
        assert_eq!(found, Wait { reviews: 400, seconds: 2.0 });
        assert_eq!(found.mean(), Duration::from_millis(5));
        assert_eq!(wait(&metrics, "other").unwrap(), Wait::default());
    }
}
