//! Where the daemons tell how they are doing: metrics, health, and the page.

use std::net::{Ipv4Addr, SocketAddr};

/// What is said where there is no `[admin]`. No address has parentheses.
const NOWHERE: &str = "(nowhere)";

/// `[admin]`. Without it nothing listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// Where each daemon listens, on whatever machine it runs: a loopback address, if the file does not say
    /// another one.
    pub listen: SocketAddr,
    /// Names by which it may be asked for beside addresses and `localhost`, in lower case.
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
