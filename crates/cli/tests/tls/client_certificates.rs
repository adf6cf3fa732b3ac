//! Clients that show certificates, and clients that should.

use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};

use crate::authority::{Authority, HOUR, in_an_hour};
use crate::common::{Cluster, PATIENCE, Plan, Result, said_by, text, wait_until};
use crate::{
    Connection, NAME, PYTHON, authority, change_config, curl, plan, prepare_echo, program, tls_status, url,
};

const VERSIONS: [&str; 2] = ["1.2", "1.3"];

fn demands(mode: &str) -> String {
    format!("client_certificates = {{ mode = {mode:?}, ca = \"clients.pem\", crl = \"clients.crl\" }}")
}

fn write(cluster: &Cluster, file: &str, text: &str) -> Result {
    Ok(fs::write(cluster.lab.directory().join(file), text)?)
}

/// The plan with servers that answer with what they get, and what clients' certificates are checked with.
fn prepare(plan: Plan, authority: &Authority) -> Result<Cluster> {
    let mut cluster = prepare_echo(plan)?;
    write(&cluster, "clients.pem", &authority.pem()?)?;
    write(&cluster, "clients.crl", &authority.revoked(&[])?)?;
    cluster.start_daemons()?;
    Ok(cluster)
}

/// Requests that the first node's server has got.
fn requests(cluster: &Cluster) -> Result<usize> {
    Ok(fs::read_to_string(cluster.lab.directory().join("requests-0"))?.lines().count())
}

/// Clients of openssl, one after the other: see `client_certificates.py`.
struct Clients {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Clients {
    fn start(cluster: &Cluster) -> Result<Clients> {
        let mut command = cluster.client().command(PYTHON);
        let words = [program("client_certificates.py"), cluster.lab.vip4().to_string(), authority(cluster)];
        let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
        Ok(Clients { child, to, from: BufReader::new(from) })
    }

    fn ask(&mut self, asked: &Value) -> Result<Value> {
        writeln!(self.to, "{asked}")?;
        let mut line = String::new();
        self.from.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }

