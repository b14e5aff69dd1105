//! Settings of the webhook, read at start from flags or environment.

use clap::{ArgAction, Parser, ValueEnum};
use jiff::SignedDuration;
use std::net::SocketAddr;

/// Shortest lifetime of a certificate: within it, the next one must be made, published and taken up.
const SHORTEST_LIFETIME: SignedDuration = SignedDuration::from_secs(10);
/// The longest lifetime of a certificate: ten years.
const LONGEST_LIFETIME: SignedDuration = SignedDuration::from_hours(24 * 3650);

/// The source of certificates, which also publishes their authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Certificates {
    /// This program; it keeps certificates for all replicas in the Secret.
    Own,
    /// Somebody else such as cert-manager; the Secret is of type `kubernetes.io/tls`.
    Provided,
}

/// Validating admission webhook for the shadows of Bottlerocket hosts.
#[derive(Clone, Debug, Parser)]
#[command(name = "brupop-webhook", version)]
pub struct Options {
    /// Source of the certificate and of `caBundle`
    #[arg(long, env = "CERTIFICATES", hide = true, value_enum, default_value_t = Certificates::Own)]
    pub certificates: Certificates,
    /// Name of the Secret that holds the certificates
    #[arg(long, env = "WEBHOOK_CERTIFICATES", hide = true)]
    pub webhook_certificates: String,
    /// Name of the webhook's `ValidatingWebhookConfiguration`
    #[arg(long, env = "WEBHOOK_CONFIGURATION", hide = true)]
    pub webhook_configuration: String,
    /// Name of the Service through which API servers call the webhook
    #[arg(long, env = "WEBHOOK_SERVICE", hide = true)]
    pub webhook_service: String,
    /// Lifetime of a certificate; it is renewed when a third is left
    #[arg(long, env = "CERTIFICATE_LIFETIME", hide = true, default_value = "2160h", value_parser = lifetime)]
    pub certificate_lifetime: SignedDuration,
    /// Address and port for admission reviews (TLS)
    #[arg(
        long,
        env = "ADMISSION_ADDRESS",
        hide = true,
        default_value = "[::]:8443"
    )]
    pub admission_address: SocketAddr,
    /// Refuse reviews from callers without a token of this cluster; configure the API servers to send one first
    #[arg(long, env = "REQUIRE_CALLER_TOKEN", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true")]
    pub require_caller_token: bool,
    /// Address and port for /livez and /readyz
    #[arg(long, env = "HEALTH_ADDRESS", hide = true, default_value = "[::]:8080")]
    pub health_address: SocketAddr,
    /// Address and port for /metrics (TLS)
    #[arg(
        long,
        env = "METRICS_ADDRESS",
        hide = true,
        default_value = "[::]:8444"
    )]
    pub metrics_address: SocketAddr,
    /// Seconds to go on serving after SIGTERM
    #[arg(long, env = "LINGER_SECONDS", hide = true, default_value_t = 8, value_parser = clap::value_parser!(u64).range(0..=60))]
    pub linger_seconds: u64,
}

impl Options {
    /// DNS names by which API servers call the webhook in this namespace.
    pub fn certificate_names(&self, namespace: &str) -> Vec<String> {
        let service = &self.webhook_service;
        vec![
            format!("{service}.{namespace}.svc"),
            format!("{service}.{namespace}"),
        ]
    }
}

fn lifetime(text: &str) -> Result<SignedDuration, String> {
    let lifetime: SignedDuration = text
        .parse()
        .map_err(|_| "write hours, minutes or seconds, such as 2160h".to_owned())?;
    if (SHORTEST_LIFETIME..=LONGEST_LIFETIME).contains(&lifetime) {
        return Ok(lifetime);
    }
    Err("write a duration between 10s and 87600h, such as 2160h".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDED: [&str; 4] = [
        "webhook",
        "--webhook-certificates=c",
        "--webhook-configuration=w",
        "--webhook-service=s",
    ];

    fn parse(more: &[&str]) -> Result<Options, clap::Error> {
        Options::try_parse_from(NEEDED.iter().chain(more))
    }

    #[test]
    fn bad_options_are_refused_with_what_to_write() {
        for (bad, hint) in [
            ("--certificate-lifetime=soon", "such as 2160h"),
            ("--certificate-lifetime=1s", "between 10s and 87600h"),
            ("--certificate-lifetime=-1h", "between 10s and 87600h"),
            ("--linger-seconds=61", "0..=60"),
            ("--admission-address=8443", "invalid socket address"),
            ("--require-caller-token=perhaps", "true, false"),
            ("--certificates=bought", "own, provided"),
        ] {
            let sentence = parse(&[bad]).unwrap_err().to_string();
            assert!(sentence.contains(hint), "{bad}: {sentence}");
        }
        let missing = Options::try_parse_from(&NEEDED[..3])
            .unwrap_err()
            .to_string();
        assert!(missing.contains("WEBHOOK_SERVICE"), "{missing}");
    }

    #[test]
    fn the_list_of_settings_is_complete() {
        use clap::CommandFactory as _;
        let command = Options::command();
        let mut names: Vec<_> = command
            .get_arguments()
            .filter_map(|argument| argument.get_env()?.to_str())
            .collect();
        names.sort_unstable();
        assert_eq!(names, brupop_api::settings::Program::Webhook.settings());
    }
}
