//! Compiles routes to an automaton that the XDP program runs, so that plain requests need no user space.
//!
//! Most requests look alike to a parser: GET or HEAD, a path, `Host`, fields without effect on framing. Their heads are
//! a regular language, and so are a route's conditions on method, path and host. The automaton accepts such heads and
//! determines the matching routes. Everything else goes to the L7 thread and its strict parser, so the automaton may
//! accept too little, but must never accept what the parser refuses or routes elsewhere. A property test compares the
//! two.
//!
//! Paths that are not [plain](switchback_http::path::is_plain) need normalization first and are left to the L7 thread.
//!
//! The automaton collects two *classes*: at the end of the target, the set of routes that method and path allow; at the
//! end of the host, the set that the host allows. A table gives the pool for each pair.
//!
//! It also tells which requests are their client's last: those of HTTP/1.0, and those with `Connection: close`. A head
//! that is one of them and has `Connection: keep-alive`, too, is left to the L7 thread. Whoever runs the automaton
//! remembers both, because states that did would multiply those of hosts and field names by three.

use std::collections::{BTreeMap, HashMap};

use switchback_config::{Action, Conditions, HostMatch, PathMatch, Route};
use switchback_http::path::is_plain;
use switchback_wire::{
    SB_EXPRESS_ACCEPT, SB_EXPRESS_COLUMNS, SB_EXPRESS_END_OF_HOST, SB_EXPRESS_END_OF_TARGET,
    SB_EXPRESS_EVENT, SB_EXPRESS_KEEP_ALIVE, SB_EXPRESS_LAST, SB_EXPRESS_NO_POOL, SB_EXPRESS_STATE,
};

/// Columns of the transition table: the ASCII characters.
pub const COLUMNS: usize = SB_EXPRESS_COLUMNS as usize;
/// State that accepts nothing.
pub const DEAD: u16 = 0;
/// Mask of the state in a transition.
pub const STATE: u16 = SB_EXPRESS_STATE as u16;
/// Mask of the event in a transition: one of the following, or 0.
pub const EVENT: u16 = SB_EXPRESS_EVENT as u16;
/// The target ends before this byte.
pub const END_OF_TARGET: u16 = SB_EXPRESS_END_OF_TARGET as u16;
/// The host ends before this byte.
pub const END_OF_HOST: u16 = SB_EXPRESS_END_OF_HOST as u16;
/// The client asks to keep the connection open (`Connection: keep-alive`).
pub const KEEP_ALIVE: u16 = SB_EXPRESS_KEEP_ALIVE as u16;
/// The client announces its last request (`HTTP/1.0`, `Connection: close`).
pub const LAST: u16 = SB_EXPRESS_LAST as u16;
/// This byte ends the head, and the packet must end, too.
pub const ACCEPT: u16 = SB_EXPRESS_ACCEPT as u16;
/// Verdict that leaves the request to the L7 thread.
pub const NO_POOL: u16 = SB_EXPRESS_NO_POOL as u16;

/// Automaton of a service. States are numbered from 1; a program with several automata adds an offset.
#[derive(Clone, Debug)]
pub struct Automaton {
    /// Next state and event, by state and byte.
    pub transitions: Vec<[u16; COLUMNS]>,
    /// The class that ends in a state.
    pub classes: Vec<u16>,
    /// State at the first byte of a head.
    pub start: u16,
    /// Pools, by path class and host class.
    pub verdicts: Vec<u16>,
    /// Number of host classes: the columns of `verdicts`.
    pub hosts: u16,
}

/// Result of running the automaton over a packet's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The data is one plain head.
    Pool {
        /// Index of the pool that its route names.
        pool: u16,
        /// The client announces no further request.
        last: bool,
    },
    /// The data is one plain head, but its route needs the L7 thread.
    Route,
    /// The data is not a plain head; the byte at this index shows it, or is missing.
    Stopped(usize),
}

/// A set of routes, by index.
type Routes = Vec<bool>;

