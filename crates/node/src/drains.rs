//! Which nodes of this machine drain, that is, adopt no flows.

use std::collections::BTreeMap;

use switchback_runtime::{Result, marks};

use crate::plan::{OwnNode, Plan};

/// Whether a node drains, and why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drain {
    pub(crate) on: bool,
    /// Set by command, and therefore kept when the file is read again, and when the agent is restarted.
    pub(crate) by_command: bool,
}

/// The drains of the nodes, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drains(BTreeMap<u16, Drain>);

impl Drains {
    /// As the configuration says, and commands that an earlier agent was given.
    pub(crate) fn begin(plan: &Plan) -> Result<Self> {
        let drain = |node: &OwnNode| {
            let by_command = marks::is_drained(&node.name)?;
            Ok((node.number, Drain { on: node.drain || by_command, by_command }))
        };
        plan.nodes.iter().map(drain).collect::<Result<_>>().map(Drains)
    }

    /// The same for another configuration.
    pub(crate) fn reloaded(&self, plan: &Plan) -> Self {
        let drain = |node: &OwnNode| {
            let by_command = self.of(node.number).by_command;
            (node.number, Drain { on: node.drain || by_command, by_command })
        };
        Drains(plan.nodes.iter().map(drain).collect())
    }

    /// The drain of the node with this number.
    pub(crate) fn of(&self, number: u16) -> Drain {
        self.0.get(&number).copied().unwrap_or_default()
    }

    /// Whether the node with this number drains.
    pub(crate) fn has(&self, number: u16) -> bool {
        self.of(number).on
    }

    /// The same with another drain of a node.
    pub(crate) fn with(&self, number: u16, drain: Drain) -> Self {
        let mut all = self.clone();
        all.0.insert(number, drain);
        all
    }

    /// Whether any node drains.
    pub(crate) fn has_any(&self) -> bool {
        self.0.values().any(|drain| drain.on)
    }

    /// Writes the commands down for the next agent.
    pub(crate) fn mark(&self, plan: &Plan) -> Result<()> {
        let drained = plan.nodes.iter().filter(|node| self.of(node.number).by_command);
        marks::set_drained(drained.map(|node| node.name.as_str()))
    }
}
