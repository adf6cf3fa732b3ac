//! Files that are valid and yet cannot be meant, and the warnings that `switchback check` prints for them.

#[allow(dead_code)] // Another test uses all of it.
mod common;

use std::fs;
use std::path::Path;

use common::changed;
use switchback_config::{Checked, Document, Error, Finding, TlsFile, TlsFiles, generate_key, write_key};

/// The result of `check` for a file with this text, in a directory of the test's own.
fn checked(test: &str, text: &str, findings: &[Finding]) -> Result<Checked, Error> {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    write_key(&directory.join("cluster.key"), &generate_key().unwrap()).unwrap();
    let file = directory.join("cluster.toml");
    Document::new(text, &file).check(|_, _, files| {
        let (path, is_of_these): (_, fn(TlsFile) -> bool) = match files {
            TlsFiles::Certificate(files) => (&files.chain, |file| !is_of_clients(file)),
            TlsFiles::ClientCertificates(files) => (&files.ca, is_of_clients),
        };
        assert!(path.starts_with(&directory), "{files:?}");
        findings.iter().filter(|finding| is_of_these(finding.file)).cloned().collect()
    })
}

fn is_of_clients(file: TlsFile) -> bool {
    matches!(file, TlsFile::Ca | TlsFile::Crl)
}

/// Its warnings, without the name of the file.
fn warnings(test: &str, text: &str, findings: &[Finding]) -> Vec<String> {
    let Checked { warnings, cluster } =
        checked(test, text, findings).unwrap_or_else(|error| panic!("{error}\n{text}"));
    assert!(!cluster.keys.is_empty());
    let lines = warnings.iter().map(|warning| {
        let line = warning.to_string();
        line.split_once("/cluster.toml:").expect("the name of the file").1.to_owned()
    });
    lines.collect()
}

/// The good file, whose last route has `second` as conditions, and one before it has `first`.
fn routes(first: &str, second: &str) -> Vec<String> {
    let routes = format!("{first}\npool = \"web\"\n[[service.route]]\n{second}\npool = \"web\"\n");
    warnings("routes", &changed("path = \"/\"\npool = \"web\"\n", &routes), &[])
}

#[test]
fn the_good_file_has_none() {
    assert_eq!(warnings("good", common::GOOD, &[]), [""; 0]);
}

#[test]
fn routes_that_are_never_reached() {
    let rows = [
        ("path = \"/a/\"", "path = \"/a/b/\"", true),
        ("path = \"/a/b/\"", "path = \"/a/\"", false),
        ("path = \"/img\"", "path = \"/images\"", false),
        ("path = \"/im\"", "path = \"/images\"", true),
        ("path = \"/a/\"", "method = \"GET\"", false),
        ("host = \"*.example.com\"", "host = \"www.Example.com\"", true),
        ("host = \"*.example.com\"", "host = \"*.a.example.com\"", true),
        ("host = \"*.example.com\"", "host = \"example.com\"", false),
        ("host = \"*.a.example.com\"", "host = \"*.example.com\"", false),
        ("host = \"www.example.com\"", "host = \"*.example.com\"", false),
        ("host = \"*.example.com\"\npath = \"/a\"", "host = \"www.example.com\"", false),
        ("host = \"*.example.com\"\npath = \"/a\"", "host = \"www.example.com\"\npath = \"/a\"", true),
        ("method = [\"GET\", \"PUT\"]", "method = \"PUT\"\npath = \"/a\"", true),
        ("method = \"PUT\"", "method = [\"GET\", \"PUT\"]\npath = \"/a\"", false),
        ("method = \"PUT\"", "path = \"/a\"", false),
        ("header.name = \"x\"", "header = { name = \"X\", value = \"1\" }", true),
        ("header = { name = \"X\", value = \"1\" }", "header.name = \"x\"", false),
        ("header.name = \"x\"", "header.name = \"y\"", false),
        ("path = \"/a/\"", "path = \"/a/b/\"\nh2c = true", false),
    ];
    for (first, second, is_unreached) in rows {
        let line = 30 + first.lines().count() + 1;
        let warning = format!(
            "{line}:1: warning: this route is never reached: the one in line 29 takes all its requests; put this one \
             before it"
        );
        let expected = if is_unreached { vec![warning] } else { Vec::new() };
        assert_eq!(routes(first, second), expected, "{first} before {second}");
    }
    let same = "32:1: warning: this route is never reached: the one in line 29 has the same conditions";
    assert_eq!(routes("path = \"/a\"", "path = \"/a\""), [same]);
}

