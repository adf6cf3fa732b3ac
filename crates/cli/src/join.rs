//! `node --join`: what a node says of itself that is in no cluster.toml.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use switchback_etcd::Registration;
use switchback_runtime::interface;

use crate::failure::Failure;

/// One `KEY=VALUE`.
#[derive(Clone, Debug)]
pub enum Join {
    Pool(String),
    Address(IpAddr),
    Weight(u32),
    Zone(String),
    Server(SocketAddr),
}

impl FromStr for Join {
    type Err = String;

    fn from_str(text: &str) -> Result<Join, String> {
        fn value<T: FromStr>(text: &str, example: &str) -> Result<T, String> {
            text.parse().map_err(|_| format!("{text:?}: allowed is such as {example}"))
        }
        match text.split_once('=') {
            Some(("pool", name)) => Ok(Join::Pool(name.to_owned())),
            Some(("address", address)) => Ok(Join::Address(value(address, "192.0.2.21")?)),
            Some(("weight", weight)) => Ok(Join::Weight(value(weight, "100")?)),
            Some(("zone", name)) => Ok(Join::Zone(name.to_owned())),
            Some(("server", server)) => Ok(Join::Server(value(server, "127.0.0.1:8080")?)),
            _ => Err("allowed are pool=NAME, address=IP, weight=N, zone=NAME and server=IP:PORT".to_owned()),
        }
    }
}

/// What a node says of itself; None if it joins nothing. Its address is one of the interface's unless it says another one.
pub fn registration(joins: Vec<Join>, interface: &str) -> Result<Option<Registration>, Failure> {
    if joins.is_empty() {
        return Ok(None);
    }
    let (mut pools, mut server) = (Vec::new(), Vec::new());
    let (mut address, mut weight, mut zone) = (None, None, None);
    for join in joins {
        match join {
            Join::Pool(name) => pools.push(name),
            Join::Address(said) => address = Some(said),
            Join::Weight(said) => weight = Some(said),
            Join::Zone(said) => zone = Some(said),
            Join::Server(said) => server.push(said),
        }
    }
    if pools.is_empty() {
        return Err(Failure::system("--join without a pool; name one with --join pool=NAME"));
    }
    let address = match address {
        Some(address) => address,
        None => own_address(interface)?,
    };
    Ok(Some(Registration { address, pools, weight, zone, server }))
}

/// The first IPv4 address of an interface, or the first one of IPv6 that is not link-local.
fn own_address(interface: &str) -> Result<IpAddr, Failure> {
    let all = interface::addresses(interface)?;
    let is_usable = |address: &&IpAddr| match address {
        IpAddr::V4(_) => true,
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    };
    let first = all.iter().filter(is_usable).min_by_key(|address| address.is_ipv6());
    first.copied().ok_or_else(|| {
        Failure::system(format!("{interface} has no address; name the node's with --join address=IP"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> Result<Option<Registration>, String> {
        let joins = texts.iter().map(|text| text.parse()).collect::<Result<Vec<Join>, _>>()?;
        registration(joins, "lo").map_err(|failure| failure.to_string())
    }

    #[test]
    fn a_node_says_what_it_is() {
        assert_eq!(read(&[]), Ok(None));
        let said = read(&[
            "pool=web",
            "pool=img",
            "address=192.0.2.21",
            "weight=7",
            "zone=a",
            "server=127.0.0.1:80",
            "server=[::1]:80",
        ]);
        let expected = Registration {
            address: [192, 0, 2, 21].into(),
            pools: vec!["web".to_owned(), "img".to_owned()],
            weight: Some(7),
            zone: Some("a".to_owned()),
            server: vec![([127, 0, 0, 1], 80).into(), "[::1]:80".parse().unwrap()],
        };
        assert_eq!(said, Ok(Some(expected)));
        assert!(read(&["weight=7"]).unwrap_err().contains("--join pool=NAME"));
        assert!(read(&["pool"]).unwrap_err().starts_with("allowed are pool=NAME"));
        assert!(read(&["address=n1"]).unwrap_err().contains("192.0.2.21"));
    }
}
