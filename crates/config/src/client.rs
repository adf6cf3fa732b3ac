//! `client.toml`: the configuration of the shim on a client's machine, and the file with the keys of its
//! addresses.
//!
//! A client is not part of the cluster and has no cluster key. Its key is derived from that and its address, by
//! `switchback keygen --client`, so it is valid for that address alone.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use switchback_wire::{address_bytes, keys, sb_key};

use crate::error::{self, Error, Mistake};
use crate::key::{ClusterKey, MAX_KEYS, hex, read_private};
use crate::mistakes::Mistakes;
use crate::raw::Spanned;
use crate::{MAX_LISTEN, document, shape, syntax};

/// Allowed values of `thin_acks`.
pub const THIN_ACKS: RangeInclusive<u32> = 2..=64;
/// The most addresses that a client can have keys for.
pub const MAX_CLIENT_ADDRESSES: usize = 64;

/// A valid `client.toml` with its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    /// For each of the client's addresses, as the cluster sees them, one key, or two while the cluster key
    /// rotates. The first one signs, every one is accepted.
    pub keys: BTreeMap<IpAddr, Vec<ClientKey>>,
    /// The VIPs whose nodes are trusted; at least one, none twice.
    pub services: Vec<SocketAddr>,
    /// The most successive acknowledgments that are left out, in [`THIN_ACKS`].
    pub thin_acks: Option<u32>,
    /// Whether a firewall between client and services tracks connections, so that it has to see enough of them.
    pub firewall: bool,
}

/// The secret by which a client at one address and the nodes of one cluster authenticate each other.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientKey([u8; 16]);

impl ClientKey {
    /// The key of the client at this address, derived from the cluster key.
    pub fn of(cluster: &ClusterKey, address: IpAddr) -> ClientKey {
        let key = keys::client_key(&keys::client_master_key(cluster.as_bytes()), address_bytes(address));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.k0.to_le_bytes());
        bytes[8..].copy_from_slice(&key.k1.to_le_bytes());
        ClientKey(bytes)
    }

    /// The form of the key in BPF programs.
    pub fn to_wire(self) -> sb_key {
        let half = |at: usize| u64::from_le_bytes(self.0[at..at + 8].try_into().expect("8 of 16 bytes"));
        sb_key { k0: half(0), k1: half(8) }
    }
}

/// Hides the key from logs.
impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientKey(..)")
    }
}

/// What the shim on a client's machine needs to know.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "client.toml")]
pub(crate) struct File {
    /// Path of the file with the client's keys; a relative one begins at the directory of `client.toml`.
    key_file: Spanned<String>,
    /// The VIPs whose nodes are believed.
    #[schemars(transform = shape::allowed(format!(
        "addresses with a port, at least one, each once; at most {MAX_LISTEN}"
    )))]
    services: Spanned<Vec<Spanned<String>>>,
    /// How many acknowledgments in a row may be left out.
    #[schemars(transform = shape::number(THIN_ACKS), transform = shape::absent("none"))]
    thin_acks: Option<Spanned<i64>>,
    /// Whether a firewall between here and the services follows connections.
    #[serde(default)]
    firewall: bool,
}

impl Client {
    /// Reads and checks the file at `path` and the key file that it names.
    pub fn load(path: &Path) -> Result<Client, Error> {
        Client::read(&error::read_text(path)?, path)
    }

    /// As [`load`](Client::load); `text` is the content of `file`.
    pub fn read(text: &str, file: &Path) -> Result<Client, Error> {
        Client::parse(text, file, read_keys)
    }

    /// Checks `text` as the content of `file`, without touching the disk; `keys` is asked for the content of
    /// the key file once all else is valid.
    pub fn parse(
        text: &str,
        file: &Path,
        keys: impl FnOnce(&Path) -> Result<BTreeMap<IpAddr, Vec<ClientKey>>, Error>,
    ) -> Result<Client, Error> {
        let invalid = |mistakes| error::invalid(text, file, mistakes);
        let (raw, mistakes) = document::read_all::<File>(text).map_err(|mistake| invalid(vec![mistake]))?;
        let (services, thin_acks) = check(&raw, mistakes).map_err(invalid)?;
        let keys = keys(&file.parent().unwrap_or(Path::new("")).join(raw.key_file.get_ref()))?;
        Ok(Client { keys, services, thin_acks, firewall: raw.firewall })
    }
}

impl Client {
    /// The [`resemblance`](crate::resemblance) of `text` to a `client.toml`.
    pub fn resemblance(text: &str) -> usize {
        document::resemblance::<File>(text)
    }

    /// One line that says what the file consists of: `keys of 1 address, 2 services`.
    pub fn summary(&self) -> String {
        let addresses = if self.keys.len() == 1 { "address" } else { "addresses" };
        let services = if self.services.len() == 1 { "service" } else { "services" };
        format!("keys of {} {addresses}, {} {services}", self.keys.len(), self.services.len())
    }

