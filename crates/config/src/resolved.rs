//! Nodes that come from names: each address of a name in `nodes_from` is a node of the pool.
//!
//! Who follows a document resolves its names and keeps the addresses beside the text ([`Document::addresses`]), so that all
//! of this is decided by the two alone. The nodes are made as if they stood in the file, where the name does. What a name
//! server says is not the operator's word: an address with which the file does not hold is left out, and never makes
//! the file invalid.
//!
//! [`Document::addresses`]: crate::Document::addresses

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;

use crate::error::Mistake;
use crate::fitting::take_fitting;
use crate::mistakes::Mistakes;
use crate::raw::{Spanned, Texts};
use crate::{Cluster, Document, MAX_NODES, NodesFrom, document, raw, syntax, validate};

/// The addresses of names. A name that has not been resolved is not in it.
pub type Addresses = BTreeMap<String, BTreeSet<IpAddr>>;

/// Most addresses of a name that become nodes.
const MAX_ADDRESSES: usize = 256;

/// An address that is to be a node of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// Index of the pool.
    pool: usize,
    address: IpAddr,
    /// Port of its servers; None: the VIP's.
    port: Option<u16>,
    /// Place of the name.
    at: Range<usize>,
}

impl Member {
    /// Name of a node that the file does not have. No two members with different addresses or ports have the same.
    fn name(&self) -> String {
        let address = self.address.to_string().replace(['.', ':'], "-");
        match self.port {
            None => format!("dns-{address}"),
            Some(port) => format!("dns-{address}-p{port}"),
        }
    }

    /// Where servers listen that listen on this port: at the address, and for VIPs of the other IP version at loopback.
    fn servers(&self, port: u16) -> [String; 2] {
        let other: IpAddr = match self.address {
            IpAddr::V4(_) => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv4Addr::LOCALHOST.into(),
        };
        [self.address, other].map(|address| SocketAddr::new(address, port).to_string())
    }

    fn spanned<T>(&self, value: T) -> Spanned<T> {
        Spanned::new(value, self.at.clone())
    }

    /// The `[[node]]` that stands for it, in no pool yet.
    fn node(&self) -> raw::Node {
        let server =
            self.port.map(|port| Texts::List(self.servers(port).map(|text| self.spanned(text)).into()));
        raw::Node {
            name: self.spanned(self.name()),
            address: self.spanned(self.address.to_string()),
            pools: Vec::new(),
            weight: None,
            zone: None,
            drain: false,
            hidden: false,
            tunnel: None,
            server: server.map(|server| self.spanned(server)),
            adoption: None,
            plain_tcp: false,
        }
    }

    /// Says that it is left out, and why.
    pub(crate) fn left_out(&self, why: &str) -> Mistake {
        Mistake { at: self.at.start, what: format!("{} is left out: {why}", self.address) }
    }
}

/// A file that holds, with the nodes of its names.
pub(crate) struct Validated {
    pub(crate) file: raw::File,
    pub(crate) cluster: Cluster,
    pub(crate) warnings: Vec<Mistake>,
}

impl Document {
    /// Checks the text, and then the addresses of its names.
    pub(crate) fn validated(&self) -> Result<Validated, Vec<Mistake>> {
        let (file, mistakes) = self.raw()?;
        let (members, mut left_out) = file.members(&self.addresses);
        let mut validated = validate(file, mistakes, self)?;
        if !members.is_empty() {
            let fitting = take_fitting(validated, &members, |members| self.with(members));
            validated = fitting.value;
            let whys = fitting.left_out.iter();
            left_out.extend(whys.filter_map(|(member, why)| Some(member.left_out(&why.first()?.what))));
        }
        validated.warnings.extend(left_out);
        Ok(validated)
    }

    /// Checks the text with these nodes.
    fn with(&self, members: &[Member]) -> Result<Validated, Vec<Mistake>> {
        let (mut file, mistakes) = self.raw()?;
        file.add(members);
        validate(file, mistakes, self)
    }

    fn raw(&self) -> Result<(raw::File, Mistakes), Vec<Mistake>> {
        document::read_all(&self.text).map_err(|mistake| vec![mistake])
    }
}

