//! The kinds of load.

use std::fmt;

/// What a client does with its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Short requests with pauses of some seconds.
    KeepAlive,
    /// Long responses, read at a limited rate, one after the other.
    Download,
    /// Long request bodies, sent at a limited rate, one after the other.
    Upload,
    /// Messages over a WebSocket, each of which is echoed.
    WebSocket,
    /// Short requests over HTTP/1.1 and TLS.
    TlsHttp1,
    /// Short requests over HTTP/2 and TLS.
    TlsHttp2,
    /// Several short requests at once.
    Pipelined,
}

impl Kind {
    /// All kinds, in the order of the tables.
    pub const ALL: [Kind; 7] = [
        Kind::KeepAlive,
        Kind::Download,
        Kind::Upload,
        Kind::WebSocket,
        Kind::TlsHttp1,
        Kind::TlsHttp2,
        Kind::Pipelined,
    ];

    /// Its place in [`ALL`](Self::ALL).
    pub(in super::super) fn index(self) -> usize {
        self as usize
    }

    pub(super) fn is_tls(self) -> bool {
        matches!(self, Kind::TlsHttp1 | Kind::TlsHttp2)
    }

    /// Whether a request lasts long because its bytes are paced.
    pub(in super::super) fn is_transfer(self) -> bool {
        matches!(self, Kind::Download | Kind::Upload)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::KeepAlive => "keep-alive",
            Kind::Download => "downloads",
            Kind::Upload => "uploads",
            Kind::WebSocket => "WebSockets",
            Kind::TlsHttp1 => "TLS, HTTP/1.1",
            Kind::TlsHttp2 => "TLS, HTTP/2",
            Kind::Pipelined => "pipelined",
        })
    }
}

/// The next numbers of requests, each used once in a run. A number also says the kind of load, so that the servers'
/// logs need no more.
#[derive(Debug)]
pub(super) struct Numbers {
    next: u64,
    step: u64,
}

impl Numbers {
    /// The numbers of one of several clients, who share none.
    pub(super) fn of_client(client: usize, clients: usize) -> Numbers {
        Numbers { next: client as u64 + 1, step: clients as u64 }
    }

    pub(super) fn take(&mut self, kind: Kind) -> u64 {
        let number = self.next * KINDS + kind.index() as u64;
        self.next += self.step;
        number
    }
}

const KINDS: u64 = Kind::ALL.len() as u64;

/// The kind of load of a request with this number.
pub(in super::super) fn kind_of(number: u64) -> Kind {
    Kind::ALL[(number % KINDS) as usize]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_number_is_taken_twice_and_each_says_its_kind() {
        assert!(Kind::ALL.iter().enumerate().all(|(index, kind)| kind.index() == index));
        let mut clients = [0, 1, 2].map(|client| Numbers::of_client(client, 3));
        let mut seen = BTreeSet::new();
        for _ in 0..10 {
            for kind in Kind::ALL {
                for client in &mut clients {
                    let number = client.take(kind);
                    assert!(seen.insert(number) && kind_of(number) == kind, "{number}");
                }
            }
        }
    }
}
