//! Where a pod finds the API server, and how it says who it is: what a kubelet gives to each pod that has a service account.
//!
//! kube's own look-up would read a kubeconfig, too. Our pods need none, and one may name programs to run for a credential; and
//! without what reads it, an agent takes less memory on each node.

use kube::Config;
use kube::config::AuthInfo;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject as _};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::{env, io};
use thiserror::Error;

/// Where kubelets mount it.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Names another folder, for a process that is in no container.
const FOLDER_VARIABLE: &str = "SERVICE_ACCOUNT_FOLDER";
const HOST_VARIABLE: &str = "KUBERNETES_SERVICE_HOST";
const PORT_VARIABLE: &str = "KUBERNETES_SERVICE_PORT";

/// Why this is no pod that can talk to an API server.
#[derive(Debug, Error)]
pub enum ServiceAccountError {
    /// Kubelets set both variables in each container.
    #[error(
        "the Kubernetes API is not configured: run in a pod, where {HOST_VARIABLE} and {PORT_VARIABLE} are set"
    )]
    NoAddress,
    /// They are no host and port.
    #[error(
        "there is no API server at {0:?}: {HOST_VARIABLE} is an address, and {PORT_VARIABLE} a port"
    )]
    Address(String),
    /// The service account's token is not mounted, or cannot be read.
    #[error("{} cannot be read: run in a pod that mounts the token of its service account", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// The authority's certificates cannot be used.
    #[error("{} has no certificates that can be read", .0.display())]
    Certificates(PathBuf, #[source] Option<pem::Error>),
}

/// The cluster of the pod that this process runs in.
///
/// # Errors
/// This is no pod with a service account.
pub fn of_environment() -> Result<Config, ServiceAccountError> {
    let variable = |name| env::var(name).map_err(|_| ServiceAccountError::NoAddress);
    let folder = env::var_os(FOLDER_VARIABLE).map_or_else(|| PathBuf::from(FOLDER), PathBuf::from);
    of(
        &variable(HOST_VARIABLE)?,
        &variable(PORT_VARIABLE)?,
        &folder,
    )
}

fn of(host: &str, port: &str, folder: &Path) -> Result<Config, ServiceAccountError> {
    let is_v6 = host.parse::<Ipv6Addr>().is_ok();
    let authority = if is_v6 {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    };
    let uri = http::Uri::builder()
        .scheme("https")
        .authority(authority.as_str())
        .path_and_query("/");
    let uri = uri
        .build()
        .ok()
        .filter(|uri| !host.is_empty() && uri.port_u16().is_some());
    let mut config = Config::new(uri.ok_or(ServiceAccountError::Address(authority))?);
    config.default_namespace = read(&folder.join("namespace"))?;
    let (authority, token) = (folder.join("ca.crt"), folder.join("token"));
    config.root_cert = Some(certificates(&authority)?);
    // kube reads both again each minute, because kubelets renew them. That they can be read is better known now.
    config.root_cert_file = Some(authority);
    read(&token)?;
    config.auth_info = AuthInfo {
        token_file: Some(token.to_string_lossy().into_owned()),
        ..AuthInfo::default()
    };
    Ok(config)
}

fn certificates(file: &Path) -> Result<Vec<Vec<u8>>, ServiceAccountError> {
    let unusable = |error| ServiceAccountError::Certificates(file.to_owned(), error);
    let found: Vec<_> = CertificateDer::pem_slice_iter(read(file)?.as_bytes())
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<_, _>>()
        .map_err(|error| unusable(Some(error)))?;
    if found.is_empty() {
        Err(unusable(None))
    } else {
        Ok(found)
    }
}

fn read(file: &Path) -> Result<String, ServiceAccountError> {
    std::fs::read_to_string(file).map_err(|error| ServiceAccountError::File(file.to_owned(), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder as kubelets mount it, with these files.
    fn mounted(name: &str, files: &[(&str, &str)]) -> PathBuf {
        let folder = env::temp_dir().join(format!("brupop-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in files {
            std::fs::write(folder.join(file), text).unwrap();
        }
        folder
    }

    #[test]
    fn a_pod_is_of_its_own_cluster() {
        let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()])
            .unwrap()
            .cert;
        let pem = authority.pem();
        let files = [
            ("ca.crt", pem.as_str()),
            ("namespace", "updates"),
            ("token", "secret"),
        ];
        let folder = mounted("pod", &files);
        let config = of("10.96.0.1", "443", &folder).unwrap();
        assert_eq!(config.cluster_url, "https://10.96.0.1:443/");
        assert_eq!(config.default_namespace, "updates");
        assert_eq!(config.root_cert, Some(vec![authority.der().to_vec()]));
        assert_eq!(config.root_cert_file, Some(folder.join("ca.crt")));
        assert_eq!(
            config.auth_info.token_file,
            folder.join("token").to_str().map(str::to_owned)
        );
        assert_eq!(
            of("fd00::1", "6443", &folder).unwrap().cluster_url,
            "https://[fd00::1]:6443/"
        );
        for (host, port) in [
            ("", "443"),
            ("10.96.0.1", "https"),
            ("10.96.0.1", "70000"),
            ("10.96.0.1:6443", "443"),
            ("fe80::1%eth0", "443"),
            ("a b", "1"),
        ] {
            let refused = of(host, port, &folder).unwrap_err().to_string();
            assert!(refused.contains(&format!("{host}:{port}")), "{refused}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_missing_is_named() {
        let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()])
            .unwrap()
            .cert
            .pem();
        let all = [
            ("ca.crt", authority.as_str()),
            ("namespace", "updates"),
            ("token", "secret"),
        ];
        for (missing, _) in all {
            let files: Vec<_> = all
                .into_iter()
                .filter(|(file, _)| *file != missing)
                .collect();
            let folder = mounted(&format!("without-{missing}"), &files);
            let why = of("10.96.0.1", "443", &folder).unwrap_err().to_string();
            assert!(
                why.contains(missing) && why.contains("service account"),
                "{why}"
            );
            std::fs::remove_dir_all(folder).unwrap();
        }
        for damaged in [
            "",
            "-----BEGIN CERTIFICATE-----\n*\n-----END CERTIFICATE-----",
        ] {
            let folder = mounted(
                "damaged",
                &[("ca.crt", damaged), ("namespace", "updates"), ("token", "")],
            );
            let why = of("10.96.0.1", "443", &folder).unwrap_err().to_string();
            assert!(why.contains("ca.crt has no certificates"), "{why}");
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