fn validate(file: raw::File, mistakes: Mistakes, document: &Document) -> Result<Validated, Vec<Mistake>> {
    let (cluster, warnings) = validate::check(&file, mistakes, &document.directory)?;
    Ok(Validated { file, cluster, warnings })
}

impl raw::File {
    /// The addresses of the pools' names that can be nodes, and what there is to say of the others.
    pub(crate) fn members(&self, addresses: &Addresses) -> (Vec<Member>, Vec<Mistake>) {
        let (mut members, mut warnings) = (Vec::new(), Vec::new());
        let vips = self.service.iter().flat_map(|service| service.listen.get_ref());
        let vips: Vec<IpAddr> =
            vips.filter_map(|vip| Some(vip.get_ref().parse::<SocketAddr>().ok()?.ip())).collect();
        let of_file: BTreeSet<IpAddr> = self.addresses().into_iter().flatten().collect();
        let room = MAX_NODES.saturating_sub(self.node.len());
        let mut new = HashSet::new();
        for (pool, file) in self.pool.iter().enumerate() {
            let Some(text) = &file.nodes_from else { continue };
            let Ok(NodesFrom { host, port }) = syntax::nodes_from(text.get_ref()) else { continue };
            let Some(found) = addresses.get(&host) else { continue };
            let mut warn = |what| warnings.push(Mistake { at: text.span().start, what });
            if found.is_empty() {
                warn(format!("no address of {host} is known"));
            }
            let more = found.len().saturating_sub(MAX_ADDRESSES);
            if more > 0 {
                warn(format!("{more} addresses of {host} are left out, allowed are at most {MAX_ADDRESSES}"));
            }
            for address in found.iter().take(MAX_ADDRESSES).copied() {
                let member = Member { pool, address, port, at: text.span() };
                match syntax::node_address(&address.to_string()) {
                    Err(what) => warnings.push(member.left_out(&what)),
                    Ok(_) if vips.contains(&address) => warnings.push(member.left_out("it is a VIP")),
                    Ok(_) if of_file.contains(&address) => members.push(member),
                    Ok(_) if new.len() >= room && !new.contains(&(address, port)) => {
                        warnings.push(member.left_out(&format!("there are {MAX_NODES} nodes already")));
                    }
                    Ok(_) => {
                        new.insert((address, port));
                        members.push(member);
                    }
                }
            }
        }
        (members, warnings)
    }

    /// The address of each node; None for one that is none.
    fn addresses(&self) -> Vec<Option<IpAddr>> {
        self.node.iter().map(|node| node.address.get_ref().parse().ok()).collect()
    }

    /// Puts addresses into their pools: the nodes of the file with such an address, or else one of its own.
    pub(crate) fn add(&mut self, members: &[Member]) {
        let mut of_file: HashMap<IpAddr, Vec<usize>> = HashMap::new();
        for (index, address) in self.addresses().into_iter().enumerate() {
            address.into_iter().for_each(|address| of_file.entry(address).or_default().push(index));
        }
        let mut added: HashMap<_, usize> = HashMap::new();
        for member in members {
            let indices = of_file.get(&member.address).map(Vec::as_slice).unwrap_or_else(|| {
                let index = added.entry((member.address, member.port)).or_insert_with(|| {
                    self.node.push(member.node());
                    self.node.len() - 1
                });
                std::slice::from_ref(index)
            });
            let pool = &self.pool[member.pool];
            for index in indices {
                let node = &mut self.node[*index];
                if !pool.names(node) {
                    node.pools.push(member.spanned(pool.name.get_ref().clone()));
                }
            }
        }
    }
}

impl raw::Pool {
    /// Whether a node is in the pool by its own word or the pool's.
    fn names(&self, node: &raw::Node) -> bool {
        let is = |one: &Spanned<String>, other: &Spanned<String>| one.get_ref() == other.get_ref();
        let listed = self.nodes.iter().flat_map(Spanned::get_ref).any(|listed| is(listed, &node.name));
        listed || node.pools.iter().any(|pool| is(pool, &self.name))
    }
}