struct Builder<'a> {
    routes: &'a [Route],
    transitions: Vec<[u16; COLUMNS]>,
    classes: Vec<u16>,
    path_classes: Vec<Routes>,
    host_classes: Vec<Routes>,
}

/// State of the host parser, in lower case.
#[derive(Clone, PartialEq, Eq, Hash)]
struct HostState {
    /// The whole host so far, while it is a prefix of a host in a route.
    exact: Option<String>,
    /// The longest suffix of the host so far that is a prefix of a suffix in a route.
    tail: String,
    after_dot: bool,
}

/// Fields that affect framing and are left to the parser. Of `Connection`, the automaton accepts only the values
/// `keep-alive` and `close`.
const FRAMING: [&str; 5] = ["content-length", "transfer-encoding", "expect", "upgrade", "trailer"];

impl Automaton {
    /// None if the routes need more than `capacity` states.
    pub fn compile(routes: &[Route], capacity: usize) -> Option<Automaton> {
        let mut builder = Builder {
            routes,
            transitions: vec![[DEAD; COLUMNS]],
            classes: vec![0],
            path_classes: Vec::new(),
            host_classes: Vec::new(),
        };
        let fields = builder.fields();
        let version = builder.version(fields);
        let start = builder.state();
        for method in ["GET", "HEAD"] {
            let path = builder.path(method, version);
            let rest = builder.literal(&format!("{} ", &method[1..]), path);
            builder.go(start, method.as_bytes()[0], rest);
        }
        if builder.transitions.len() > capacity.min(usize::from(STATE)) {
            return None;
        }
        let verdicts = builder.verdicts();
        let hosts = builder.host_classes.len() as u16;
        Some(Automaton { transitions: builder.transitions, classes: builder.classes, start, verdicts, hosts })
    }

    /// Runs the automaton as `express_step()` in `bpf/express.h` does.
    pub fn walk(&self, data: &[u8]) -> Walked {
        let (mut next, mut path, mut host, mut persistence) = (self.start, 0, 0, 0);
        for (at, &byte) in data.iter().enumerate() {
            let state = usize::from(next & STATE);
            next = self.transitions[state].get(usize::from(byte)).copied().unwrap_or(DEAD);
            if next == DEAD {
                return Walked::Stopped(at);
            }
            match next & EVENT {
                END_OF_TARGET => path = self.classes[state],
                END_OF_HOST => host = self.classes[state],
                event @ (KEEP_ALIVE | LAST) => persistence |= event,
                _ => {}
            }
            if persistence == KEEP_ALIVE | LAST {
                return Walked::Stopped(at);
            }
        }
        if next & EVENT != ACCEPT {
            return Walked::Stopped(data.len());
        }
        match self.verdicts[usize::from(path * self.hosts + host)] {
            NO_POOL => Walked::Route,
            pool => Walked::Pool { pool, last: persistence == LAST },
        }
    }
}

