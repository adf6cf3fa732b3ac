//! Policies by their kind.

use crate::{
    AcceptQueue, Fill, Latency, LeastConnections, Member, Policy, PolicyKind, Random, Rendezvous, RoundRobin,
    TwoChoices,
};

/// Makes the policy `kind` for a pool of `members`, in its initial state.
pub fn build(kind: PolicyKind, members: &[Member]) -> Box<dyn Policy> {
    let nodes = members.len();
    match kind {
        PolicyKind::RoundRobin => Box::new(RoundRobin::new(nodes)),
        PolicyKind::Random => Box::new(Random::new(nodes)),
        PolicyKind::LeastConnections => Box::new(LeastConnections::new(nodes)),
        PolicyKind::TwoChoices => Box::new(TwoChoices::new(nodes)),
        PolicyKind::Hash => Box::new(Rendezvous::new(members.iter().map(|member| member.name.as_str()))),
        PolicyKind::Fill => Box::new(Fill::default()),
        PolicyKind::AcceptQueue => Box::new(AcceptQueue::new(nodes)),
        PolicyKind::Latency => Box::new(Latency::new(nodes)),
    }
}
