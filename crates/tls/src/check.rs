//! The files of services with TLS, before they are used: the same findings for `switchback check`, for the start of a daemon
//! and for its reload, on every machine of a cluster.
//!
//! Only nodes read these files. On other machines they may be missing; if they are there, they have to be right.

use std::fs::File;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use switchback_config::{
    CertificateFiles, Checked, ClientCertificates, Cluster, Document, Error, Finding, Service, TlsFile,
    TlsFiles,
};
use x509_cert::crl::CertificateList;
use x509_cert::der::Decode;

use crate::validity::{Validity, day};
use crate::{CertificateError, certificates, client_certificates};

/// Reads a document, and looks at every file that it names, as [`Document::check`] says. `here` are the addresses of this
/// machine.
pub fn check(document: &Document, here: &[IpAddr]) -> Result<Checked, Error> {
    let now = SystemTime::now();
    document.check(|cluster, service, files| look(files, are_read_at(here, cluster, service), now))
}

/// What is wrong now with the revocation lists of services for which the machine with the addresses `here` is a node.
pub fn revocation_warnings(cluster: &Cluster, here: &[IpAddr]) -> Vec<String> {
    let now = SystemTime::now();
    let ours = cluster.services.iter().filter(|service| are_read_at(here, cluster, service));
    let all = ours.flat_map(|service| {
        let clients = service.tls.terminated().and_then(|tls| tls.client_certificates.as_ref());
        let findings =
            clients.into_iter().flat_map(|files| look(TlsFiles::ClientCertificates(files), true, now));
        findings.map(|finding| format!("service {}: {}", service.name, finding.what))
    });
    all.collect()
}

/// Whether the machine with the addresses `here` is a node of the service.
fn are_read_at(here: &[IpAddr], cluster: &Cluster, service: &Service) -> bool {
    cluster.nodes_of(service).any(|node| here.contains(&cluster.nodes[node].address))
}

/// Looks at files that belong together. `needed`: whether this machine reads them.
fn look(files: TlsFiles<'_>, needed: bool, now: SystemTime) -> Vec<Finding> {
    let named = match files {
        TlsFiles::Certificate(files) => vec![
            (TlsFile::Chain, Some(&files.chain)),
            (TlsFile::Key, Some(&files.key)),
            (TlsFile::Staple, files.staple.as_ref()),
        ],
        TlsFiles::ClientCertificates(files) => {
            vec![(TlsFile::Ca, Some(&files.ca)), (TlsFile::Crl, files.crl.as_ref())]
        }
    };
    let named = named.into_iter().filter_map(|(file, path)| Some((file, path?)));
    let unread: Vec<Finding> =
        named.clone().filter_map(|(file, path)| unreadable(file, path, needed)).collect();
    if !unread.is_empty() {
        return unread;
    }
    let warned = match files {
        TlsFiles::Certificate(files) => look_at_certificate(files, now),
        TlsFiles::ClientCertificates(files) => look_at_clients(files, now),
    };
    match warned {
        Ok(warnings) => {
            let warnings = warnings.into_iter();
            warnings.map(|(file, what)| Finding { file, is_mistake: false, what }).collect()
        }
        Err(error) => {
            let file = named.clone().find(|(_, path)| **path == error.file);
            let file = file.or(named.clone().next()).map(|(file, _)| file);
            file.map(|file| Finding { file, is_mistake: true, what: error.to_string() }).into_iter().collect()
        }
    }
}

/// Reads the files of a certificate, and returns what can hardly be meant.
fn look_at_certificate(
    files: &CertificateFiles,
    now: SystemTime,
) -> Result<Vec<(TlsFile, String)>, CertificateError> {
    let certified = certificates::read(files, &rustls::crypto::aws_lc_rs::default_provider())?;
    let what = certified.cert.first().and_then(|first| Validity::of(first)?.warning(now));
    let what = what.map(|what| format!("{}: the certificate {what}", files.chain.display()));
    Ok(what.into_iter().map(|what| (TlsFile::Chain, what)).collect())
}

/// As [`look_at_certificate`], with what clients' certificates are checked with.
fn look_at_clients(
    files: &ClientCertificates,
    now: SystemTime,
) -> Result<Vec<(TlsFile, String)>, CertificateError> {
    client_certificates::ClientCertificates::read(
        files,
        &Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
    )?;
    let Some(file) = &files.crl else { return Ok(Vec::new()) };
    let lists = client_certificates::lists(file)?;
    let warned = lists.iter().enumerate().filter_map(|(index, list)| {
        let next = CertificateList::from_der(list).ok()?.tbs_cert_list.next_update?;
        let next = UNIX_EPOCH + next.to_unix_duration();
        let what = format!(
            "{}: list {} was to be replaced by {}, and may lack what has been revoked since",
            file.display(),
            index + 1,
            day(next)?
        );
        (next < now).then_some((TlsFile::Crl, what))
    });
    Ok(warned.collect())
}

