//! Certificates of the API server and of its clients, and kubeconfig files with them.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::json;

use crate::error::{Doing, Result};

/// The cluster's certificate authority, with files in one directory.
pub(crate) struct Authority {
    directory: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate, or only a public key, and the private key, in files.
pub(crate) struct Signed {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    pub(crate) fn new(directory: &Path) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "kubernetes");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let certificate = parameters.self_signed(&key)?;
        let authority = Authority { directory: directory.to_owned(), issuer: Issuer::new(parameters, key) };
        write(&authority.certificate(), &certificate.pem())?;
        Ok(authority)
    }

    /// The file with its own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// The certificate of a server with these addresses.
    pub(crate) fn server(&self, name: &str, addresses: &[IpAddr]) -> Result<Signed> {
        let addresses: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        let mut parameters = CertificateParams::new(addresses)?;
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(name, &parameters)
    }

    /// Writes a kubeconfig of a user who is in these groups: the API server knows both by the certificate.
    pub(crate) fn kubeconfig(&self, server: &str, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name = rcgen::DistinguishedName::new();
        parameters.distinguished_name.push(DnType::CommonName, user);
        for group in groups {
            parameters.distinguished_name.push(DnType::OrganizationName, *group);
        }
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let name = user.replace(['/', ':'], "-");
        let signed = self.sign(&name, &parameters)?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "lab",
                "cluster": { "server": server, "certificate-authority": self.certificate() },
            }],
            "users": [{
                "name": user,
                "user": { "client-certificate": signed.certificate, "client-key": signed.key },
            }],
            "contexts": [{ "name": "lab", "context": { "cluster": "lab", "user": user } }],
            "current-context": "lab",
        });
        let path = self.directory.join(format!("{name}.kubeconfig"));
        write(&path, &config.to_string())?;
        Ok(path)
    }

    /// A key for the tokens of service accounts, with its public part.
    pub(crate) fn token_key(&self) -> Result<Signed> {
        let key = KeyPair::generate()?;
        let paths =
            Signed { certificate: self.directory.join("tokens.pub"), key: self.directory.join("tokens.key") };
        write(&paths.certificate, &key.public_key_pem())?;
        write(&paths.key, &key.serialize_pem())?;
        Ok(paths)
    }

    fn sign(&self, name: &str, parameters: &CertificateParams) -> Result<Signed> {
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        let signed = Signed {
            certificate: self.directory.join(format!("{name}.pem")),
            key: self.directory.join(format!("{name}.key")),
        };
        write(&signed.certificate, &certificate.pem())?;
        write(&signed.key, &key.serialize_pem())?;
        Ok(signed)
    }
}

fn write(path: &Path, content: &str) -> Result<()> {
    fs::write(path, content).doing(|| format!("write {}", path.display()))
}
