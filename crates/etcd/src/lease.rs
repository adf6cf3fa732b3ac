//! A node's key, which lives as long as its agent does.

use std::convert::Infallible;
use std::time::Duration;

use etcd_client::PutOptions;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::address::Address;
use crate::error::Error;
use crate::joined::Registration;
use crate::member::Member;

/// Life of a key whose agent is silent, in seconds. etcd gives leases their whole time again when its members have chosen
/// a leader, so they outlive its own failures.
const TTL: i64 = 10;
/// Interval at which a lease is prolonged.
const PROLONGED_EVERY: Duration = Duration::from_secs(TTL as u64 / 3);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// The key of a node that joins.
#[derive(Clone, Debug)]
pub(crate) struct Joining {
    pub(crate) name: String,
    pub(crate) registration: Registration,
}

impl Joining {
    /// Keeps the key alive until told to leave, and takes it away then.
    pub(crate) async fn keep(self, address: Address, mut told_to_leave: oneshot::Receiver<()>) {
        let mut hosts = address.hosts.iter().cycle();
        let mut was_kept = true;
        loop {
            let host = hosts.next().expect("an address has a host");
            let mut lease = None;
            let error = tokio::select! {
                Err(error) = self.keep_at(&address, host, &mut lease) => error,
                _ = &mut told_to_leave => return leave(lease).await,
            };
            if std::mem::replace(&mut was_kept, lease.is_some()) {
                log::warn!(
                    "the key of node {} is not prolonged: {error}; another member is asked",
                    self.name
                );
            }
            sleep(PAUSE).await;
        }
    }

    /// Keeps the key alive at one member until that fails. `lease` is set once the key is there.
    async fn keep_at(
        &self,
        address: &Address,
        host: &str,
        lease: &mut Option<(Member, i64)>,
    ) -> Result<Infallible, Error> {
        let member = Member::connect(address, host).await?;
        let mut client = member.client.clone();
        let id = member.answer(client.lease_grant(TTL, None)).await?.id();
        let (key, value) = (format!("{}{}", address.nodes(), self.name), self.registration.value());
        member.answer(client.put(key, value, Some(PutOptions::new().with_lease(id)))).await?;
        log::info!("node {} has joined {}", self.name, self.registration.pools.join(", "));
        let (mut keeper, mut answers) = member.answer(client.lease_keep_alive(id)).await?;
        let (member, _) = lease.insert((member, id));
        loop {
            sleep(PROLONGED_EVERY).await;
            let prolonged = async {
                keeper.keep_alive().await?;
                answers.message().await
            };
            let prolonged = timeout(PROLONGED_EVERY, prolonged).await;
            let answer = prolonged.map_err(|_| member.error("no answer"))?;
            let answer = answer.map_err(|error| member.failure(&error))?;
            if answer.is_none_or(|answer| answer.ttl() <= 0) {
                return Err(member.error("the lease has ended"));
            }
        }
    }
}

/// Ends the lease, and with it the key.
async fn leave(lease: Option<(Member, i64)>) {
    let Some((member, id)) = lease else { return };
    if let Err(error) = member.answer(member.client.clone().lease_revoke(id)).await {
        log::warn!("{error}; the node's key ends by itself in {TTL} s");
    }
}
