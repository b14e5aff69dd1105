//! The component `cert-manager`: somebody else makes the certificate and publishes its authority.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, rendered, throw_away_overlay};
use brupop_testbed::{ControlPlane, Options, await_until};
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value as Json, json};

use crate::serving::{Bed, CONFIGURATION};

fn is_cert_managers(object: &Json) -> bool {
    object["apiVersion"]
        .as_str()
        .is_some_and(|version| version.starts_with("cert-manager.io/"))
}

/// The webhook may read its Secret alone, and change no configuration; returns the names in its certificate. That names fit
/// together is in the tests of overlays.
fn names(objects: &[Json]) -> Result<Vec<String>> {
    let the = |kind: &str| {
        let is_wanted =
            |object: &&Json| object["kind"] == kind && object["metadata"]["name"] == CONFIGURATION;
        objects
            .iter()
            .find(is_wanted)
            .with_context(|| format!("there is no {kind} {CONFIGURATION}"))
    };
    let certificate = &the("Certificate")?["spec"];
    let reads = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"],
        "resourceNames": [certificate["secretName"]]}]);
    ensure!(the("Role")?["rules"] == reads, "{}", the("Role")?);
    let rules = the("ClusterRole")?["rules"].to_string();
    ensure!(
        !rules.contains("validatingwebhookconfigurations"),
        "{rules}"
    );
    ensure!(
        objects.iter().all(|object| object["kind"] != "Secret"),
        "a Secret is shipped"
    );
    Ok(serde_json::from_value(certificate["dnsNames"].clone())?)
}

/// Does the work of cert-manager: makes a certificate for these names, and tells API servers by which authority to know it.
struct CertManager {
    authority: Issuer<'static, KeyPair>,
    pem: String,
}

impl CertManager {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "brupop-webhook authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self {
            authority: Issuer::new(params, key),
            pem,
        })
    }

    async fn write(&self, plane: &ControlPlane, names: &[String]) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?
            .signed_by(&key, &self.authority)?
            .pem();
        self.write_raw(plane, &certificate, &key.serialize_pem())
            .await
    }

    async fn write_raw(&self, plane: &ControlPlane, certificate: &str, key: &str) -> Result<()> {
        let data = |text: &str| json!(ByteString(text.as_bytes().to_vec()));
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "brupop-webhook-tls", "namespace": NAMESPACE},
            "data": {"tls.crt": data(certificate), "tls.key": data(key), "ca.crt": data(&self.pem)},
        });
        let file = plane.dir().join("secret.json");
        std::fs::write(&file, secret.to_string())?;
        plane
            .kubectl(["apply".as_ref(), "-f".as_ref(), file.as_os_str()])
            .await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn provided_certificates_are_served_and_renewals_loaded() -> Result<()> {
    let mut names = Vec::new();
    let bed = Bed::start(Options::CLUSTER, 1, &["brupop-webhook"], &[], async |plane| {
        let kustomization =
            json!({"resources": ["kustomize/overlays/default"], "components": ["kustomize/components/cert-manager"]});
        let mut objects = rendered(plane, &throw_away_overlay(plane, "provided", kustomization)?).await?;
        names = self::names(&objects)?;
        // There is no cert-manager here to know these.
        objects.retain(|object| !is_cert_managers(object));
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
        let file = plane.dir().join("provided.json");
        std::fs::write(&file, list.to_string())?;
        plane.kubectl(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]).await.map(drop)
    })
    .await?;
    let agent = bed.agent().await?;
    let processes = bed.processes("webhook", 2).await?;
    let said = async |words: &str| {
        let all = await_until(format!("all say {words:?}"), async || {
            let said = |pod: &str| bed.control_plane.log(pod).contains(words);
            processes
                .iter()
                .all(|process| said(&process.pod))
                .then_some(())
        });
        all.await
    };
    said("does not exist; the webhook waits").await?;

    let first = CertManager::new()?;
    bed.configure(
        "/clientConfig/caBundle",
        json!(ByteString(first.pem.clone().into_bytes())),
    )
    .await?;
    first.write(&bed.control_plane, &names).await?;
    agent.gets_through("the provided certificate").await?;

    // A certificate that cannot be served changes nothing.
    first
        .write(&bed.control_plane, &["somebody.else.svc".to_owned()])
        .await?;
    said("is not valid for").await?;
    first
        .write_raw(&bed.control_plane, "garbage", "garbage")
        .await?;
    said("is not a certificate").await?;
    ensure!(agent.report("what was served goes on").await.is_none());

    // A renewed one by another authority: API servers that trust that one alone are served, without a restart.
    let second = CertManager::new()?;
    second.write(&bed.control_plane, &names).await?;
    bed.configure(
        "/clientConfig/caBundle",
        json!(ByteString(second.pem.clone().into_bytes())),
    )
    .await?;
    agent.gets_through("the renewed certificate").await?;
    ensure!(
        bed.bundle().await? == second.pem.as_bytes(),
        "the webhook wrote caBundle"
    );
    ensure!(
        bed.processes("webhook", 2)
            .await?
            .iter()
            .all(|process| process.restarts == 0)
    );
    Ok(())
}
