//! The metrics that the webhook serves.

use crate::verdict::{Actor, Rule};
use brupop_runtime::authorizer::Refusals;
use brupop_runtime::locked;
use brupop_runtime::logs::Quota;
use brupop_runtime::metrics::{self, ProcessMetrics};
use kube::core::admission::Operation;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Upper bounds of the latency's buckets, in seconds; the API server gives up after 3.
const LATENCY_BUCKETS: [f64; 9] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.025, 0.1, 1.0,
];

/// Each label has a handful of values, whatever callers send.
type Labels = [(&'static str, &'static str); 4];

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    reviews: Family<Labels, Counter>,
    unreadable: Counter,
    /// Rate limit of its log line, with the start of the clock, because everybody who reaches the port can send these.
    unreadable_log: (Instant, Mutex<Quota>),
    latency: Histogram,
    /// When the certificate that is served expires, in seconds since 1970.
    pub certificate_expiry: Gauge,
    /// Failures to renew or publish the certificates.
    pub certificate_failures: Counter,
    /// Repairs of `caBundle` after somebody else changed it.
    pub ca_bundle_repairs: Counter,
    /// Metrics that all programs have.
    pub process: ProcessMetrics,
    /// Reviews that were refused for want of a caller's token.
    pub caller_refusals: Refusals,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("brupop_webhook"),
            reviews: Family::default(),
            unreadable: Counter::default(),
            unreadable_log: (
                Instant::now(),
                Mutex::new(Quota::new(10, Duration::from_secs(10))),
            ),
            latency: Histogram::new(LATENCY_BUCKETS),
            certificate_expiry: Gauge::default(),
            certificate_failures: Counter::default(),
            ca_bundle_repairs: Counter::default(),
            process: ProcessMetrics::default(),
            caller_refusals: Refusals::default(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        self.registry.register(
            "reviews",
            "Admission reviews, by actor and verdict",
            self.reviews.clone(),
        );
        self.registry.register(
            "unreadable_reviews",
            "Requests that were no admission review",
            self.unreadable.clone(),
        );
        self.registry.register_with_unit(
            "review_duration",
            "Time from the last byte of a review to its verdict",
            Unit::Seconds,
            self.latency.clone(),
        );
        self.registry.register_with_unit(
            "certificate_expiry_timestamp",
            "When the certificate that is served expires",
            Unit::Seconds,
            self.certificate_expiry.clone(),
        );
        self.registry.register(
            "certificate_failures",
            "Failures to renew or publish certificates",
            self.certificate_failures.clone(),
        );
        self.registry.register(
            "ca_bundle_repairs",
            "Repairs of caBundle after somebody else changed it",
            self.ca_bundle_repairs.clone(),
        );
        self.registry.register(
            "refused_callers",
            "Reviews refused because the caller had no valid token, by reason; only if a token is required",
            self.caller_refusals.family(),
        );
        self.process.register(&mut self.registry);
    }

    pub fn reviewed(
        &self,
        actor: Actor,
        operation: &Operation,
        allowed: bool,
        rule: Rule,
        took: Duration,
    ) {
        let operation = match operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        };
        let verdict = if allowed { "allowed" } else { "refused" };
        let review = [
            ("actor", actor.as_str()),
            ("operation", operation),
            ("verdict", verdict),
            ("rule", rule.as_str()),
        ];
        self.reviews.get_or_create(&review).inc();
        self.latency.observe(took.as_secs_f64());
    }

    /// Counts a request that was no review. If that should be logged, returns how many were not since the last one that
    /// was.
    pub fn not_a_review(&self) -> Option<u64> {
        self.unreadable.inc();
        let (epoch, quota) = &self.unreadable_log;
        locked(quota).take(epoch.elapsed())
    }

    /// All metrics as text, true at the time of the call.
    pub fn render(&self) -> String {
        metrics::text(&self.registry)
    }
}