fn unreadable(file: TlsFile, path: &Path, needed: bool) -> Option<Finding> {
    let error = File::open(path).err()?;
    let what = match error.kind() {
        ErrorKind::PermissionDenied => format!("{}: not checked: {error}", path.display()),
        _ if needed => format!("{}: {error}", path.display()),
        _ => format!("{}: not on this machine, nodes need it: {error}", path.display()),
    };
    let is_mistake = needed && error.kind() != ErrorKind::PermissionDenied;
    Some(Finding { file, is_mistake, what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod,
        KeyPair, KeyUsagePurpose, SerialNumber,
    };
    use std::fs;
    use std::path::PathBuf;
    use switchback_config::ClientAuth;

    /// Made by openssl x509 -req without extensions.
    const VERSION_1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBKDCBzwIUEkZ3ld97sczwzdGC7y2XFKH72ggwCgYIKoZIzj0EAwIwFjEUMBIG
A1UEAwwLZXhhbXBsZS5jb20wIBcNMjYxMTI2MDQ0NzIyWhgPMjEyNjExMDIwNDQ3
MjJaMBYxFDASBgNVBAMMC2V4YW1wbGUuY29tMFkwEwYHKoZIzj0CAQYIKoZIzj0D
AQcDQgAEVpd3Fz15E77lY/81P+mMNZKpgs3L+3H3jFHizM6ISrQkxRzfwyDBcP8O
s2tR+/21V22TMPhdh3cNyuwsHRDU1jAKBggqhkjOPQQDAgNIADBFAiEA11/Yf9I8
WCwv3YsI1NVQk1WtwQdl/Rx8LsGD/mPAQVsCIBjkbZ3lPRmXBxjwVIQR/Hbhvkxw
bWQO+tB6ssZCflxa
-----END CERTIFICATE-----
";

    struct Files(PathBuf);

    impl Files {
        fn new(test: &str) -> Files {
            let directory =
                std::env::temp_dir().join(format!("switchback-check-{test}-{}", std::process::id()));
            fs::create_dir_all(&directory).unwrap();
            Files(directory)
        }

        /// Writes a certificate for 2026 from `begin` to `end`, and its key.
        fn write(&self, name: &str, begin: (u8, u8), end: (u8, u8)) {
            let mut params = CertificateParams::new(["example.com".to_owned()]).unwrap();
            params.not_before = rcgen::date_time_ymd(2026, begin.0, begin.1);
            params.not_after = rcgen::date_time_ymd(2026, end.0, end.1);
            let key = KeyPair::generate().unwrap();
            fs::write(self.0.join(format!("{name}.pem")), params.self_signed(&key).unwrap().pem()).unwrap();
            fs::write(self.0.join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }

        /// What is found in these files on a day of 2026: which file, whether it is a mistake, and what.
        fn look(
            &self,
            (chain, key, staple): (&str, &str, Option<&str>),
            needed: bool,
            (month, day): (u8, u8),
        ) -> Vec<(TlsFile, bool, String)> {
            let path = |name: &str| self.0.join(name);
            let files = CertificateFiles { chain: path(chain), key: path(key), staple: staple.map(path) };
            self.short(look(
                TlsFiles::Certificate(&files),
                needed,
                rcgen::date_time_ymd(2026, month, day).into(),
            ))
        }

        /// What is found in files for clients on 2026-06-01.
        fn look_for_clients(&self, ca: &str, crl: Option<&str>) -> Vec<(TlsFile, bool, String)> {
            let path = |name: &str| self.0.join(name);
            let files = ClientCertificates { mode: ClientAuth::Required, ca: path(ca), crl: crl.map(path) };
            let now = rcgen::date_time_ymd(2026, 6, 1).into();
            self.short(look(TlsFiles::ClientCertificates(&files), true, now))
        }

        fn short(&self, found: Vec<Finding>) -> Vec<(TlsFile, bool, String)> {
            let short = |what: String| what.replace(&format!("{}/", self.0.display()), "");
            found
                .into_iter()
                .map(|Finding { file, is_mistake, what }| (file, is_mistake, short(what)))
                .collect()
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_mistakes_on_every_machine() {
        let files = Files::new("unusable");
        files.write("good", (1, 1), (12, 31));
        files.write("other", (1, 1), (12, 31));
        fs::write(files.0.join("v1.pem"), VERSION_1).unwrap();
        fs::write(files.0.join("text.pem"), "no certificate").unwrap();
        let rows = [
            (("good.pem", "good.key", None), None),
            (
                ("good.pem", "other.key", None),
                Some((TlsFile::Key, "other.key: not the key of the certificate in good.pem")),
            ),
            (
                ("v1.pem", "good.key", None),
                Some((TlsFile::Chain, "v1.pem: the certificate is of version 1, allowed is version 3")),
            ),
            (("text.pem", "good.key", None), Some((TlsFile::Chain, "text.pem: no certificate in it"))),
            (("good.pem", "text.pem", None), Some((TlsFile::Key, "text.pem: no private key in PEM"))),
        ];
        for needed in [true, false] {
            for (names, expected) in &rows {
                let found = files.look(*names, needed, (2, 1));
                assert_eq!(found.len(), usize::from(expected.is_some()), "{names:?}: {found:?}");
                for ((file, is_mistake, what), (expected_file, begins)) in found.iter().zip(expected) {
                    assert_eq!((file, is_mistake), (expected_file, &true), "{names:?}: {what}");
                    assert!(what.starts_with(begins), "{what}");
                }
            }
        }
    }

    #[test]
    fn authorities_and_revocation_lists_of_clients() {
        let files = Files::new("clients");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        fs::write(files.0.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        let list = |next_update| {
            let list = CertificateRevocationListParams {
                this_update: rcgen::date_time_ymd(2026, 1, 1),
                next_update,
                crl_number: SerialNumber::from(1),
                issuing_distribution_point: None,
                revoked_certs: Vec::new(),
                key_identifier_method: KeyIdMethod::Sha256,
            };
            list.signed_by(&Issuer::from_params(&params, &key)).unwrap().pem().unwrap()
        };
        let (good, old) = (list(rcgen::date_time_ymd(2026, 7, 1)), list(rcgen::date_time_ymd(2026, 5, 1)));
        let broken = "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n";
        for (name, text) in [
            ("good.crl", &*good),
            ("both.crl", &format!("{good}{old}")),
            ("broken.crl", broken),
            ("text.crl", "a list"),
        ] {
            fs::write(files.0.join(name), text).unwrap();
        }
        let broken = broken.replace("X509 CRL", "CERTIFICATE");
        fs::write(files.0.join("broken.pem"), broken).unwrap();
        let rows = [
            ("ca.pem", None, None),
            ("ca.pem", Some("good.crl"), None),
            ("good.crl", None, Some((TlsFile::Ca, true, "good.crl: no certificate in PEM in it"))),
            ("broken.pem", None, Some((TlsFile::Ca, true, "broken.pem: certificate 1 cannot be used: "))),
            (
                "ca.pem",
                Some("text.crl"),
                Some((TlsFile::Crl, true, "text.crl: no certificate revocation list in PEM")),
            ),
            ("ca.pem", Some("broken.crl"), Some((TlsFile::Crl, true, "broken.crl: "))),
            ("ca.pem", Some("none.crl"), Some((TlsFile::Crl, true, "none.crl: No such file"))),
            (
                "ca.pem",
                Some("both.crl"),
                Some((
                    TlsFile::Crl,
                    false,
                    "both.crl: list 2 was to be replaced by 2026-05-01, and may lack",
                )),
            ),
        ];
        for (ca, crl, expected) in rows {
            let found = files.look_for_clients(ca, crl);
            let found: Vec<_> =
                found.iter().map(|(file, is_mistake, what)| (*file, *is_mistake, &**what)).collect();
            match expected {
                None => assert_eq!(found, [], "{ca} {crl:?}"),
                Some((file, is_mistake, what)) => {
                    assert!(
                        matches!(found[..], [(f, m, w)] if (f, m) == (file, is_mistake) && w.starts_with(what)),
                        "{ca} {crl:?}: {found:?}"
                    );
                }
            }
        }
    }

    #[test]
    fn missing_files_are_mistakes_where_they_are_read() {
        let files = Files::new("missing");
        files.write("good", (1, 1), (12, 31));
        let names = ("none.pem", "good.key", Some("none.ocsp"));
        let (read, elsewhere) = (files.look(names, true, (2, 1)), files.look(names, false, (2, 1)));
        let kinds = |found: &[(TlsFile, bool, String)]| {
            found.iter().map(|(file, is_mistake, _)| (*file, *is_mistake)).collect::<Vec<_>>()
        };
        assert_eq!(kinds(&read), [(TlsFile::Chain, true), (TlsFile::Staple, true)]);
        assert_eq!(kinds(&elsewhere), [(TlsFile::Chain, false), (TlsFile::Staple, false)]);
        assert!(elsewhere[0].2.starts_with("none.pem: not on this machine, nodes need it"), "{elsewhere:?}");
    }

    #[test]
    fn the_end_of_a_certificate_is_told_in_time() {
        let files = Files::new("dates");
        files.write("year", (1, 1), (12, 31));
        files.write("week", (6, 1), (6, 9));
        let rows = [
            ("year", (11, 30), None),
            ("year", (12, 1), Some("ends on 2026-12-31, in 30 days")),
            ("year", (12, 30), Some("ends on 2026-12-31, in 1 day")),
            ("week", (6, 6), None),
            ("week", (6, 7), Some("ends on 2026-06-09, in 2 days")),
            ("week", (6, 10), Some("ended on 2026-06-09, clients refuse it")),
            ("week", (5, 1), Some("begins on 2026-06-01, clients refuse it until then")),
        ];
        for (name, day, expected) in rows {
            let (chain, key) = (format!("{name}.pem"), format!("{name}.key"));
            let found = files.look((&chain, &key, None), true, day);
            let expected =
                expected.map(|what| (TlsFile::Chain, false, format!("{chain}: the certificate {what}")));
            assert_eq!(found, Vec::from_iter(expected), "{name} on {day:?}");
        }
    }
}
