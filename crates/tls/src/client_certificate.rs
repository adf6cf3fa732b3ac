//! The certificate of a client, and the header fields by which the server learns of it.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_cert::der::{self, Decode};

/// The certificate that a client has shown, and proved to be its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    der: Vec<u8>,
    values: [String; 3],
}

impl ClientCertificate {
    /// Names of the [`fields`](Self::fields).
    const FIELDS: [&str; 3] = ["Client-Cert", "X-Client-Cert-Subject", "X-Client-Cert-Fingerprint"];
    /// The certificate with this DER.
    pub(crate) fn new(der: &[u8]) -> Result<Self, der::Error> {
        let subject = x509_cert::Certificate::from_der(der)?.tbs_certificate.subject.to_string();
        let fingerprint = digest(&SHA256, der);
        let fingerprint = fingerprint.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(ClientCertificate {
            der: der.to_vec(),
            values: [format!(":{}:", STANDARD.encode(der)), as_field(&subject), fingerprint],
        })
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Header fields for the server: the certificate (RFC 9440), its subject (RFC 4514, in ASCII), and its SHA-256 in
    /// hexadecimal digits.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&'static str, &str)> {
        Self::FIELDS.into_iter().zip(self.values.iter().map(String::as_str))
    }
}

/// A subject as the value of a field: what is not printable ASCII, or a blank at the end, is `\` and two hexadecimal digits
/// for each byte, which RFC 4514 section 2.4 allows for any character.
fn as_field(subject: &str) -> String {
    let (subject, end) = match subject.strip_suffix("\\ ") {
        Some(subject) => (subject, "\\20"),
        None => (subject, ""),
    };
    let escaped = |byte: u8| match byte {
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:02x}"),
    };
    subject.bytes().map(escaped).chain([end.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    fn certificate(names: &[(DnType, &str)]) -> ClientCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        names.iter().for_each(|(kind, name)| params.distinguished_name.push(kind.clone(), *name));
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        ClientCertificate::new(&der).unwrap()
    }

    #[test]
    fn no_subject_breaks_a_field() {
        let rows = [
            ("alice", "CN=alice"),
            ("a,b+c", "CN=a\\,b\\+c"),
            ("x\r\nX-Admin: yes", "CN=x\\0d\\0aX-Admin: yes"),
            ("é", "CN=\\c3\\a9"),
            (" a ", "CN=\\ a\\20"),
            ("\\", "CN=\\\\"),
        ];
        for (name, expected) in rows {
            let certificate = certificate(&[(DnType::CommonName, name)]);
            let subject =
                certificate.fields().find(|(field, _)| *field == "X-Client-Cert-Subject").unwrap().1;
            assert_eq!(subject, expected);
        }
        let names =
            [(DnType::CountryName, "DE"), (DnType::OrganizationName, "Shop"), (DnType::CommonName, "a")];
        assert_eq!(certificate(&names).values[1], "CN=a,O=Shop,C=DE");
        assert_eq!(certificate(&[]).values[1], "");
    }

    #[test]
    fn the_certificate_and_its_fingerprint() {
        let certificate = certificate(&[(DnType::CommonName, "alice")]);
        let [whole, _, fingerprint] = &certificate.values;
        let base64 = whole.strip_prefix(':').and_then(|text| text.strip_suffix(':')).unwrap();
        assert_eq!(STANDARD.decode(base64).unwrap(), certificate.der);
        let expected: String =
            digest(&SHA256, &certificate.der).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(*fingerprint, expected);
    }

    #[test]
    fn a_client_may_send_none_of_the_fields() {
        for name in ClientCertificate::FIELDS {
            assert!(switchback_config::CERTIFICATE_FIELDS.contains(&&*name.to_ascii_lowercase()), "{name}");
        }
    }
}
