//! The leaders by time, from the ledger's terms.

use anyhow::{Context as _, Result};
use brupop_api::names::FLEET;

use super::Fleet;

impl Fleet {
    /// The ledger's term; 0 if nobody has led yet.
    pub async fn term(&self) -> Result<u64> {
        let ledger = self.ledger().get_opt(FLEET).await?;
        Ok(ledger.and_then(|ledger| ledger.status?.term).unwrap_or(0))
    }

    /// Awaits that a leader began after this term; returns its term.
    pub async fn next_term(&self, before: u64) -> Result<u64> {
        let later = |term: Option<u64>| term.is_some_and(|term| term > before);
        let ledger = self
            .until_ledger(&format!("a term after {before}"), |status| {
                later(status.term)
            })
            .await?;
        ledger.term.context("no term")
    }
}
