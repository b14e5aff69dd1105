//! Keys and certificates of a control plane: one authority, one server, some clients.

use crate::kubeconfig::Credential;
use anyhow::Result;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An authority that keeps what it issues in a folder, as `<name>.crt` and `<name>.key`.
pub(crate) struct Authority {
    dir: PathBuf,
    issuer: Arc<Issuer<'static, KeyPair>>,
}

impl Authority {
    /// Makes `ca.crt` in the folder.
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::default();
        params.distinguished_name = name("brupop-testbed-ca", None);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        fs::write(dir.join("ca.crt"), params.self_signed(&key)?.pem())?;
        Ok(Self {
            dir: dir.to_owned(),
            issuer: Arc::new(Issuer::new(params, key)),
        })
    }

    /// This authority on a copy of its folder.
    pub(crate) fn copied_to(&self, dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            issuer: Arc::clone(&self.issuer),
        }
    }

    pub(crate) fn certificate(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// Issues a serving certificate for DNS names and addresses.
    pub(crate) fn server(&self, file: &str, sans: &[&str]) -> Result<()> {
        let sans: Vec<String> = sans.iter().map(|&san| san.to_owned()).collect();
        let mut params = CertificateParams::new(sans)?;
        params.distinguished_name = name(file, None);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(file, &params)
    }

    /// Issues a client certificate for a user, in a group if one is given.
    pub(crate) fn client(&self, file: &str, user: &str, group: Option<&str>) -> Result<()> {
        let mut params = CertificateParams::default();
        params.distinguished_name = name(user, group);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(file, &params)
    }

    /// Writes the pair of keys that sign and verify service account tokens: `<name>.key`, `<name>.pub`.
    pub(crate) fn signing_key(&self, file: &str) -> Result<()> {
        let key = KeyPair::generate()?;
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem())?;
        fs::write(self.path(&format!("{file}.pub")), key.public_key_pem())?;
        Ok(())
    }

    /// The client certificate of this name.
    pub(crate) fn credential(&self, name: &str) -> Credential<'static> {
        let (certificate, key) = (
            self.path(&format!("{name}.crt")),
            self.path(&format!("{name}.key")),
        );
        Credential::Certificate { certificate, key }
    }

    /// A file in the authority's folder.
    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.dir.join(file)
    }

    fn issue(&self, file: &str, params: &CertificateParams) -> Result<()> {
        let key = KeyPair::generate()?;
        fs::write(
            self.path(&format!("{file}.crt")),
            params.signed_by(&key, &self.issuer)?.pem(),
        )?;
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem())?;
        Ok(())
    }
}

fn name(common: &str, organization: Option<&str>) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    if let Some(organization) = organization {
        name.push(DnType::OrganizationName, organization);
    }
    name
}
