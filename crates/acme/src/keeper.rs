//! The part of a node in the certificates of its cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use switchback_config::Acme;
use switchback_tls::Issued;
use switchback_tls::endpoint::{Endpoint, Teller};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use crate::orders::{Board, Orders, Standing};
use crate::store::Store;

/// Time until a file that could not be written is tried again.
const AGAIN: Duration = Duration::from_secs(600);

/// Keeps the certificates that a node needs in files, and orders them if it is the node that does.
#[derive(Debug, Default)]
pub struct Keeper {
    board: Arc<Board>,
    again: Arc<Notify>,
    running: Option<Running>,
}

/// What is done, and the tasks that do it.
#[derive(Debug)]
struct Running {
    acme: Acme,
    certificates: Vec<Vec<String>>,
    orders: bool,
    tasks: Vec<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl Keeper {
    /// Reads what the files in the directory `state` have of these certificates, each given by its domains.
    pub fn read(state: &Path, certificates: &[Vec<String>], issued: &Issued) {
        let store = Store::at(state);
        for domain in certificates.iter().filter_map(|domains| domains.first()) {
            let read = store.certificate(domain).map_err(|error| error.to_string());
            let learned = read.and_then(|issue| {
                issue.map_or(Ok(false), |issue| issued.learn(issue)).map_err(|error| error.to_string())
            });
            if let Err(error) = learned {
                log::error!("acme: {error}");
            }
        }
    }

    /// Keeps these certificates from now on. `teller` is present if this node orders them. If that is what it does already, it
    /// tries again what has failed.
    pub fn set(
        &mut self,
        acme: &Acme,
        (state, certificates): (&Path, Vec<Vec<String>>),
        issued: &Arc<Issued>,
        teller: Option<Teller>,
        endpoint: &Endpoint,
    ) {
        let orders = teller.is_some();
        let is_same = |running: &Running| {
            (&running.acme, &running.certificates, running.orders) == (acme, &certificates, orders)
        };
        if self.running.as_ref().is_some_and(is_same) {
            self.again.notify_one();
            return;
        }
        for domain in certificates.iter().flat_map(|domains| domains.first()) {
            if issued.describe(domain).is_none() {
                log::warn!(
                    "acme: there is no certificate for {domain} yet, clients get one that nobody has signed"
                );
            }
        }
        // What runs ends first.
        self.running = None;
        self.board.keep(if orders { &certificates } else { &[] });
        let keeping = endpoint.spawn(keep(Store::at(state), Arc::clone(issued)));
        let ordering = teller.map(|teller| {
            let orders = Orders {
                acme: acme.clone(),
                store: Store::at(state),
                certificates: certificates.clone(),
                issued: Arc::clone(issued),
                teller,
                board: Arc::clone(&self.board),
                again: Arc::clone(&self.again),
            };
            endpoint.spawn(orders.run())
        });
        let tasks = [Some(keeping), ordering].into_iter().flatten().collect();
        self.running = Some(Running { acme: acme.clone(), certificates, orders, tasks });
    }

    /// Ends what [`set`](Self::set) has begun.
    pub fn stop(&mut self) {
        self.running = None;
        self.board.keep(&[]);
    }

    /// How the orders of this node stand, by the first domains of their certificates.
    pub fn standings(&self) -> BTreeMap<String, Standing> {
        self.board.all()
    }
}

/// Writes certificates that are new into their files, and later those that could not be written.
async fn keep(store: Store, issued: Arc<Issued>) {
    let mut news = issued.news();
    loop {
        let (store, issued) = (store.clone(), Arc::clone(&issued));
        // It ends in any case.
        let _ = spawn_blocking(move || save(&store, &issued)).await;
        let _ = timeout(AGAIN, news.changed()).await;
    }
}

/// Writes the files that do not have what is served.
fn save(store: &Store, issued: &Issued) {
    let saved = issued.issues().iter().try_for_each(|issue| match store.certificate(&issue.domain) {
        Ok(Some(known)) if known == *issue => Ok(()),
        _ => {
            log::info!("acme: new connections for {} get a new certificate", issue.domain);
            store.save(issue)
        }
    });
    if let Err(error) = saved {
        log::error!("acme: {error}; the certificate is in memory only");
    }
}