    /// The differences of `new`, a line for each change; empty if there are none.
    pub fn diff(&self, new: &Client) -> Vec<String> {
        let keys = (self.keys != new.keys).then(|| "keys changed".to_owned());
        let words = self.in_words().into_iter().zip(new.in_words());
        let others = words.filter(|(old, new)| old != new);
        let others = others.map(|((key, old), (_, new))| format!("{key} {old} -> {new}"));
        keys.into_iter().chain(others).collect()
    }

    /// Each key of the file but `key_file` in words.
    fn in_words(&self) -> [(&'static str, String); 3] {
        let services: Vec<String> = self.services.iter().map(ToString::to_string).collect();
        [
            ("services", services.join(", ")),
            ("thin_acks", self.thin_acks.map_or("(none)".to_owned(), |count| count.to_string())),
            ("firewall", self.firewall.to_string()),
        ]
    }
}

fn check(file: &File, mut mistakes: Mistakes) -> Result<(Vec<SocketAddr>, Option<u32>), Vec<Mistake>> {
    mistakes.path("key_file", &file.key_file, "client.key");
    if file.services.get_ref().is_empty() {
        mistakes.at(&file.services, "no service, at least one address with a port is needed");
    }
    let mut services = Vec::new();
    for text in file.services.get_ref() {
        let Some(address) = mistakes.take(text, syntax::listen_address(text.get_ref())) else { continue };
        if services.contains(&address) {
            mistakes.at(text, format!("{address} is listed already, allowed is each address once"));
        } else if services.len() == MAX_LISTEN {
            mistakes.at(text, format!("too many services, allowed are at most {MAX_LISTEN}"));
        }
        services.push(address);
    }
    let thin_acks = file.thin_acks.as_ref().and_then(|n| mistakes.number("thin_acks", n, THIN_ACKS));
    mistakes.into_result((services, thin_acks))
}

/// The text of a key file for these addresses of one client; `cluster` are the cluster's keys.
pub fn client_key_file_text(cluster: &[ClusterKey], addresses: &[IpAddr]) -> String {
    let mut text = "# Keys of a Switchback client, for each of its addresses; keep them secret.\n".to_owned();
    for address in addresses {
        for key in cluster {
            let line = writeln!(text, "{address} {}", hex(&ClientKey::of(key, *address).0));
            line.expect("writing to a string does not fail");
        }
    }
    text
}

fn read_keys(path: &Path) -> Result<BTreeMap<IpAddr, Vec<ClientKey>>, Error> {
    let remedy = format!(
        "make it where the cluster key is: switchback keygen --client ADDRESS --config cluster.toml {}",
        path.display()
    );
    parse_keys(&read_private(path, remedy)?, path)
}

/// The keys in `text`, which is the content of `file`. No message repeats any of a key.
fn parse_keys(text: &str, file: &Path) -> Result<BTreeMap<IpAddr, Vec<ClientKey>>, Error> {
    let mut keys: BTreeMap<IpAddr, Vec<ClientKey>> = BTreeMap::new();
    let mut mistakes = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let content = line.split('#').next().unwrap_or_default();
        let at = line_start + (content.len() - content.trim_start().len());
        line_start += line.len();
        if content.trim().is_empty() {
            continue;
        }
        if let Err(what) = add_key(&mut keys, content) {
            mistakes.push(Mistake { at, what });
        }
    }
    if keys.is_empty() && mistakes.is_empty() {
        let what = "no key, a line with an address and 32 hexadecimal digits is needed".to_owned();
        mistakes.push(Mistake { at: 0, what });
    }
    if mistakes.is_empty() { Ok(keys) } else { Err(error::invalid(text, file, mistakes)) }
}

fn add_key(keys: &mut BTreeMap<IpAddr, Vec<ClientKey>>, line: &str) -> Result<(), String> {
    let (address, key) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
    let address = address
        .parse::<IpAddr>()
        .map_err(|_| "not an address, a line is an address and 32 hexadecimal digits".to_owned())?;
    let key = decode_key(key.trim_start())
        .ok_or_else(|| format!("not a key of {address}, a key is 32 hexadecimal digits"))?;
    if !keys.contains_key(&address) && keys.len() == MAX_CLIENT_ADDRESSES {
        return Err(format!("one address too many, allowed are at most {MAX_CLIENT_ADDRESSES}"));
    }
    let of_address = keys.entry(address).or_default();
    if of_address.contains(&key) {
        return Err(format!("the same key of {address} again, two keys must differ"));
    }
    if of_address.len() == MAX_KEYS {
        return Err(format!(
            "one key of {address} too many, allowed are one key, or two while the cluster's is replaced"
        ));
    }
    of_address.push(key);
    Ok(())
}

fn decode_key(digits: &str) -> Option<ClientKey> {
    if digits.len() != 32 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok().map(|key| ClientKey(key.to_be_bytes()))
}