impl Builder<'_> {
    fn state(&mut self) -> u16 {
        self.transitions.push([DEAD; COLUMNS]);
        self.classes.push(0);
        // Beyond the capacity the automaton is discarded; the number only must not collide with the events.
        (self.transitions.len() - 1).min(usize::from(STATE)) as u16
    }

    fn go(&mut self, from: u16, byte: u8, to: u16) {
        self.transitions[usize::from(from)][usize::from(byte)] = to;
    }

    /// A transition for a letter in either case.
    fn go_letter(&mut self, from: u16, byte: u8, to: u16) {
        self.go(from, byte.to_ascii_lowercase(), to);
        self.go(from, byte.to_ascii_uppercase(), to);
    }

    /// Adds states that accept exactly `text` and lead to `to`; returns the first.
    fn literal(&mut self, text: &str, to: u16) -> u16 {
        text.bytes().rev().fold(to, |to, byte| {
            let from = self.state();
            self.go(from, byte, to);
            from
        })
    }

    fn class(classes: &mut Vec<Routes>, routes: Routes) -> u16 {
        let known = classes.iter().position(|class| *class == routes);
        known.unwrap_or_else(|| {
            classes.push(routes);
            classes.len() - 1
        }) as u16
    }

    /// The version and the end of the request line; leads to `fields`.
    fn version(&mut self, fields: u16) -> u16 {
        let line_end = self.literal("\r\n", fields);
        let minor = self.state();
        self.go(minor, b'1', line_end);
        self.go(minor, b'0', line_end | LAST);
        self.literal("HTTP/1.", minor)
    }

    /// The target of a request with this method, including the space after it; leads to `version`.
    fn path(&mut self, method: &str, version: u16) -> u16 {
        let takes_method = |route: &Route| {
            let methods = &route.conditions.methods;
            methods.is_empty() || methods.iter().any(|m| m == method)
        };
        // The path prefixes as a trie: text so far and its state.
        let mut trie: BTreeMap<String, u16> = BTreeMap::new();
        trie.insert("/".to_string(), 0);
        let paths = self.routes.iter().filter(|route| takes_method(route));
        for prefix in paths.filter_map(|route| Some(route.conditions.path.as_ref()?.prefix())) {
            let texts = (1..=prefix.len()).filter_map(|end| prefix.get(..end));
            trie.extend(texts.filter(|text| is_plain(text)).map(|text| (text.to_string(), 0)));
        }
        for state in trie.values_mut() {
            *state = self.state();
        }
        // Outside the trie and in the query only the class matters, and that no slash precedes a slash or a dot.
        let mut off: HashMap<u16, [u16; 2]> = HashMap::new();
        let mut queries: HashMap<u16, u16> = HashMap::new();
        for (text, state) in &trie {
            let allowed = |is_whole: bool| {
                let takes = |route: &Route| {
                    takes_method(route)
                        && match &route.conditions.path {
                            Some(PathMatch::Exact(path)) => is_whole && text == path,
                            path => path.as_ref().is_none_or(|path| text.starts_with(path.prefix())),
                        }
                };
                self.routes.iter().map(takes).collect::<Routes>()
            };
            // Of the text itself, and of longer ones.
            let [whole, longer] =
                [true, false].map(|is_whole| Self::class(&mut self.path_classes, allowed(is_whole)));
            let [loose, slash] = *off.entry(longer).or_insert_with(|| [self.state(), self.state()]);
            let [query, longer_query] =
                [whole, longer].map(|class| *queries.entry(class).or_insert_with(|| self.state()));
            for from in [*state, loose, slash, query, longer_query] {
                let is_whole = from == *state || from == query;
                let (class, query) = if is_whole { (whole, query) } else { (longer, longer_query) };
                let after_slash = from == slash || from == *state && text.ends_with('/');
                let not_plain = if after_slash { b"%;/.".as_slice() } else { b"%;" };
                self.classes[usize::from(from)] = class;
                self.go(from, b' ', version | END_OF_TARGET);
                for byte in (0x21..0x7f).filter(|byte| !b"\"#<>\\?".contains(byte)) {
                    let to = match byte {
                        _ if from == query => query,
                        _ if not_plain.contains(&byte) => DEAD,
                        b'/' => slash,
                        _ => loose,
                    };
                    self.go(from, byte, to);
                }
                self.go(from, b'?', query);
            }
            for (longer, child) in trie.range(text.clone()..).skip(1) {
                if longer.len() == text.len() + 1 && longer.starts_with(text.as_str()) {
                    self.go(*state, longer.as_bytes()[text.len()], *child);
                }
            }
        }
        let first = self.state();
        self.go(first, b'/', trie["/"]);
        first
    }

    /// All fields with exactly one `Host`, from the end of the first line to the end of the head.
    fn fields(&mut self) -> u16 {
        let after_host = self.state();
        let before_host = self.state();
        let end = self.state();
        self.go(after_host, b'\r', end);
        self.go(end, b'\n', ACCEPT);
        let host = self.host(after_host);
        self.names(after_host, None);
        self.names(before_host, Some(host));
        before_host
    }

    /// Fields from the start of a line. `Host` leads to `host`, or is not accepted.
    fn names(&mut self, line: u16, host: Option<u16>) {
        let line_feed = self.literal("\n", line);
        let value = self.state();
        for byte in 0x20..0x7f {
            self.go(value, byte, value);
        }
        self.go(value, b'\r', line_feed);
        let first_of_value = self.state();
        for byte in 0x20..0x7f {
            self.go(first_of_value, byte, value);
        }
        let connection = self.connection(line_feed);
        // Names have two characters at least, so that the length of a head bounds the number of its fields.
        let name = self.state();
        for byte in name_bytes() {
            self.go(name, byte, name);
        }
        self.go(name, b':', first_of_value);
        let mut words: BTreeMap<String, u16> = BTreeMap::new();
        for word in FRAMING.into_iter().chain(["host", "connection"]) {
            for end in 1..=word.len() {
                words.insert(word[..end].to_string(), 0);
            }
        }
        for byte in name_bytes() {
            words.entry(char::from(byte.to_ascii_lowercase()).to_string()).or_insert(0);
        }
        for state in words.values_mut() {
            *state = self.state();
        }
        for (word, state) in &words {
            for byte in name_bytes() {
                self.go(*state, byte, name);
            }
            for (longer, child) in words.range(word.clone()..).skip(1) {
                if longer.len() == word.len() + 1 && longer.starts_with(word.as_str()) {
                    self.go_letter(*state, longer.as_bytes()[word.len()], *child);
                }
            }
            let colon = match word.as_str() {
                "host" => host.unwrap_or(DEAD),
                "connection" => connection,
                word if word.len() == 1 || FRAMING.contains(&word) => DEAD,
                _ => first_of_value,
            };
            self.go(*state, b':', colon);
            if word.len() == 1 {
                self.go_letter(line, word.as_bytes()[0], *state);
            }
        }
    }

    /// The value of `Connection`, from the colon on: one option, in any case, after at most one space.
    fn connection(&mut self, line_feed: u16) -> u16 {
        let first = self.state();
        for (option, event) in [("keep-alive", KEEP_ALIVE), ("close", LAST)] {
            let mut to = self.state();
            self.go(to, b'\r', line_feed | event);
            for byte in option[1..].bytes().rev() {
                let from = self.state();
                self.go_letter(from, byte, to);
                to = from;
            }
            self.go_letter(first, option.as_bytes()[0], to);
        }
        let start = self.state();
        self.transitions[usize::from(start)] = self.transitions[usize::from(first)];
        self.go(start, b' ', first);
        start
    }

    /// The value of `Host`, from the colon on; leads to the next line.
    fn host(&mut self, next_line: u16) -> u16 {
        let line_feed = self.literal("\n", next_line);
        let mut states: HashMap<HostState, u16> = HashMap::new();
        let mut ports: HashMap<u16, u16> = HashMap::new();
        let nothing = HostState { exact: Some(String::new()), tail: String::new(), after_dot: true };
        let first = self.state();
        states.insert(nothing.clone(), first);
        let mut open = vec![nothing];
        while let Some(at) = open.pop() {
            let from = states[&at];
            if !at.after_dot {
                let class = self.host_class(&at);
                self.classes[usize::from(from)] = class;
                self.go(from, b'\r', line_feed | END_OF_HOST);
                let port = *ports.entry(class).or_insert_with(|| self.port(class, line_feed));
                self.go(from, b':', port);
            }
            for byte in (0..128u8)
                .filter(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte))
            {
                if byte == b'.' && at.after_dot {
                    continue;
                }
                let next = self.host_step(&at, char::from(byte));
                let to = match states.get(&next) {
                    Some(to) => *to,
                    None => {
                        let to = self.state();
                        states.insert(next.clone(), to);
                        open.push(next);
                        to
                    }
                };
                self.go_letter(from, byte, to);
            }
        }
        let start = self.state();
        self.transitions[usize::from(start)] = self.transitions[usize::from(first)];
        self.go(start, b' ', first);
        start
    }

    fn host_step(&self, at: &HostState, next: char) -> HostState {
        let exact = at.exact.as_ref().map(|text| format!("{text}{next}"));
        let exact = exact.filter(|text| {
            self.hosts().any(|host| matches!(host, HostMatch::Exact(name) if name.starts_with(text.as_str())))
        });
        let mut tail = format!("{}{next}", at.tail);
        while !tail.is_empty()
            && !self
                .hosts()
                .any(|host| matches!(host, HostMatch::Suffix(end) if end.starts_with(tail.as_str())))
        {
            tail.remove(0);
        }
        HostState { exact, tail, after_dot: next == '.' }
    }

    fn hosts(&self) -> impl Iterator<Item = &HostMatch> {
        self.routes.iter().flat_map(|route| &route.conditions.hosts)
    }

    fn host_class(&mut self, at: &HostState) -> u16 {
        let is_taken = |host: &HostMatch| match host {
            HostMatch::Exact(name) => at.exact.as_ref() == Some(name),
            // A longer tail contains every shorter suffix.
            HostMatch::Suffix(end) => at.tail.ends_with(end.as_str()),
        };
        let hosts = self.routes.iter().map(|route| &route.conditions.hosts);
        let allowed = hosts.map(|hosts| hosts.is_empty() || hosts.iter().any(is_taken)).collect();
        Self::class(&mut self.host_classes, allowed)
    }

    /// A port of one to four digits, from the colon on.
    fn port(&mut self, class: u16, line_feed: u16) -> u16 {
        let mut next = None;
        for _ in 0..4 {
            let digit = self.state();
            self.classes[usize::from(digit)] = class;
            self.go(digit, b'\r', line_feed | END_OF_HOST);
            for byte in b'0'..=b'9' {
                self.go(digit, byte, next.unwrap_or(DEAD));
            }
            next = Some(digit);
        }
        let start = self.state();
        for byte in b'1'..=b'9' {
            self.go(start, byte, next.unwrap_or(DEAD));
        }
        start
    }

    /// The first route that both classes allow. It is left to the L7 thread if it has other conditions, changes requests, or is a
    /// redirect.
    fn verdicts(&self) -> Vec<u16> {
        let pairs =
            self.path_classes.iter().flat_map(|path| self.host_classes.iter().map(move |host| (path, host)));
        pairs
            .map(|(path, host)| {
                let first = (0..self.routes.len()).find(|&index| path[index] && host[index]);
                match first.map(|index| &self.routes[index]) {
                    Some(route @ Route { action: Action::Pool(pool), .. }) if is_decided(route) => {
                        u16::try_from(*pool).unwrap_or(NO_POOL)
                    }
                    _ => NO_POOL,
                }
            })
            .collect()
    }
}

/// Whether method, path and host decide what the route takes, and how often, and its requests stay as they are.
fn is_decided(route: &Route) -> bool {
    let Conditions { hosts: _, path, methods: _, headers, query, clients } = &route.conditions;
    let others = [
        headers.is_empty(),
        query.is_empty(),
        clients.is_none(),
        route.except.is_empty(),
        route.rewrite.is_empty(),
        route.mirror.is_none(),
    ];
    let is_plain = !matches!(path, Some(PathMatch::Regex(_))) && route.limit.is_none();
    is_plain && others.iter().all(|is_empty| *is_empty)
}

/// Characters of a field name, except the underscore, which some servers treat as a hyphen.
fn name_bytes() -> impl Iterator<Item = u8> {
    (0..128u8).filter(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^`|~".contains(byte))
}

#[cfg(test)]
mod tests;
