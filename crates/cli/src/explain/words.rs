//! Words that the forms of an explanation share.

use std::net::IpAddr;

use switchback_config::{Cluster, PolicyKind, Pool, Route, Service};
use switchback_switch::explain::{Connection, Greeting, Hello, Place, Refusal};

/// The condition under which an explained choice of a policy holds.
pub const AT_FIRST: &str =
    "if nothing but what is shown here came before; a running switch has its own state";
/// Bytes to which lines are cut.
const LINE_MAX: usize = 200;

/// Lines with a label in front.
pub struct Lines(pub String);

impl Lines {
    pub fn add(&mut self, name: &str, text: impl std::fmt::Display) {
        self.0 += &format!("  {name:<8}  {text}\n");
    }

    /// Adds a line of the client's data with a caret under a byte.
    pub fn add_place(&mut self, place: &Place) {
        let (shown, caret) = caret(place);
        self.add("", shown);
        self.add("", format!("{:>1$}", '^', caret + 1));
    }
    /// Adds how the path is read, and for each route whether it takes the request.
    pub fn add_routes(&mut self, read_as: &[String], routes: &[Option<String>], service: &Service) {
        if !read_as.is_empty() {
            self.add("path", format!("read as {}", read_as.join(" or ")));
        }
        for (index, (why_not, route)) in std::iter::zip(routes, &service.routes).enumerate() {
            let what = match why_not {
                Some(why_not) => format!("no: {why_not}"),
                None => format!("yes: it takes {}", route.in_words()),
            };
            self.add(&format!("route {}", index + 1), what);
        }
    }

    /// Adds whether the service lets the client in, and these limits of what it does.
    pub fn add_limits(
        &mut self,
        service: &Service,
        client: IpAddr,
        limits: impl IntoIterator<Item = String>,
    ) {
        if !service.admitted.admits(client) {
            let what = "its connections are not answered, and requests on open ones get 403";
            self.add("client", format!("{client} is not let in: {what}"));
        }
        limits.into_iter().for_each(|limit| self.add("limit", limit));
    }

    /// Adds the head that the server gets instead of the client's, if there is one.
    pub fn add_rewritten(&mut self, head: Option<&Vec<u8>>) {
        let lines = head.into_iter().flat_map(|head| head.split(|byte| *byte == b'\n'));
        let lines = lines.map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        for (index, line) in lines.filter(|line| !line.is_empty()).enumerate() {
            self.add(if index == 0 { "becomes" } else { "" }, printable_start(line));
        }
    }

    /// Adds the pool that gets a copy of the request that the last of these routes takes.
    pub fn add_mirror(&mut self, cluster: &Cluster, service: &Service, routes: &[Option<String>]) {
        if let Some(mirror) = taker(service, routes).and_then(|route| route.mirror) {
            let pool = &cluster.pools[mirror.pool].name;
            self.add(
                "mirror",
                format!("{pool} gets copies of {mirror} of such requests, if they come whole"),
            );
        }
    }

    /// Adds why and where the request is refused, and who learns the status.
    pub fn add_refusal(&mut self, refusal: &Refusal, client_gets: &str) {
        let (reject, status) = (refusal.reject, refusal.reject.status());
        self.add("refused", format!("{reject}: {client_gets} {status}, and the connection ends"));
        self.add("at byte", refusal.place.offset);
        self.add_place(&refusal.place);
    }
}

/// The limits of a request that the last of these routes takes.
pub fn limits(service: &Service, routes: &[Option<String>]) -> Vec<String> {
    let taker = taker(service, routes).into_iter();
    let of_route = taker.flat_map(|route| route.limit.shown("requests by this route"));
    service.limits.shown().chain(of_route).collect()
}

/// The route that takes a request.
pub fn taker<'a>(service: &'a Service, routes: &[Option<String>]) -> Option<&'a Route> {
    routes.iter().position(Option::is_none).map(|index| &service.routes[index])
}

/// A pool and its nodes.
pub fn in_pool(cluster: &Cluster, pool: &Pool) -> String {
    let nodes = pool.nodes.iter().map(|&index| &cluster.nodes[index]);
    let nodes: Vec<_> = nodes.map(|node| format!("{} (weight {})", node.name, node.weight)).collect();
    format!("{}: {}", pool.name, nodes.join(", "))
}

/// The pool's policy.
pub fn policy(pool: &Pool) -> String {
    let by =
        if pool.policy == PolicyKind::Hash { format!(", here the {}", pool.hash) } else { String::new() };
    format!("{}: {}{by}", pool.policy, pool.policy.in_words())
}

/// The first bytes as ASCII with escapes.
pub fn printable_start(bytes: &[u8]) -> String {
    let shown = bytes[..bytes.len().min(LINE_MAX)].escape_ascii().to_string();
    if bytes.len() > LINE_MAX { shown + "..." } else { shown }
}

/// The line in printable form, and the column of the byte in it.
pub fn caret(place: &Place) -> (String, usize) {
    let before = place.line[..place.column].escape_ascii().to_string();
    (place.line.escape_ascii().to_string(), before.len())
}

/// The protocols that the client offers, as ASCII with escapes.
pub fn offered(hello: &Hello) -> Vec<String> {
    hello.said.protocols.iter().map(|protocol| protocol.escape_ascii().to_string()).collect()
}

/// Name of the node that has the connection.
pub fn node_of<'a>(cluster: &'a Cluster, connection: &Connection) -> &'a str {
    match connection.hello.as_ref().map(|hello| &hello.outcome) {
        Some(Greeting::To { node, .. }) => &cluster.nodes[*node].name,
        _ => "no node",
    }
}
