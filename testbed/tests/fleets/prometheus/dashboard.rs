//! The dashboard that is shipped, asked of a Prometheus that watched a roll-out.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::dashboard::Dashboard;
use brupop_testbed::observed::Observed;
use brupop_testbed::{FleetOptions, await_until};

#[tokio::test(flavor = "multi_thread")]
async fn each_query_of_the_dashboard_finds_something() -> Result<()> {
    let dashboard = Dashboard::shipped()?;
    let queries: usize = dashboard.panels.iter().map(|panel| panel.targets.len()).sum();
    ensure!(queries > 25, "only {queries} queries");
    let mut observed = Observed::start(&FleetOptions::quick(4, &[]), |_| ()).await?;
    observed.prepare().await?;
    observed.roll_out().await?;
    let mut missed = vec![];
    let found = await_until("each query finds something", async || {
        let (window, mut wrong) = (observed.window(10), vec![]);
        for panel in &dashboard.panels {
            if let Err(error) = panel.ask(&observed.prometheus, window).await {
                wrong.push(format!("{error:#}"));
            }
        }
        // All at once: the deadline may end a look in its midst.
        missed = wrong;
        missed.is_empty().then_some(())
    });
    found.await.with_context(|| missed.join("\n"))?;
    let alerts = observed.prometheus.alerts().await?;
    ensure!(alerts.is_empty(), "all went well, and yet {alerts:?}");
    observed.fleet.check()
}
