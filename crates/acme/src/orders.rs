//! Orders certificates in time, without end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use instant_acme::{Account, NewAccount};
use switchback_config::Acme;
use switchback_tls::endpoint::Teller;
use switchback_tls::{Issued, Proof};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::Error;
use crate::external::external_account;
use crate::http::Https;
use crate::order::{Show, order};
use crate::schedule::{Wanted, chance, pause, renewal, rest};
use crate::store::Store;

/// The longest time between two looks at the clock, which may be set meanwhile.
const LOOK: Duration = Duration::from_secs(600);
/// Time after a failure before which no reload has the order tried again.
const HASTE: Duration = Duration::from_secs(60);

/// How the orders of a certificate stand.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Certificates that the CA has issued, since the agent began.
    pub issued: u64,
    /// Orders that have failed, since the agent began.
    pub failed: u64,
    /// Why the last order has failed; None if it has not.
    pub error: Option<String>,
    /// When the certificate is ordered the next time.
    pub next: Option<SystemTime>,
}

/// How all orders stand, by the first domains of their certificates.
#[derive(Debug, Default)]
pub(crate) struct Board(Mutex<BTreeMap<String, Standing>>);

impl Board {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Standing>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> BTreeMap<String, Standing> {
        self.lock().clone()
    }

    fn change(&self, domain: &str, change: impl FnOnce(&mut Standing)) {
        change(self.lock().entry(domain.to_owned()).or_default());
    }

    /// Forgets all others.
    pub(crate) fn keep(&self, certificates: &[Vec<String>]) {
        self.lock().retain(|domain, _| certificates.iter().any(|domains| domains.first() == Some(domain)));
    }
}

/// What has become of the orders of a certificate.
#[derive(Clone, Debug, Default)]
struct Attempts {
    /// Failures in a row.
    failures: u32,
    /// The end of the last one.
    last: Option<Instant>,
    /// Before this no other one begins.
    next: Option<Instant>,
}

/// The orders of a cluster.
pub(crate) struct Orders {
    pub(crate) acme: Acme,
    pub(crate) store: Store,
    /// The domains of each certificate.
    pub(crate) certificates: Vec<Vec<String>>,
    pub(crate) issued: Arc<Issued>,
    pub(crate) teller: Teller,
    pub(crate) board: Arc<Board>,
    /// Told when what has failed is to be tried again.
    pub(crate) again: Arc<Notify>,
}

impl Show for Orders {
    async fn show(&self, proofs: Vec<Proof>) {
        self.issued.set_proofs(proofs);
        // A node that cannot be reached gets no connections either.
        self.teller.tell_all().await;
    }
}

impl Orders {
    pub(crate) async fn run(self) {
        // Others may have what this node has ordered before, and proofs that it has told them of.
        self.show(Vec::new()).await;
        let wanted = self.certificates.iter().map(|domains| {
            let wanted = Wanted { domains: domains.clone(), directory: self.acme.directory.clone() };
            (wanted, Attempts::default())
        });
        let mut wanted: Vec<(Wanted, Attempts)> = wanted.collect();
        let mut account = None;
        loop {
            for (wanted, attempts) in &wanted {
                let due = SystemTime::now() + self.due(wanted, attempts).duration_since(Instant::now());
                self.board.change(&wanted.domains[0], |standing| standing.next = Some(due));
            }
            let next = wanted.iter_mut().min_by_key(|(wanted, attempts)| self.due(wanted, attempts));
            let Some((first, attempts)) = next else { return };
            let due = self.due(first, attempts);
            if due <= Instant::now() {
                let result = self.attempt(&mut account, first).await;
                self.conclude(&first.domains[0], attempts, result);
                continue;
            }
            tokio::select! {
                () = sleep_until(due.min(Instant::now() + LOOK)) => {}
                () = self.again.notified() => {
                    let failed = wanted.iter_mut().filter(|(_, attempts)| attempts.failures > 0);
                    failed.for_each(|(_, attempts)| {
                        attempts.next = attempts.next.min(attempts.last.map(|last| last + HASTE));
                    });
                }
            }
        }
    }

    /// When the certificate is to be ordered, by the clock that nobody sets.
    fn due(&self, wanted: &Wanted, attempts: &Attempts) -> Instant {
        let now = Instant::now();
        let known = self.issued.describe(&wanted.domains[0]);
        let at = renewal(wanted, known.as_ref());
        let until = at.and_then(|at| at.duration_since(SystemTime::now()).ok()).unwrap_or_default();
        attempts.next.into_iter().fold(now + until, Instant::max)
    }

    /// Orders a certificate, and tells the other nodes of it.
    async fn attempt(&self, account: &mut Option<Account>, wanted: &Wanted) -> Result<(), Error> {
        let signed_up = match &mut *account {
            Some(account) => account,
            none => none.insert(self.sign_up().await?),
        };
        let how = (self.acme.challenge, self.acme.profile.as_deref());
        let ordered = order(signed_up, wanted, how, self).await;
        if let Err(error) = &ordered {
            // The next attempt reads the files again.
            *account = None;
            if error.is_about_account() {
                self.store.forget_account(&self.acme.directory)?;
            }
        }
        self.issued.learn(ordered?).map_err(Error::Unusable)?;
        self.teller.tell_all().await;
        Ok(())
    }

    /// The account at the CA, a new one if there is none yet.
    async fn sign_up(&self) -> Result<Account, Error> {
        let Acme { directory, email, ca, .. } = &self.acme;
        let builder = || Ok::<_, Error>(Account::builder_with_http(Box::new(Https::new(ca.as_deref())?)));
        if let Some(known) = self.store.account(directory)? {
            return Ok(builder()?.from_credentials(known).await?);
        }
        let contact = email.as_ref().map(|email| format!("mailto:{email}"));
        let contact = contact.as_slice().iter().map(String::as_str).collect::<Vec<_>>();
        // The configuration has no `[acme]` without that.
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let external = self.acme.external_account.as_ref().map(external_account).transpose()?;
        let (account, credentials) = builder()?.create(&new, directory.clone(), external.as_ref()).await?;
        self.store.save_account(directory, &credentials)?;
        log::info!("acme: new account at {directory}");
        Ok(account)
    }

    /// Notes what has become of an order, and says it.
    fn conclude(&self, domain: &str, attempts: &mut Attempts, result: Result<(), Error>) {
        let now = Instant::now();
        attempts.last = Some(now);
        match (result, self.issued.describe(domain)) {
            (Ok(()), Some(known)) => {
                *attempts = Attempts { failures: 0, next: Some(now + rest(&known.validity)), ..*attempts };
                log::info!("acme: the CA has issued a certificate for {}", known.names.join(", "));
                self.board.change(domain, |standing| {
                    standing.issued += 1;
                    standing.error = None;
                });
            }
            (Ok(()), None) => {}
            (Err(error), known) => {
                attempts.failures = attempts.failures.saturating_add(1);
                let pause = pause(attempts.failures, chance());
                attempts.next = Some(now + pause);
                let present = known.and_then(|known| known.validity.last_day());
                let present = present
                    .map_or("there is none yet".to_owned(), |day| format!("the present one ends on {day}"));
                log::error!(
                    "acme: no new certificate for {domain}: {error}; tried again in {} min; {present}",
                    pause.as_secs().div_ceil(60)
                );
                self.board.change(domain, |standing| {
                    standing.failed += 1;
                    standing.error = Some(error.to_string());
                });
            }
        }
    }
}
