//! Connections to a member of the etcd cluster.

use std::error::Error as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Identity, TlsOptions};
use tokio::time::timeout;

use crate::address::{Address, TlsFiles, User};
use crate::error::Error;

/// Time for a connection and for the answer to a request.
const PATIENCE: Duration = Duration::from_secs(2);
/// Interval of HTTP/2 pings, of which etcd allows one in 5 s (`--grpc-keepalive-min-time`), and time for the answer.
const PING: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(2));

/// A connection to one member.
pub(crate) struct Member {
    host: String,
    pub(crate) client: Client,
}

impl Member {
    /// Connects, with the files that the address names as they are now. A member that has no leader refuses requests.
    pub(crate) async fn connect(address: &Address, host: &str) -> Result<Member, Error> {
        let mut options = ConnectOptions::new()
            .with_connect_timeout(PATIENCE)
            .with_keep_alive(PING.0, PING.1)
            .with_require_leader(true);
        if let Some(User { name, password_file }) = &address.user {
            let remedy = "write the password of the user of etcd into it, mode 0600".to_owned();
            let text = switchback_config::read_private(password_file, remedy).map_err(Error::File)?;
            options = options.with_user(name, text.trim_end_matches(['\r', '\n']));
        }
        let mut url = format!("http://{host}");
        if let Some(TlsFiles { ca, own }) = &address.tls {
            url = format!("https://{host}");
            let mut tls = TlsOptions::new();
            tls = match ca {
                Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
                None => tls.with_native_roots(),
            };
            if let Some((certificate, key)) = own {
                tls = tls.identity(Identity::from_pem(read(certificate)?, read(key)?));
            }
            options = options.with_tls(tls);
        }
        let connected = timeout(PATIENCE, Client::connect([url], Some(options))).await;
        Ok(Member { host: host.to_owned(), client: outcome(host, connected)? })
    }

    /// The answer to a request, which has to come in time.
    pub(crate) async fn answer<T>(
        &self,
        request: impl Future<Output = Result<T, etcd_client::Error>>,
    ) -> Result<T, Error> {
        outcome(&self.host, timeout(PATIENCE, request).await)
    }

    /// What an error of the client says of this member.
    pub(crate) fn failure(&self, error: &etcd_client::Error) -> Error {
        failure(&self.host, error)
    }

    /// The error of this member.
    pub(crate) fn error(&self, what: impl Into<String>) -> Error {
        Error::Etcd { host: self.host.clone(), what: what.into() }
    }
}

fn outcome<T, E>(host: &str, outcome: Result<Result<T, etcd_client::Error>, E>) -> Result<T, Error> {
    match outcome {
        Ok(answer) => answer.map_err(|error| failure(host, &error)),
        Err(_) => Err(Error::Etcd {
            host: host.to_owned(),
            what: format!("no answer within {} s", PATIENCE.as_secs()),
        }),
    }
}

fn failure(host: &str, error: &etcd_client::Error) -> Error {
    let (host, what) = (host.to_owned(), in_words(error));
    if is_final(error) { Error::Refused { host, what } } else { Error::Etcd { host, what } }
}

/// Whether the other members would answer the same (`google.rpc.Code`): INVALID_ARGUMENT, which is also the answer to a wrong
/// password, PERMISSION_DENIED, UNAUTHENTICATED.
fn is_final(error: &etcd_client::Error) -> bool {
    matches!(error, etcd_client::Error::GRpcStatus(status) if matches!(status.code() as i32, 3 | 7 | 16))
}

/// The innermost cause: gRPC wraps errors of connections several times, in words that say nothing.
fn in_words(error: &etcd_client::Error) -> String {
    let (status, mut cause): (_, Option<&(dyn std::error::Error + 'static)>) = match error {
        etcd_client::Error::GRpcStatus(status) => (Some(status), status.source()),
        etcd_client::Error::TransportError(error) => (None, Some(error)),
        _ => (None, None),
    };
    let mut innermost = None;
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    match (innermost, status) {
        (Some(what), _) => what,
        (None, Some(status)) => status.message().trim_start_matches("etcdserver: ").to_owned(),
        (None, None) => error.to_string(),
    }
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    fs::read(file).map_err(|source| {
        Error::File(switchback_config::Error::Read { file: file.to_owned(), source, remedy: None })
    })
}
