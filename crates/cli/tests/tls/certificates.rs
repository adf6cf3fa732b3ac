//! Certificates by name, and certificates that are replaced.

use std::fs;
use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P384_SHA384, PKCS_RSA_SHA256, SignatureAlgorithm};

use serde_json::json;

use crate::common::{Cluster, PATIENCE, Result};
use crate::{Connection, NAME, openssl, plan, start};

/// What a certificate is in PEM, without its first and last line.
fn base64(pem: &str) -> Result<String> {
    let begin = pem.find("-----BEGIN CERTIFICATE-----").ok_or_else(|| format!("no certificate: {pem}"))?;
    let end = pem.find("-----END CERTIFICATE-----").ok_or("half a certificate")?;
    Ok(pem[begin..end].lines().skip(1).collect())
}

/// The certificate that a client gets that asks for a host, or for none.
fn certificate_for(cluster: &Cluster, host: Option<&str>) -> Result<String> {
    base64(&openssl(cluster, &host.map_or(vec!["-noservername"], |host| vec!["-servername", host]))?)
}

/// Writes another certificate for these names.
fn write(
    cluster: &Cluster,
    file: &str,
    names: &[&str],
    algorithm: &'static SignatureAlgorithm,
) -> Result<String> {
    let key = KeyPair::generate_for(algorithm)?;
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let certificate = CertificateParams::new(names)?.self_signed(&key)?.pem();
    fs::write(cluster.lab.directory().join(format!("{file}.pem")), &certificate)?;
    fs::write(cluster.lab.directory().join(format!("{file}.key")), key.serialize_pem())?;
    base64(&certificate)
}

#[test]
fn a_certificate_for_each_name() -> Result {
    let lines = "[[service.tls.certificate]]\nchain = \"other.pem\"\nkey = \"other.key\"";
    let mut cluster = Cluster::prepare(plan(2, lines))?;
    let names = ["other.example.com", "*.wild.example.com"];
    let other = write(&cluster, "other", &names, &PKCS_RSA_SHA256)?;
    let shop = write(&cluster, "shop", &[NAME], &PKCS_ECDSA_P384_SHA384)?;
    cluster.start_daemons()?;
    let rows = [
        (Some(NAME), &shop),
        (Some("Shop.Example.COM"), &shop),
        (Some("other.example.com"), &other),
        (Some("a.wild.example.com"), &other),
        (Some("a.b.wild.example.com"), &other),
        // The first is for all other names, too.
        (Some("unknown.example.com"), &other),
        (None, &other),
    ];
    for (host, expected) in rows {
        // Each node once.
        for _ in 0..2 {
            assert_eq!(certificate_for(&cluster, host)?, *expected, "{host:?}");
        }
    }
    cluster.down()
}

#[test]
fn a_new_certificate_is_for_new_connections() -> Result {
    let cluster = start(1, "")?;
    let mut open = Connection::open(&cluster)?;
    assert_eq!(open.status("get /small")?, "200");
    let old = certificate_for(&cluster, Some(NAME))?;
    let new = write(&cluster, "shop", &[NAME], &PKCS_RSA_SHA256)?;
    assert_eq!(certificate_for(&cluster, Some(NAME))?, old, "nobody has told the node");
    cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
    assert_eq!(certificate_for(&cluster, Some(NAME))?, new);
    assert_eq!(open.status("get /1m")?, "200");
    let mut other = Connection::open(&cluster)?;
    assert_eq!(other.status("get /1m")?, "200");

    // One that is no use changes nothing, and is refused by all alike.
    fs::write(cluster.lab.directory().join("shop.key"), "no key")?;
    let file = cluster.config.to_string_lossy();
    for host in [cluster.lab.node(0), cluster.lab.switch(0)] {
        for words in [&["reload"][..], &["check", &file]] {
            let refused = cluster.run(host, words)?;
            assert_eq!(refused.status.code(), Some(1), "{words:?}");
            assert!(
                refused.stderr.contains("shop.key: no private key in PEM"),
                "{words:?}: {}",
                refused.stderr
            );
        }
    }
    assert_eq!(certificate_for(&cluster, Some(NAME))?, new);
    for connection in [&mut open, &mut other] {
        assert_eq!(connection.status("get /small")?, "200");
    }
    cluster.down()
}

/// Writes a certificate with this validity for the service.
fn write_valid(cluster: &Cluster, begin: SystemTime, end: SystemTime) -> Result {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new([NAME.to_owned()])?;
    (params.not_before, params.not_after) = (begin.into(), end.into());
    fs::write(cluster.lab.directory().join("shop.pem"), params.self_signed(&key)?.pem())?;
    Ok(fs::write(cluster.lab.directory().join("shop.key"), key.serialize_pem())?)
}

#[test]
fn a_certificate_that_ends_soon_is_told_of() -> Result {
    let cluster = start(1, "")?;
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    write_valid(&cluster, now - 1000 * hour, now + 50 * hour)?;
    let file = cluster.config.to_string_lossy();
    for host in [cluster.lab.node(0), cluster.lab.switch(0)] {
        let reloaded = cluster.run(host, &["reload"])?;
        let checked = cluster.run(host, &["check", &file])?;
        for (status, said) in [(reloaded.status, &reloaded.stdout), (checked.status, &checked.stderr)] {
            assert!(
                status.success() && said.contains(": warning: ") && said.contains(", in 2 days"),
                "{said}"
            );
        }
    }
    assert!(cluster.agent(0).log().contains(", in 2 days"), "{}", cluster.agent(0).log());
    let end = (now + 50 * hour).duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
    let expected =
        json!([{"service": "secure", "name": NAME, "not_before": end - 1050 * 3600, "not_after": end}]);
    assert_eq!(cluster.node_status(0)?["certificates"], expected);
    let shown = cluster.run(cluster.lab.node(0), &["status"])?.success()?;
    assert!(shown.lines().any(|line| line.contains(NAME) && line.contains("2 d ")), "{shown}");

    // Its end is told of when it comes, to those who have not read the file again.
    write_valid(&cluster, now - hour, SystemTime::now() + Duration::from_secs(3))?;
    cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
    cluster.agent(0).wait_for_log(&format!("service secure: the certificate {NAME} ended on "), PATIENCE)?;

    // Only nodes need the files.
    fs::remove_file(cluster.lab.directory().join("shop.key"))?;
    let [node, switch] =
        [cluster.lab.node(0), cluster.lab.switch(0)].map(|host| cluster.run(host, &["reload"]));
    let (node, switch) = (node?, switch?);
    assert_eq!((node.status.code(), switch.status.code()), (Some(1), Some(0)), "{}", switch.stderr);
    assert!(switch.stdout.contains("shop.key: not on this machine, nodes need it"), "{}", switch.stdout);
    cluster.down()
}
