//! The admin address of the daemons: metrics, health, and the page.

use std::net::{Ipv4Addr, SocketAddr};

/// Shown without `[admin]`. No address has parentheses.
const NOWHERE: &str = "(nowhere)";

/// `[admin]`. Without it nothing listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Address at which each daemon listens, on whatever machine it runs; by default a loopback address.
    pub listen: SocketAddr,
    /// Host names that requests may have besides addresses and `localhost`, in lower case.
    pub hosts: Vec<String>,
}

impl Default for Admin {
    fn default() -> Self {
        Admin { listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 9180)), hosts: Vec::new() }
    }
}

impl Admin {
    /// Each key in words.
    pub(crate) fn in_words(admin: Option<&Admin>) -> [(&'static str, String); 2] {
        let listen = admin.map_or(NOWHERE.to_owned(), |admin| admin.listen.to_string());
        let hosts = admin.map_or(String::new(), |admin| admin.hosts.join(", "));
        [("listen", listen), ("hosts", format!("[{hosts}]"))]
    }
}
