//! A service with its routes.

use std::net::SocketAddr;

use crate::{Admitted, Route, Scheme, ServiceLimits, TlsMode};

/// The most listen addresses that all services can have together.
pub const MAX_LISTEN: usize = 256;

/// A service, to which clients connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// As for [`Node::name`](crate::Node::name).
    pub name: String,
    /// The VIPs; at least one.
    pub listen: Vec<SocketAddr>,
    /// Whether clients speak TLS to it, and who ends it. Switches cannot read the requests of a service with TLS, so no
    /// pool of its routes needs them to: each has [`Balance::Connection`](crate::Balance::Connection), and neither a `delegate` nor sessions or a
    /// hash by anything but the client. With [`TlsMode::Passthrough`] nobody of the cluster can: routes have no conditions
    /// but on hosts, clients and [`Route::alpn`], and lead to pools, without [`Resume`](crate::Resume) or checks by HTTP.
    pub tls: TlsMode,
    /// The clients that it lets in.
    pub admitted: Admitted,
    /// Limits of its connections and requests. Of a service with TLS the node that has a connection counts the requests on
    /// it; with [`TlsMode::Passthrough`] there is no limit of requests.
    pub limits: ServiceLimits,
    /// The first route that matches a request takes it; at least one. A request that none matches is
    /// answered 404.
    pub routes: Vec<Route>,
}

impl Service {
    /// The pools whose nodes listen at its VIPs, some of them more than once. Copies of what agents decrypt go to where their
    /// servers listen.
    pub fn pools(&self) -> impl Iterator<Item = usize> + use<'_> {
        let mirrors = self.routes.iter().filter_map(|route| route.mirror).map(|mirror| mirror.pool);
        let mirrors = mirrors.filter(|_| self.tls == TlsMode::Off);
        self.routes.iter().flat_map(|route| route.action.pools()).chain(mirrors)
    }

    /// Whether a node of the pool may answer its requests.
    pub fn is_answered_by(&self, pool: usize) -> bool {
        self.routes.iter().any(|route| route.action.pools().any(|other| other == pool))
    }

    /// The scheme of its URLs.
    pub fn scheme(&self) -> Scheme {
        match self.tls {
            TlsMode::Off => Scheme::Http,
            TlsMode::Terminate(_) | TlsMode::Passthrough => Scheme::Https,
        }
    }
}
