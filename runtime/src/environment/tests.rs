use super::*;

fn complaint(program: Program, name: &str) -> String {
    check(program, [name.to_owned()]).unwrap_err()
}

#[test]
fn an_unknown_variable_is_refused_with_the_settings() {
    assert_eq!(
        complaint(Program::Webhook, "LOGGING_FORMATER"),
        "LOGGING_FORMATER is not a setting: remove it; the settings in the ConfigMap brupop-webhook-configuration are \
        ADMISSION_ADDRESS, CERTIFICATES, CERTIFICATE_LIFETIME, HEALTH_ADDRESS, LINGER_SECONDS, METRICS_ADDRESS, \
        REQUIRE_CALLER_TOKEN, WEBHOOK_CERTIFICATES, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE, LOGGING_FORMATTER, \
        LOGGING_ANSI_ENABLED, TRACING_FILTER_DIRECTIVE"
    );
    let sentence = complaint(Program::Agent, "REFRESH_\u{1b}");
    assert!(sentence.starts_with("REFRESH_\\u{1b} is not"), "{sentence}");
    let many = |word: &'static str| (0..99).map(move |number| format!("{word}_{number}"));
    let sentence = check(Program::Agent, many("MAX")).unwrap_err();
    assert_eq!(sentence.matches("MAX_").count(), LISTED_MAX);
    let others = check(Program::Agent, many("AWS")).unwrap();
    assert_eq!(others.len(), LISTED_MAX, "others' are only told");
}

#[test]
fn a_setting_in_the_wrong_configmap_is_refused() {
    let (agent, webhook) = ("brupop-agent-configuration", "brupop-webhook-configuration");
    let reconciler = "brupop-configuration";
    for (program, name, of, map) in [
        (Program::Reconciler, "PREFETCH", "agent", agent),
        (Program::Webhook, "REFRESH_INTERVAL", "agent", agent),
        (Program::Agent, "SOAK_SECONDS", "reconciler", reconciler),
        (Program::Webhook, "SOAK_SECONDS", "reconciler", reconciler),
        (Program::Agent, "LINGER_SECONDS", "webhook", webhook),
        (Program::Reconciler, "LINGER_SECONDS", "webhook", webhook),
    ] {
        let expected = format!("{name} is a setting of the {of}: move it to the ConfigMap {map}; ");
        let sentence = complaint(program, name);
        assert!(sentence.starts_with(&expected), "{sentence}");
    }
}

#[test]
fn settings_and_foreign_variables_are_accepted() {
    for program in Program::ALL {
        let known = program.settings().into_iter().chain(OF_LOGS).chain(OF_PODS);
        let around = [
            "PATH",
            "HOSTNAME",
            "KUBERNETES_SERVICE_HOST",
            "HTTPS_PROXY",
            "no_proxy",
            "LC_ALL",
        ];
        let names = known.chain(around).map(str::to_owned);
        assert_eq!(check(program, names), Ok(vec![]));
    }
}