#[test]
fn pools_that_nobody_asks_or_that_answer_nobody() {
    let more = "[[pool]]\nname = \"old\"\nnodes = [\"n1\"]\npolicy = \"random\"\n[[service]]";
    assert_eq!(
        warnings("unused", &changed("[[service]]", more), &[]),
        ["19:8: warning: pool \"old\" is in no route"]
    );
    let none =
        "16:9: warning: every node of pool \"web\" has weight 0 or drains, so its requests are answered 503";
    let weights = |one: &str, other: &str| {
        let text =
            changed("weight = 3", other).replace("\"192.0.2.21\"\n", &format!("\"192.0.2.21\"\n{one}\n"));
        warnings("weights", &text, &[])
    };
    assert_eq!(weights("weight = 0", "weight = 0"), [none]);
    assert_eq!(weights("weight = 0", "drain = true"), [none]);
    assert_eq!(weights("weight = 0", "weight = 1"), [""; 0]);
}

#[test]
fn the_directory_of_the_access_log() {
    let log = |path: &str| {
        warnings("log", &changed("[[node]]", &format!("[access_log]\npath = \"{path}\"\n[[node]]")), &[])
    };
    assert_eq!(
        log("/nonexistent/dir/access.log"),
        ["5:8: warning: the directory /nonexistent/dir is missing on this machine"]
    );
    assert_eq!(log("/tmp/access.log"), [""; 0]);
    assert_eq!(log("-"), [""; 0]);
}

#[test]
fn findings_in_certificates_stand_where_the_file_is_named() {
    let tls = "[service.tls]\nserver = \"127.0.0.1:8080\"\n[[service.tls.certificate]]\nchain = \"a.pem\"\nkey = \"a.key\"\n\
               staple = \"a.ocsp\"\n[service.tls.client_certificates]\nca = \"ca.pem\"\ncrl = \"ca.crl\"\n[[service.route]]\nhost";
    let text = changed("[[service.route]]\nhost", tls);
    let found = |file, is_mistake| Finding { file, is_mistake, what: "old".to_owned() };
    let files = [TlsFile::Chain, TlsFile::Key, TlsFile::Staple, TlsFile::Ca, TlsFile::Crl];
    let all = files.map(|file| found(file, false));
    let expected = ["25:9", "26:7", "27:10", "29:6", "30:7"].map(|place| format!("{place}: warning: old"));
    assert_eq!(warnings("certificates", &text, &all), expected);
    let one = [found(TlsFile::Chain, false), found(TlsFile::Key, true)];
    let error = checked("certificates", &text, &one).unwrap_err();
    assert!(
        matches!(error, Error::Invalid(_)) && error.to_string().ends_with("/cluster.toml:26:7: old"),
        "{error}"
    );
}

#[test]
fn a_ca_that_finds_no_proof() {
    let service = |port| {
        format!(
            "[[service]]\nname = \"secret\"\nlisten = [\"192.0.2.77:{port}\"]\n[service.tls]\nserver = \"127.0.0.1:8080\"\n\
             [[service.tls.certificate]]\ndomains = [\"a.example\"]\n[[service.route]]\npool = \"web\"\n"
        )
    };
    let found = |acme: &str, service: &str| {
        let text = format!("[acme]\nnode = \"n1\"\nterms_agreed = true\n{acme}\n{}{service}", common::GOOD);
        warnings("acme", &text, &[])
            .iter()
            .map(|line| line.split_once(": warning: ").unwrap().1.to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("", &service(443)), [""; 0]);
    assert_eq!(
        found("", &service(8443)),
        ["the CA connects to port 443 of 192.0.2.77, service \"secret\" listens at 192.0.2.77:8443"]
    );
    assert_eq!(
        found("challenge = \"http-01\"", &service(443)),
        [
            "the CA sends HTTP to port 80 of 192.0.2.77, where no service listens that could redirect it to https"
        ]
    );
    let plain = "[[service]]\nname = \"plain\"\nlisten = [\"192.0.2.77:80\"]\n[[service.route]]\nredirect = { scheme = \"https\" }\n";
    assert_eq!(found("challenge = \"http-01\"", &format!("{}{plain}", service(443))), [""; 0]);
    let missing = found("ca = \"ca.pem\"", &service(443));
    assert!(
        matches!(&missing[..], [one] if one.ends_with("/ca.pem: not on this machine, node \"n1\" needs it")),
        "{missing:?}"
    );
    assert_eq!(found("", ""), ["[acme] is not used: no [[service.tls.certificate]] has domains"]);
}
