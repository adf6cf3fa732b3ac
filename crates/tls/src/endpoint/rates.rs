//! Whether a request is let in, and when.

use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use switchback_config::Protocol;
use switchback_http::Head;
use switchback_rates::{Table, Taken, retry_after};
use switchback_routes::Request;
use tokio::time::sleep;

use super::services::Service;

/// Buckets of all services, some 6 MB.
const BUCKETS: usize = 1 << 16;

/// Token buckets of clients.
#[derive(Debug)]
pub(super) struct Rates {
    started: Instant,
    table: Mutex<Table>,
}

/// Why a request is not let in.
pub(super) enum Denied {
    /// The service does not let the client in, since a reload.
    Client,
    /// A rate limit allows a request after so many seconds.
    TooMany(u64),
}

impl Denied {
    /// The status of the answer.
    pub(super) fn status(&self) -> u16 {
        match self {
            Denied::Client => 403,
            Denied::TooMany(_) => 429,
        }
    }

    /// Value of `Retry-After`.
    pub(super) fn retry_after(&self) -> Option<u64> {
        match self {
            Denied::Client => None,
            Denied::TooMany(seconds) => Some(*seconds),
        }
    }
}

impl Default for Rates {
    fn default() -> Self {
        Rates { started: Instant::now(), table: Mutex::new(Table::new(BUCKETS)) }
    }
}

impl Rates {
    /// Returns when the request may go on, with the tokens that it needs.
    pub(super) async fn admit(
        &self,
        service: &Service,
        head: &Head<'_>,
        client: IpAddr,
        spoken: Protocol,
    ) -> Result<(), Denied> {
        if !service.admitted.admits(client) {
            return Err(Denied::Client);
        }
        if service.rates.is_empty() {
            return Ok(());
        }
        // A request that is refused is counted, too.
        let route = service.routes.place_over(&Request { head, client }, spoken).unwrap_or(None);
        let wishes = service.rates.wishes(client, route);
        let now = self.started.elapsed().as_nanos() as u64;
        let taken = self.table.lock().unwrap_or_else(PoisonError::into_inner).take(now, &wishes);
        match taken {
            Taken::Now => {}
            Taken::After(wait) => sleep(wait).await,
            Taken::Over(wait) => return Err(Denied::TooMany(retry_after(wait))),
        }
        Ok(())
    }
}
