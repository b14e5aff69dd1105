use super::*;

fn complaint(program: Program, name: &str) -> String {
    check(program, [name.to_owned()]).unwrap_err().to_string()
}

#[test]
fn a_misspelt_setting_is_refused_and_corrected() {
    for (name, meant) in [
        ("MAX_CONCURENT_UPDATE", "MAX_CONCURRENT_UPDATE"),
        ("MAX_CONCURRENT_UPDATES", "MAX_CONCURRENT_UPDATE"),
        ("max_concurrent_update", "MAX_CONCURRENT_UPDATE"),
        ("MAX-CONCURRENT-UPDATE", "MAX_CONCURRENT_UPDATE"),
        ("MAX_CONCURRENT", "MAX_CONCURRENT_UPDATE"),
        ("SCHEDULER_CRON_EXPRESION", "SCHEDULER_CRON_EXPRESSION"),
        ("SCHEDULER_TIMEZONE", "SCHEDULER_TIME_ZONE"),
        (
            "EXCLUDE_FROM_LB_WAIT_TIME_IN_SECONDS",
            "EXCLUDE_FROM_LB_WAIT_TIME_IN_SEC",
        ),
        ("DRAIN_DEADLINE", "DRAIN_DEADLINE_SECONDS"),
        ("LOGGING_FORMAT", "LOGGING_FORMATTER"),
    ] {
        let sentence = complaint(Program::Reconciler, name);
        let advice = format!("{name} is not a setting: remove it, or write {meant} instead");
        assert!(
            sentence.starts_with(&advice) && sentence.ends_with(" brupop-configuration"),
            "{sentence}"
        );
        assert!(
            complaint(Program::Webhook, name).starts_with(&advice),
            "wherever it stands"
        );
    }
    let sentence = complaint(Program::Agent, "PREFECTH");
    assert!(
        sentence.contains("write PREFETCH instead")
            && sentence.ends_with(" brupop-agent-configuration")
    );
    for (program, name, map) in [
        (
            Program::Agent,
            "LOGGING_FORMATER",
            " brupop-agent-configuration",
        ),
        (
            Program::Webhook,
            "LOGGING_FORMATER",
            " brupop-webhook-configuration",
        ),
        (
            Program::Reconciler,
            "REQUIRE_CALLERS_TOKEN",
            " brupop-webhook-configuration",
        ),
    ] {
        assert!(complaint(program, name).ends_with(map), "{name}");
    }
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
        ["PREFECTH", "SOAK_SECONDS"].map(str::to_owned),
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

#[test]
fn other_names_are_listed_and_do_no_harm() {
    let names = [
        "RUST_LOG",
        "NODE_NAME",
        "MY_POD_NAME",
        "POD_NAMESPACE",
        "AWS_REGION",
        "A\u{1b}B",
    ];
    let unknown = check(Program::Reconciler, names.map(str::to_owned)).unwrap();
    assert_eq!(
        unknown,
        [
            "AWS_REGION",
            "A\\u{1b}B",
            "MY_POD_NAME",
            "NODE_NAME",
            "POD_NAMESPACE",
            "RUST_LOG"
        ]
    );
    let many = check(
        Program::Agent,
        (0..99).map(|number| format!("OTHER_{number}")),
    )
    .unwrap();
    assert_eq!(many.len(), LISTED_MAX);
}
