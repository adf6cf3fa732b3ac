//! Addresses such as `etcd://192.0.2.1,192.0.2.2:2379/switchback`.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use switchback_config::{Addresses, Document};

/// Port of etcd's clients.
const PORT: &str = "2379";
/// Where relative paths of a document begin unless the address names another directory.
const DIRECTORY: &str = "/etc/switchback";
/// An example for messages.
const EXAMPLE: &str = "such as etcd://192.0.2.1:2379/switchback";

/// Where the configuration of a cluster is in etcd, and what it takes to get there.
///
/// `etcd[s]://[USER@]HOST[:PORT][,HOST[:PORT]...]/PREFIX[?KEY=VALUE[&KEY=VALUE...]]`; with `etcds` over TLS. Displays without
/// user, password and files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The members of the etcd cluster, each with its port; at least one.
    pub(crate) hosts: Vec<String>,
    /// What all keys of this cluster begin with; begins with a slash and ends with none.
    pub(crate) prefix: String,
    /// None for connections without TLS.
    pub(crate) tls: Option<TlsFiles>,
    pub(crate) user: Option<User>,
    /// Where relative paths of the document begin.
    pub(crate) directory: PathBuf,
}

/// Files in PEM for connections over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsFiles {
    /// CAs of the members' certificates; None for those that this machine trusts.
    pub(crate) ca: Option<PathBuf>,
    /// Certificate of this machine, and its key.
    pub(crate) own: Option<(PathBuf, PathBuf)>,
}

/// A user of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password_file: PathBuf,
}

/// The values behind the question mark.
#[derive(Default)]
struct Values {
    ca: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    password_file: Option<PathBuf>,
    directory: Option<PathBuf>,
}

impl Address {
    /// Whether a text is meant as an address, rather than as a path.
    pub fn resembles(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// A version of the document.
    pub(crate) fn document(&self, text: String, version: u64) -> Document {
        let name = format!("etcd:{}@{version}", self.document_key()).into();
        Document {
            text,
            name,
            directory: self.directory.clone(),
            addresses: Addresses::new(),
            version: Some(version),
        }
    }

    /// Key of the document.
    pub(crate) fn document_key(&self) -> String {
        format!("{}/cluster.toml", self.prefix)
    }

    /// What the keys of nodes that have joined begin with.
    pub(crate) fn nodes(&self) -> String {
        format!("{}/nodes/", self.prefix)
    }

    /// The first key behind those that daemons follow, of which the document's is the first.
    pub(crate) fn behind_followed(&self) -> String {
        // The character behind the slash.
        format!("{}/nodes0", self.prefix)
    }

    /// What the keys of the records of versions begin with.
    pub(crate) fn versions(&self) -> String {
        format!("{}/versions/", self.prefix)
    }

    /// The first key behind those of all records.
    pub(crate) fn behind_versions(&self) -> String {
        // The character behind the slash.
        format!("{}/versions0", self.prefix)
    }

    /// Key of the record of a version. In the order of keys a version comes after all smaller ones.
    pub(crate) fn version_key(&self, version: u64) -> String {
        format!("{}{version:010}", self.versions())
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let (is_tls, rest) = scheme(text).ok_or(format!("not an address of etcd, {EXAMPLE}"))?;
        let (place, values) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = place.split_once('/').unwrap_or((place, ""));
        let prefix = path.trim_matches('/');
        if prefix.is_empty() {
            return Err(format!("no prefix behind the hosts, {EXAMPLE}"));
        }
        let (user, hosts) = match authority.rsplit_once('@') {
            Some((user, hosts)) => (Some(user), hosts),
            None => (None, authority),
        };
        let hosts = hosts.split(',').map(host).collect::<Result<Vec<_>, _>>()?;
        let Values { ca, cert, key, password_file, directory } = read_values(values)?;
        let own = match (cert, key) {
            (None, None) => None,
            (Some(cert), Some(key)) => Some((cert, key)),
            _ => return Err("cert and key belong together, one of them is missing".to_owned()),
        };
        if !is_tls && (ca.is_some() || own.is_some()) {
            return Err("ca, cert and key are for TLS, which begins with etcds://".to_owned());
        }
        let user = match (user, password_file) {
            (None, None) => None,
            (Some(user), _) if user.is_empty() || user.contains(':') => {
                return Err("allowed before the @ is the user's name only; name the password's file with \
                            ?password_file=PATH"
                    .to_owned());
            }
            (Some(name), Some(password_file)) => Some(User { name: name.to_owned(), password_file }),
            (Some(_), None) => {
                return Err("a user without a password, name its file with ?password_file=PATH".to_owned());
            }
            (None, Some(_)) => {
                return Err(
                    "password_file without a user, whose name stands before the hosts: USER@HOST".to_owned()
                );
            }
        };
        Ok(Address {
            hosts,
            prefix: format!("/{prefix}"),
            tls: is_tls.then_some(TlsFiles { ca, own }),
            user,
            directory: directory.unwrap_or(DIRECTORY.into()),
        })
    }
}

/// Whether the address asks for TLS, and what follows the scheme.
fn scheme(text: &str) -> Option<(bool, &str)> {
    let plain = text.strip_prefix("etcd://").map(|rest| (false, rest));
    plain.or_else(|| Some((true, text.strip_prefix("etcds://")?)))
}

/// The host with its port.
fn host(text: &str) -> Result<String, String> {
    let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((_, after)) => (&text[..text.len() - after.len()], after.strip_prefix(':')),
        None => match text.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (text, None),
        },
    };
    let is_right = !name.is_empty()
        && !name.contains(|sign: char| sign.is_whitespace() || sign == '/')
        && port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    match is_right {
        true => Ok(format!("{name}:{}", port.unwrap_or(PORT))),
        false => {
            Err(format!("{text:?} is no host with a port, such as 192.0.2.1:2379 or [2001:db8::1]:2379"))
        }
    }
}

