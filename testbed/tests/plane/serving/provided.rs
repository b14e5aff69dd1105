//! The component `cert-manager`: somebody else makes the certificate and publishes its authority.

use anyhow::{Context as _, Result, ensure};
use brupop_testbed::operator::{NAMESPACE, rendered, throw_away_overlay};
use brupop_testbed::{ControlPlane, Options, await_until};
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::{Value as Json, json};

use crate::serving::{Bed, CONFIGURATION};

const COMPONENT: &str = "kustomize/components/cert-manager";

fn is_cert_managers(object: &Json) -> bool {
    object["apiVersion"].as_str().is_some_and(|version| version.starts_with("cert-manager.io/"))
}

fn the<'a>(objects: &'a [Json], kind: &str, name: &str) -> Result<&'a Json> {
    let is_wanted = |object: &&Json| object["kind"] == kind && object["metadata"]["name"] == name;
    objects.iter().find(is_wanted).with_context(|| format!("there is no {kind} {name}"))
}

/// Names that stand in other texts are those of the objects.
fn names_fit(objects: &[Json], name: &str, namespace: &str) -> Result<Vec<String>> {
    let certificate = the(objects, "Certificate", name)?;
    let names: Vec<String> = serde_json::from_value(certificate["spec"]["dnsNames"].clone())?;
    ensure!(names == [format!("{name}.{namespace}.svc"), format!("{name}.{namespace}")], "{names:?}");
    let configuration = the(objects, "ValidatingWebhookConfiguration", name)?;
    let from = &configuration["metadata"]["annotations"]["cert-manager.io/inject-ca-from"];
    ensure!(*from == format!("{namespace}/{name}"), "{from}");
    let authority = certificate["spec"]["issuerRef"]["name"].as_str().context("issuer")?;
    let issuer = the(objects, "Issuer", authority)?;
    let of_authority = objects.iter().filter(|object| {
        object["kind"] == "Certificate" && object["spec"]["secretName"] == issuer["spec"]["ca"]["secretName"]
    });
    ensure!(of_authority.count() == 1, "{issuer}");

    let role = the(objects, "Role", name)?;
    let reads = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch"],
        "resourceNames": [certificate["spec"]["secretName"]]}]);
    ensure!(role["rules"] == reads, "{role}");
    let rules = the(objects, "ClusterRole", name)?["rules"].to_string();
    ensure!(!rules.contains("validatingwebhookconfigurations"), "{rules}");
    let secrets = objects.iter().filter(|object| object["kind"] == "Secret").count();
    ensure!(secrets == 0, "{secrets} Secrets are shipped");
    Ok(names)
}

/// What cert-manager does: makes a certificate for these names, and tells API servers by which authority to know it.
struct CertManager {
    authority: Issuer<'static, KeyPair>,
    pem: String,
}

impl CertManager {
    fn new() -> Result<Self> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "brupop-webhook authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { authority: Issuer::new(params, key), pem })
    }

    async fn write(&self, plane: &ControlPlane, names: &[String]) -> Result<()> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(names)?.signed_by(&key, &self.authority)?.pem();
        self.write_raw(plane, &certificate, &key.serialize_pem()).await
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
        plane.kubectl(["apply".as_ref(), "-f".as_ref(), file.as_os_str()]).await?;
        Ok(())
    }
}

async fn renamed_overlays_render_with_fitting_names(plane: &ControlPlane) -> Result<()> {
    let inner = json!({
        "namespace": "updates", "namePrefix": "team-", "nameSuffix": "-blue",
        "resources": ["manifests"],
        "components": [COMPONENT],
    });
    let inner = throw_away_overlay(plane, "renamed", inner)?;
    let outer = json!({
        "resources": ["../renamed"], "components": [format!("{COMPONENT}/names")],
    });
    ensure!(inner.is_dir());
    let objects = rendered(plane, &throw_away_overlay(plane, "around", outer)?).await?;
    names_fit(&objects, "team-brupop-webhook-blue", "updates").map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn provided_certificates_are_served_and_renewals_loaded() -> Result<()> {
    let mut names = Vec::new();
    let bed = Bed::start(Options::CLUSTER, &["brupop-webhook"], &[], async |plane| {
        renamed_overlays_render_with_fitting_names(plane).await?;
        let kustomization = json!({
                "resources": ["kustomize/overlays/default"],
            "components": [COMPONENT],
        });
        let mut objects = rendered(plane, &throw_away_overlay(plane, "provided", kustomization)?).await?;
        names = names_fit(&objects, CONFIGURATION, NAMESPACE)?;
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
            processes.iter().all(|process| said(&process.pod)).then_some(())
        });
        all.await
    };
    said("does not exist; the webhook waits").await?;

    let first = CertManager::new()?;
    bed.configure("/clientConfig/caBundle", json!(ByteString(first.pem.clone().into_bytes()))).await?;
    first.write(&bed.control_plane, &names).await?;
    agent.gets_through("the provided certificate").await?;

    // What cannot be served changes nothing.
    first.write(&bed.control_plane, &["somebody.else.svc".to_owned()]).await?;
    said("is not valid for").await?;
    first.write_raw(&bed.control_plane, "garbage", "garbage").await?;
    said("is not a certificate").await?;
    ensure!(agent.report("what was served goes on").await.is_none());

    // A renewed one by another authority: API servers that trust that one alone are served, without a restart.
    let second = CertManager::new()?;
    second.write(&bed.control_plane, &names).await?;
    bed.configure("/clientConfig/caBundle", json!(ByteString(second.pem.clone().into_bytes()))).await?;
    agent.gets_through("the renewed certificate").await?;
    ensure!(bed.bundle().await? == second.pem.as_bytes(), "the webhook wrote caBundle");
    ensure!(bed.processes("webhook", 2).await?.iter().all(|process| process.restarts == 0));
    Ok(())
}
