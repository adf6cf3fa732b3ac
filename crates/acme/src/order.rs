//! One order of a certificate (RFC 8555 section 7.4).

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use switchback_config::Challenge;
use switchback_tls::{Issue, Proof};
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::Error;
use crate::schedule::Wanted;

/// Time for a whole order.
const ORDER: Duration = Duration::from_secs(5 * 60);
/// How often the CA is asked whether it is done.
const ASK: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Shows proofs to the CA.
pub(crate) trait Show {
    /// Returns when every node that can be reached shows these proofs, and no others.
    async fn show(&self, proofs: Vec<Proof>);
}

/// Orders a certificate, and returns it with its new key.
pub(crate) async fn order(
    account: &Account,
    wanted: &Wanted,
    (challenge, profile): (Challenge, Option<&str>),
    nodes: &impl Show,
) -> Result<Issue, Error> {
    let ordering = async {
        let identifiers: Vec<_> = wanted.domains.iter().cloned().map(Identifier::Dns).collect();
        let mut new = NewOrder::new(&identifiers);
        if let Some(profile) = profile {
            new = new.profile(profile);
        }
        let mut order = account.new_order(&new).await?;
        prove(&mut order, challenge, nodes).await?;
        let key = Zeroizing::new(order.finalize().await?);
        let chain = order.poll_certificate(&ASK).await?;
        let pem = Zeroizing::new(format!("{chain}\n{}", *key));
        Ok(Issue { domain: wanted.domains[0].clone(), directory: wanted.directory.clone(), pem })
    };
    let issue = timeout(ORDER, ordering).await.unwrap_or(Err(Error::TooLong(ORDER)));
    nodes.show(Vec::new()).await;
    issue
}

/// Proves that the domains lead here.
async fn prove(order: &mut Order, challenge: Challenge, nodes: &impl Show) -> Result<(), Error> {
    let kind = match challenge {
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Challenge::Http01 => ChallengeType::Http01,
    };
    let mut proofs = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Pending {
            continue;
        }
        let domain = authorization.identifier().to_string();
        let Some(asked) = authorization.challenge(kind.clone()) else {
            return Err(Error::NoChallenge(domain, challenge));
        };
        let key_authorization = asked.key_authorization().as_str().to_owned();
        proofs.push(Proof { domain, token: asked.token.clone(), key_authorization });
    }
    if !proofs.is_empty() {
        nodes.show(proofs).await;
    }
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Pending
            && let Some(mut asked) = authorization.challenge(kind.clone())
        {
            asked.set_ready().await?;
        }
    }
    match order.poll_ready(&ASK).await {
        Ok(OrderStatus::Ready) => Ok(()),
        Ok(_) => Err(reason(order, &kind).await.unwrap_or(Error::Invalid)),
        Err(error @ instant_acme::Error::Api(_)) => Err(reason(order, &kind).await.unwrap_or(error.into())),
        Err(error) => Err(error.into()),
    }
}

/// What the CA has found wrong with a proof.
async fn reason(order: &mut Order, kind: &ChallengeType) -> Option<Error> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let domain = authorization.identifier().to_string();
        let state = authorization.refresh().await.ok()?;
        let asked = state.challenges.iter().find(|asked| asked.r#type == *kind);
        if let Some(problem) = asked.and_then(|asked| asked.error.as_ref()) {
            return Some(Error::Unproven(domain, problem.to_string()));
        }
    }
    None
}