    /// A client with this certificate, if any, that makes one request.
    fn visit(&mut self, version: &str, certificate: Option<&PathBuf>, again: bool) -> Result<Value> {
        let requests = [get("/", "")];
        self.ask(
            &json!({"version": version, "certificate": certificate, "again": again, "requests": requests}),
        )
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(path: &str, fields: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {NAME}\r\n{fields}\r\n")
}

/// The fields of a request about its client's certificate, with names in lower case and hyphens.
fn told(request: &str) -> Vec<(String, String)> {
    let fields = request.lines().filter_map(|line| line.split_once(": "));
    let mut told: Vec<_> = fields
        .map(|(name, value)| (name.to_lowercase().replace('_', "-"), value.to_owned()))
        .filter(|(name, _)| name.contains("client-cert"))
        .collect();
    told.sort();
    told
}

/// What a server has to be told, as openssl says.
fn expected(certificate: &Path) -> Result<Vec<(String, String)>> {
    let openssl = |options: &[&str]| {
        let mut command = Command::new("openssl");
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(
            said_by(command.args(["x509", "-noout", "-in", text(certificate)]).args(options))?
                .trim()
                .to_owned(),
        )
    };
    let subject = openssl(&["-subject", "-nameopt", "RFC2253"])?.replace("subject=", "");
    let fingerprint = openssl(&["-fingerprint", "-sha256"])?;
    let fingerprint = fingerprint.split('=').nth(1).unwrap_or_default().replace(':', "").to_lowercase();
    let pem = fs::read_to_string(certificate)?;
    let base64: String = pem.lines().skip(1).take_while(|line| !line.starts_with('-')).collect();
    let fields = [
        ("client-cert", format!(":{base64}:")),
        ("x-client-cert-fingerprint", fingerprint),
        ("x-client-cert-subject", subject),
    ];
    Ok(fields.map(|(name, value)| (name.to_owned(), value)).to_vec())
}

fn answer(said: &Value) -> &str {
    said["answers"][0][1].as_str().unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn only_clients_with_a_good_certificate_reach_the_server() -> Result {
    let authority = Authority::new("clients")?;
    let (other, forger) = (Authority::new("others")?, Authority::new("clients")?);
    for mode in ["required", "optional"] {
        let cluster = prepare(plan(1, &demands(mode)), &authority)?;
        let good = authority.certify(&cluster, "good", 1, in_an_hour())?;
        let expired = authority.certify(&cluster, "expired", 2, SystemTime::now() - HOUR)?;
        let revoked = authority.certify(&cluster, "revoked", 3, in_an_hour())?;
        let stranger = other.certify(&cluster, "stranger", 1, in_an_hour())?;
        let forged = forger.certify(&cluster, "forged", 1, in_an_hour())?;
        let purpose = ExtendedKeyUsagePurpose::ServerAuth;
        let server = authority.certify_for(&cluster, "server", 4, in_an_hour(), purpose)?;
        write(&cluster, "clients.crl", &authority.revoked(&[3])?)?;
        cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
        let mut clients = Clients::start(&cluster)?;
        let mut refused = 0;
        for version in VERSIONS {
            for (certificate, alert) in [
                (&stranger, "TLSV1_ALERT_UNKNOWN_CA"),
                (&forged, "TLSV1_ALERT_DECRYPT_ERROR"),
                (&expired, "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
                (&revoked, "SSLV3_ALERT_CERTIFICATE_REVOKED"),
                (&server, "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE"),
            ] {
                let said = clients.visit(version, Some(certificate), false)?;
                assert_eq!(said, json!({"alert": alert}), "{mode} {version} {certificate:?}");
                refused += 1;
            }
        }
        let required = mode == "required";
        for (version, alert) in VERSIONS
            .into_iter()
            .zip(["SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"])
            .filter(|_| required)
        {
            assert_eq!(clients.visit(version, None, false)?, json!({"alert": alert}), "{version}");
            refused += 1;
        }
        let status = tls_status(&cluster, 0)?;
        assert_eq!(
            (&status["failed"], &status["requests"]),
            (&refused.into(), &0.into()),
            "{mode}: {status}"
        );
        assert_eq!(requests(&cluster)?, 0, "{mode}: a request has reached the server");
        for version in VERSIONS {
            let said = clients.visit(version, Some(&good), false)?;
            assert_eq!(told(answer(&said)), expected(&good)?, "{mode} {version}");
            if !required {
                let said = clients.visit(version, None, false)?;
                assert_eq!(told(answer(&said)), [], "{version}");
            }
        }
        drop(clients);
        cluster.down()?;
    }
    Ok(())
}

/// A client writes what the server believes, in all spellings, in the head and behind the body.
#[test]
fn no_client_tells_the_server_of_a_certificate() -> Result {
    const NAMES: [&str; 9] = [
        "Client-Cert",
        "client-cert",
        "CLIENT_CERT",
        "Client-Cert-Chain",
        "X-Client-Cert-Subject",
        "x-client-cert-subject",
        "X_Client_Cert_Subject",
        "X-Client_Cert-Fingerprint",
        "x_client_cert_fingerprint",
    ];
    let authority = Authority::new("clients")?;
    let cluster = prepare(plan(1, &demands("optional")), &authority)?;
    let good = authority.certify(&cluster, "good", 1, in_an_hour())?;
    let lies: String = NAMES.map(|name| format!("{name}: forged\r\n")).concat();
    let mut clients = Clients::start(&cluster)?;
    for certificate in [Some(&good), None] {
        let expected = certificate.map(|file| expected(file)).transpose()?.unwrap_or_default();
        let mut options = vec!["-X", "POST", "-d", "body"];
        let fields = NAMES.map(|name| format!("{name}: forged"));
        options.extend(fields.iter().flat_map(|field| ["-H", field]));
        options.extend(certificate.iter().flat_map(|file| ["--cert", text(file)]));
        for http in ["--http1.1", "--http2"] {
            let said = curl(&cluster, &[&[http], &options[..], &[&url("/")]].concat())?;
            assert_eq!(told(&said), expected, "{http} {certificate:?}");
            assert!(!said.contains("forged") && said.ends_with("\r\n\r\nbody"), "{said}");
        }
        let chunked = format!(
            "POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n{lies}\r\n4\r\nbody\r\n0\r\n{lies}X-Sum: 7\r\n\r\n"
        );
        let fields = NAMES.map(|name| (name.to_lowercase(), "forged"));
        for asked in [json!({"requests": [chunked]}), json!({"http2": "/", "fields": fields})] {
            let mut asked = asked;
            asked["version"] = "1.3".into();
            asked["certificate"] = json!(certificate);
            let said = clients.ask(&asked)?;
            let said = answer(&said);
            assert_eq!(told(said), expected, "{certificate:?}");
            // Other fields are where the client has put them.
            assert!(!said.contains("forged"), "{said}");
            assert!(said.to_lowercase().ends_with("4\r\nbody\r\n0\r\nx-sum: 7\r\n\r\n"), "{said}");
        }
    }
    drop(clients);
    cluster.down()
}

/// The certificate of a session is that with which it began, as long as that would be accepted.
#[test]
fn a_session_goes_on_as_long_as_its_certificate_is_good() -> Result {
    let authority = Authority::new("clients")?;
    let other = Authority::new("others")?;
    let cluster = prepare(plan(1, &demands("required")), &authority)?;
    let good = authority.certify(&cluster, "good", 1, in_an_hour())?;
    let reload = || -> Result {
        cluster.run(cluster.lab.node(0), &["reload"])?.success().map(drop).map_err(Into::into)
    };
    let mut clients = Clients::start(&cluster)?;
    for version in VERSIONS {
        let reused = |said: Value| {
            assert_eq!(told(answer(&said)), expected(&good).expect("openssl reads it"), "{version}");
            said["reused"] == true
        };
        write(&cluster, "clients.pem", &authority.pem()?)?;
        write(&cluster, "clients.crl", &authority.revoked(&[])?)?;
        reload()?;
        assert!(!reused(clients.visit(version, Some(&good), false)?), "{version}");
        // Its ticket is that of the second connection.
        for _ in 0..2 {
            assert!(reused(clients.visit(version, Some(&good), true)?), "{version}");
        }
        // Nothing is different.
        reload()?;
        assert!(reused(clients.visit(version, Some(&good), true)?), "{version}");
        // Other authorities: the client shows its certificate again.
        write(&cluster, "clients.pem", &(other.pem()? + &authority.pem()?))?;
        write(&cluster, "clients.crl", &(other.revoked(&[])? + &authority.revoked(&[])?))?;
        reload()?;
        assert!(!reused(clients.visit(version, Some(&good), true)?), "{version}");
        assert!(reused(clients.visit(version, Some(&good), true)?), "{version}");
        for (ca, crl, alert) in [
            (&authority, authority.revoked(&[1])?, "SSLV3_ALERT_CERTIFICATE_REVOKED"),
            (&other, other.revoked(&[])?, "TLSV1_ALERT_UNKNOWN_CA"),
        ] {
            write(&cluster, "clients.pem", &ca.pem()?)?;
            write(&cluster, "clients.crl", &crl)?;
            reload()?;
            assert_eq!(clients.visit(version, Some(&good), true)?, json!({"alert": alert}), "{version}");
        }
    }
    drop(clients);
    cluster.down()
}

#[test]
fn an_expired_certificate_ends_its_session() -> Result {
    let authority = Authority::new("clients")?;
    let cluster = prepare(plan(1, &demands("required")), &authority)?;
    let mut clients = Clients::start(&cluster)?;
    for version in VERSIONS {
        let until = SystemTime::now() + Duration::from_secs(8);
        let brief = authority.certify(&cluster, &format!("brief-{version}"), 1, until)?;
        assert_eq!(clients.visit(version, Some(&brief), false)?["reused"], false, "{version}");
        assert_eq!(clients.visit(version, Some(&brief), true)?["reused"], true, "{version}");
        let alert = json!({"alert": "SSLV3_ALERT_CERTIFICATE_EXPIRED"});
        let again = || clients.visit(version, Some(&brief), true);
        wait_until("the end of the certificate", PATIENCE, again, |said| *said == alert)?;
        assert!(SystemTime::now() > until, "{version}: it has come too early");
    }
    drop(clients);
    cluster.down()
}

/// Sessions of a time without demands are none behind them.
#[test]
fn a_session_of_another_mode_does_not_go_on() -> Result {
    let authority = Authority::new("clients")?;
    let cluster = prepare(plan(1, &demands("optional")), &authority)?;
    let mut clients = Clients::start(&cluster)?;
    for version in VERSIONS {
        assert_eq!(clients.visit(version, None, false)?["reused"], false, "{version}");
        assert_eq!(clients.visit(version, None, true)?["reused"], true, "{version}");
    }
    change_config(&cluster, "mode = \"optional\"", "mode = \"required\"")?;
    let said = cluster.run(cluster.lab.node(0), &["reload"])?.success()?;
    assert!(said.contains("tls.client_certificates"), "{said}");
    for (version, alert) in
        VERSIONS.into_iter().zip(["SSLV3_ALERT_HANDSHAKE_FAILURE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"])
    {
        assert_eq!(clients.visit(version, None, true)?, json!({"alert": alert}), "{version}");
    }
    drop(clients);
    cluster.down()
}

/// Clients come all the time, and none of them notices.
#[test]
fn authorities_and_lists_are_replaced_under_load() -> Result {
    let (authority, other) = (Authority::new("clients")?, Authority::new("others")?);
    let cluster = prepare(plan(1, &demands("required")), &authority)?;
    let [good, revoked] = [("good", 1), ("revoked", 2)]
        .map(|(name, serial)| authority.certify(&cluster, name, serial, in_an_hour()));
    let (good, revoked, newcomer) = (good?, revoked?, other.certify(&cluster, "newcomer", 1, in_an_hour())?);
    let reload = || cluster.run(cluster.lab.node(0), &["reload"]);
    let (is_over, expected) = (AtomicBool::new(false), expected(&good)?);
    let load = |version: &'static str| -> Result<u64> {
        let (mut clients, mut served) = (Clients::start(&cluster)?, 0);
        while !is_over.load(Ordering::Relaxed) {
            let said = clients.visit(version, Some(&good), served % 2 == 1)?;
            assert_eq!(told(answer(&said)), expected, "{version}");
            served += 1;
        }
        Ok(served)
    };
    let change = || -> Result {
        let mut clients = Clients::start(&cluster)?;
        for round in 0..5 {
            let alert = |alert: &str| json!({"alert": alert});
            assert_eq!(
                clients.visit("1.3", Some(&newcomer), true)?,
                alert("TLSV1_ALERT_UNKNOWN_CA"),
                "{round}"
            );
            assert!(clients.visit("1.3", Some(&revoked), true)?["answers"].is_array(), "{round}");
            write(&cluster, "clients.pem", &(authority.pem()? + &other.pem()?))?;
            write(&cluster, "clients.crl", &(authority.revoked(&[2])? + &other.revoked(&[])?))?;
            reload()?.success()?;
            let refused = alert("SSLV3_ALERT_CERTIFICATE_REVOKED");
            assert_eq!(clients.visit("1.3", Some(&revoked), true)?, refused, "{round}");
            assert!(clients.visit("1.3", Some(&newcomer), true)?["answers"].is_array(), "{round}");
            // What cannot be used changes nothing.
            for (file, what) in [
                ("clients.crl", "clients.crl: no certificate revocation list in PEM in it"),
                ("clients.pem", "clients.pem: no certificate in PEM in it"),
            ] {
                write(&cluster, file, "nothing")?;
                let failed = reload()?;
                assert_eq!(failed.status.code(), Some(1), "{}", failed.stdout);
                assert!(failed.stderr.contains(what), "{}", failed.stderr);
            }
            assert_eq!(clients.visit("1.3", Some(&revoked), true)?, refused, "{round}");
            assert!(clients.visit("1.3", Some(&newcomer), false)?["answers"].is_array(), "{round}");
            write(&cluster, "clients.pem", &authority.pem()?)?;
            write(&cluster, "clients.crl", &authority.revoked(&[])?)?;
            reload()?.success()?;
        }
        Ok(())
    };
    let (changed, served) = thread::scope(|scope| {
        let loads = VERSIONS.map(|version| scope.spawn(move || load(version)));
        // Also if it panics, the load has to end.
        let changed = scope.spawn(change).join();
        is_over.store(true, Ordering::Relaxed);
        (changed, loads.map(|load| load.join().expect("no client is refused")))
    });
    changed.expect("what is replaced holds")?;
    for served in served {
        assert!(served? > 10);
    }
    assert_eq!(tls_status(&cluster, 0)?["requests"], requests(&cluster)?);
    cluster.down()
}

/// The server of the node that answers learns of the certificate, whatever way the request has taken there.
#[test]
fn other_nodes_tell_their_servers_of_the_certificate() -> Result {
    let authority = Authority::new("clients")?;
    let pools = vec![("web", vec![0]), ("img", vec![1])];
    let lines = format!("tickets = \"cluster\"\n{}", demands("required"));
    let cluster = prepare(Plan { tls: Some(lines), pools, ..Plan::default() }, &authority)?;
    let good = authority.certify(&cluster, "good", 1, in_an_hour())?;
    let expected = expected(&good)?;
    let lie = "X-Client-Cert-Subject: CN=lie\r\n";
    let mut clients = Clients::start(&cluster)?;
    for version in VERSIONS {
        let paths = ["/", "/img/a", "/", "/img/b"];
        let asked = |again| {
            let requests = paths.map(|path| get(path, lie));
            json!({"version": version, "certificate": good, "again": again, "requests": requests})
        };
        for again in [false, true] {
            let said = clients.ask(&asked(again))?;
            assert_eq!(said["reused"], again, "{version}");
            for (index, path) in paths.iter().enumerate() {
                let (node, request) = (&said["answers"][index][0], said["answers"][index][1].as_str());
                assert_eq!(*node, if path.len() > 1 { "node1" } else { "node0" }, "{version} {path}");
                assert_eq!(told(request.unwrap_or_default()), expected, "{version} {path}");
            }
        }
    }
    let fields = [("x-client-cert-subject", "CN=lie")];
    let asked = json!({"version": "1.3", "certificate": good, "http2": "/img/a", "fields": fields});
    assert_eq!(told(answer(&clients.ask(&asked)?)), expected, "forwarded");
    let first = tls_status(&cluster, 0)?;
    assert!(first["given"].as_u64() >= Some(8) && first["forwarded"] == 1, "{first}");
    drop(clients);
    cluster.down()
}

/// The same of a request that another node answers for a busy one.
#[test]
fn a_relayed_request_has_the_certificate() -> Result {
    let authority = Authority::new("clients")?;
    let lines = format!(
        "sessions = \"forwarding\"\nhand_over = \"relay\"\nbusy_connections = 2\nbusy_cpu = \"100%\"\n{}",
        demands("optional")
    );
    let plan = Plan { policy: "fill", pools: vec![("web", vec![0, 1])], tls: Some(lines), ..Plan::default() };
    let cluster = prepare(plan, &authority)?;
    let good = authority.certify(&cluster, "good", 1, in_an_hour())?;
    let mut idle = [Connection::open(&cluster)?, Connection::open(&cluster)?, Connection::open(&cluster)?];
    let second = || idle[0].ask("get /small");
    wait_until("the second node's answer", PATIENCE, second, |answer| answer.contains(" node1 "))?;
    let mut clients = Clients::start(&cluster)?;
    for version in VERSIONS {
        for (certificate, expected) in [(Some(&good), expected(&good)?), (None, Vec::new())] {
            let requests = [get("/", "X_Client_Cert_Subject: CN=lie\r\n")];
            let asked = json!({"version": version, "certificate": certificate, "requests": requests});
            let said = clients.ask(&asked)?;
            assert_eq!(said["answers"][0][0], "node1", "{version}");
            assert_eq!(told(answer(&said)), expected, "{version}");
        }
    }
    drop((clients, idle));
    cluster.down()
}