fn read_values(text: &str) -> Result<Values, String> {
    let mut values = Values::default();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let place = match key {
            "ca" => &mut values.ca,
            "cert" => &mut values.cert,
            "key" => &mut values.key,
            "password_file" => &mut values.password_file,
            "directory" => &mut values.directory,
            _ => return Err(format!("{key:?}: allowed are ca, cert, key, password_file and directory")),
        };
        if value.is_empty() {
            return Err(format!("{key} without a path: {key}=PATH"));
        }
        if place.replace(value.into()).is_some() {
            return Err(format!("{key} stands twice"));
        }
    }
    Ok(values)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "etcds" } else { "etcd" };
        write!(f, "{scheme}://{}{}", self.hosts.join(","), self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Address {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn addresses_are_read() {
        let one = read("etcd://192.0.2.1/switchback");
        assert_eq!(one.to_string(), "etcd://192.0.2.1:2379/switchback");
        assert_eq!((one.tls, one.user, one.directory), (None, None, "/etc/switchback".into()));
        let all = read(
            "etcds://web@[2001:db8::1],etcd.example:2400/a/b/?ca=/ca.pem&cert=c.pem&key=k.pem\
             &password_file=/run/password&directory=/srv/switchback",
        );
        assert_eq!(all.to_string(), "etcds://[2001:db8::1]:2379,etcd.example:2400/a/b");
        let own = Some(("c.pem".into(), "k.pem".into()));
        assert_eq!(all.tls, Some(TlsFiles { ca: Some("/ca.pem".into()), own }));
        assert_eq!(all.user, Some(User { name: "web".to_owned(), password_file: "/run/password".into() }));
        assert_eq!(all.document_key(), "/a/b/cluster.toml");
        let document = Document {
            text: "text".to_owned(),
            name: "etcd:/a/b/cluster.toml@7".into(),
            directory: "/srv/switchback".into(),
            addresses: Addresses::new(),
            version: Some(7),
        };
        assert_eq!(all.document("text".to_owned(), 7), document);
        assert!(all.version_key(9) < all.version_key(10), "in the order of keys");
    }

    #[test]
    fn what_is_wrong_with_an_address_is_said() {
        for (text, said) in [
            ("/etc/switchback/cluster.toml", "not an address of etcd"),
            ("etcd://192.0.2.1", "no prefix behind the hosts"),
            ("etcd://192.0.2.1/", "no prefix behind the hosts"),
            ("etcd:///switchback", "\"\" is no host"),
            ("etcd://192.0.2.1:0/switchback", "\"192.0.2.1:0\" is no host"),
            ("etcd://192.0.2.1,/switchback", "\"\" is no host"),
            ("etcd://192.0.2.1:2379x/switchback", "is no host with a port"),
            ("etcd://192.0.2.1/switchback?ca=/ca.pem", "begins with etcds://"),
            ("etcds://192.0.2.1/switchback?cert=/c.pem", "cert and key belong together"),
            ("etcds://192.0.2.1/switchback?ca", "ca without a path"),
            ("etcds://192.0.2.1/switchback?ca=a&ca=b", "ca stands twice"),
            ("etcd://192.0.2.1/switchback?chain=a", "\"chain\": allowed are"),
            ("etcd://web@192.0.2.1/switchback", "a user without a password"),
            ("etcd://web:secret@192.0.2.1/switchback", "the user's name only"),
            ("etcd://192.0.2.1/switchback?password_file=p", "password_file without a user"),
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
