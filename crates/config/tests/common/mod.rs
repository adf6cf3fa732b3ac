//! The file that the tests start from.

use std::path::Path;

use switchback_config::{Cluster, ClusterKey, Document, Error, parse};

/// A file without a mistake.
pub const GOOD: &str = r#"[cluster]
key_file = "cluster.key"

[[node]]
name = "n1"
address = "192.0.2.21"

[[node]]
name = "n2"
address = "2001:db8::22"
weight = 3

[[pool]]
name = "web"
nodes = ["n1", "n2"]
policy = "round-robin"

[[service]]
name = "shop"
listen = ["192.0.2.100:80", "[2001:db8::100]:80"]

[[service.route]]
host = "Static.example.com"
path = "/img/"
method = ["GET", "HEAD"]
header = { name = "X-Beta", value = "1" }
pool = "web"

[[service.route]]
path = "/"
pool = "web"
"#;

/// What makes a service with TLS of the good file's pool. Its first line is the file's 32nd.
pub const SECRET: &str = r#"
[[service]]
name = "secret"
listen = ["192.0.2.100:443"]

[service.tls]
server = "127.0.0.1:8080"

[[service.tls.certificate]]
chain = "secret.pem"
key = "secret.key"

[[service.route]]
pool = "web"
"#;

/// The cluster in `text`, with a key.
pub fn read(text: &str) -> Result<Cluster, Error> {
    parse(text, Path::new("etc/cluster.toml"), |_| Ok(vec![ClusterKey::from_bytes([7; 32])]))
}

/// As [`read`], for a text that is valid.
pub fn good(text: &str) -> Cluster {
    read(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The warnings about a text that is valid and leads clients back to where they came from.
pub fn loops(text: &str) -> Vec<String> {
    let checked = Document::new(text, Path::new("etc/cluster.toml")).check_text();
    let checked = checked.unwrap_or_else(|error| panic!("{error}\n{text}"));
    let lines = checked.warnings.iter().map(|warning| warning.to_string());
    lines.filter(|line| line.contains("back to where it came from")).collect()
}

/// [`GOOD`] with the first `old` replaced by `new`.
pub fn changed(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old:?} is not in the good file");
    GOOD.replacen(old, new, 1)
}

/// The good file with `lines` in place of the policy of its pool.
pub fn pooled(lines: &str) -> String {
    changed("policy = \"round-robin\"", lines)
}

/// What `switchback check` prints for a file with mistakes in it.
pub fn lines(result: Result<Cluster, Error>) -> Vec<String> {
    match result {
        Err(error @ Error::Invalid(_)) => {
            assert_eq!(error.exit_status(), 1);
            error.to_string().lines().map(str::to_owned).collect()
        }
        other => panic!("{other:?}"),
    }
}
