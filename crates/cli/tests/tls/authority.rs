//! Certificates and revocation lists of clients.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};

use crate::common::{Cluster, Result};

pub const HOUR: Duration = Duration::from_secs(3600);

pub fn in_an_hour() -> SystemTime {
    SystemTime::now() + HOUR
}

/// A certification authority.
pub struct Authority {
    params: CertificateParams,
    key: KeyPair,
}

impl Authority {
    pub fn new(name: &str) -> Result<Authority> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Authority { params, key: KeyPair::generate()? })
    }

    pub fn pem(&self) -> Result<String> {
        Ok(self.params.self_signed(&self.key)?.pem())
    }

    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    /// Writes the certificate of a client, which is valid until then, and its key, into one file.
    pub fn certify(&self, cluster: &Cluster, name: &str, serial: u64, until: SystemTime) -> Result<PathBuf> {
        self.certify_for(cluster, name, serial, until, ExtendedKeyUsagePurpose::ClientAuth)
    }

    /// As [`certify`](Self::certify), for this purpose.
    pub fn certify_for(
        &self,
        cluster: &Cluster,
        name: &str,
        serial: u64,
        until: SystemTime,
        purpose: ExtendedKeyUsagePurpose,
    ) -> Result<PathBuf> {
        let mut params = CertificateParams::default();
        params.extended_key_usages.push(purpose);
        params.distinguished_name.push(DnType::OrganizationName, "Shop, Ltd.");
        params.distinguished_name.push(DnType::CommonName, name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = (SystemTime::now() - 2 * HOUR).into();
        params.not_after = until.into();
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer())?;
        let file = cluster.lab.directory().join(format!("{name}.pem"));
        fs::write(&file, certificate.pem() + &key.serialize_pem())?;
        Ok(file)
    }

    /// The revocation list, in PEM.
    pub fn revoked(&self, serials: &[u64]) -> Result<String> {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: (SystemTime::now() - HOUR).into(),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: (SystemTime::now() - HOUR).into(),
            next_update: (SystemTime::now() + HOUR).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        Ok(list.signed_by(&self.issuer())?.pem()?)
    }
}
