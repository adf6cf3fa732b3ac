//! The connection to the API server.

use std::time::Duration;

use kube::{Client, Config};

use crate::Error;

/// How long the API server may say nothing.
const SILENCE: Duration = Duration::from_secs(30);
/// After so long the API server ends a watch, in seconds; the next one goes on where it ended. So a connection that is dead shows
/// within [`SILENCE`].
pub(crate) const WATCH: u32 = 20;

/// A client by `KUBECONFIG`, `~/.kube/config` or the service account of the pod.
pub(crate) async fn connect() -> Result<Client, Error> {
    let mut config = Config::infer().await.map_err(|error| Error::Config(error.to_string()))?;
    config.read_timeout = Some(SILENCE);
    Client::try_from(config).map_err(Error::Api)
}
