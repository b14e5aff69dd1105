use super::*;

fn complaint(program: Program, name: &str) -> String {
    check(program, [name.to_owned()]).unwrap_err().to_string()
}

#[test]
fn an_unknown_variable_is_refused_with_the_settings() {
    assert_eq!(
        complaint(Program::Webhook, "LOGGING_FORMATER"),
        "LOGGING_FORMATER: no such setting, so remove it, or write one of these in the ConfigMap brupop-webhook-configuration: \
        ADMISSION_ADDRESS, CERTIFICATES, CERTIFICATE_LIFETIME, HEALTH_ADDRESS, LINGER_SECONDS, METRICS_ADDRESS, \
        REQUIRE_CALLER_TOKEN, WEBHOOK_CERTIFICATES, WEBHOOK_CONFIGURATION, WEBHOOK_SERVICE, LOGGING_FORMATTER, \
        LOGGING_ANSI_ENABLED, TRACING_FILTER_DIRECTIVE"
    );
    let sentence = complaint(Program::Agent, "REFRESH_\u{1b}");
    assert!(sentence.starts_with("REFRESH_\\u{1b}: "), "{sentence}");
    let many = |word: &'static str| (0..99).map(move |number| format!("{word}_{number}"));
    let sentence = check(Program::Agent, many("REFRESH")).unwrap_err();
    assert_eq!(
        sentence.to_string().matches("REFRESH_").count(),
        LISTED_MAX + 1
    );
    let others = check(Program::Agent, many("AWS")).unwrap();
    assert_eq!(others.len(), LISTED_MAX, "others' are only told");
}

#[test]
fn a_setting_in_the_wrong_configmap_is_refused() {
    for (program, name, map) in [
        (
            Program::Reconciler,
            "PREFETCH",
            "agent: move it to the ConfigMap brupop-agent-configuration",
        ),
        (
            Program::Webhook,
            "REFRESH_INTERVAL",
            "agent: move it to the ConfigMap brupop-agent-configuration",
        ),
        (
            Program::Agent,
            "SOAK_SECONDS",
            "reconciler: move it to the ConfigMap brupop-configuration",
        ),
        (
            Program::Agent,
            "LINGER_SECONDS",
            "webhook: move it to the ConfigMap brupop-webhook-configuration",
        ),
        (
            Program::Reconciler,
            "LINGER_SECONDS",
            "webhook: move it to the ConfigMap brupop-webhook-configuration",
        ),
        (
            Program::Webhook,
            "SOAK_SECONDS",
            "reconciler: move it to the ConfigMap brupop-configuration",
        ),
    ] {
        assert_eq!(
            complaint(program, name),
            format!("{name} is a setting of the {map}")
        );
    }
    let both = check(
        Program::Agent,
        ["REFRESH_INTERVALL", "SOAK_SECONDS"].map(str::to_owned),
    )
    .unwrap_err();
    assert_eq!(both.to_string().matches("; ").count(), 1, "{both}");
}

#[test]
fn a_removed_setting_is_refused_with_its_successor() {
    for program in Program::ALL {
        for (name, instead) in REMOVED {
            let sentence = complaint(program, name);
            assert_eq!(
                sentence,
                format!("{name} is not a setting: remove it; {instead}")
            );
        }
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
