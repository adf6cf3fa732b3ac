//! Warnings about a cluster whose machines do not agree: on the configuration, on the program, or on who is which switch.
//!
//! A rollout makes machines differ for a while, and the warning ends with it.

use std::collections::BTreeMap;

use crate::switch::SwitchStatus;

/// Machines that a warning names; of others it tells the number.
const NAMED: usize = 5;

impl SwitchStatus {
    /// What is wrong, each with the remedy.
    pub fn warnings(&self) -> Vec<String> {
        let claimed = self.switches.iter().filter(|switch| switch.addresses > 1).map(|switch| {
            format!(
                "{} machines say that they are switch {}: start each with a name of its own (--name)",
                switch.addresses, switch.name
            )
        });
        let configs = self.others(&self.config, |machine| machine.config).into_iter();
        let configs = configs.map(|(config, names)| {
            let has = if names.len() == 1 { "has" } else { "have" };
            let here = &self.config;
            let remedy = match self.config_version {
                None => "copy the file and reload",
                Some(_) => "see the log of the one that is behind",
            };
            format!("{} {has} another configuration ({config}, here {here}): {remedy}", listed(&names))
        });
        let versions = self.others(&self.version, |machine| machine.version).into_iter();
        let versions = versions.map(|(version, names)| {
            let runs = if names.len() == 1 { "runs" } else { "run" };
            let here = &self.version;
            format!("{} {runs} version {version}, here {here}: upgrade what is older", listed(&names))
        });
        claimed.chain(configs).chain(versions).collect()
    }

    /// Number of machines that are heard and have another configuration than this one.
    pub fn other_configs(&self) -> usize {
        self.others(&self.config, |machine| machine.config).values().map(Vec::len).sum()
    }

    /// Number of machines that are heard and run another version than this one.
    pub fn other_versions(&self) -> usize {
        self.others(&self.version, |machine| machine.version).values().map(Vec::len).sum()
    }

    /// Machines that have something else than this one, by what they have.
    fn others<'a>(
        &'a self,
        own: &str,
        of: impl Fn(&Machine<'a>) -> Option<&'a str>,
    ) -> BTreeMap<&'a str, Vec<String>> {
        let mut others: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for machine in self.machines() {
            if let Some(other) = of(&machine).filter(|other| *other != own) {
                others.entry(other).or_default().push(format!("{} {}", machine.kind, machine.name));
            }
        }
        others
    }

    /// The other switches and the nodes, as far as they are heard.
    fn machines(&self) -> impl Iterator<Item = Machine<'_>> {
        let switches = self.switches.iter().filter(|switch| !switch.here && switch.is_heard());
        let switches = switches.map(|switch| Machine {
            kind: "switch",
            name: &switch.name,
            version: switch.version.as_deref(),
            config: switch.config.as_deref(),
        });
        let nodes = self.nodes.iter().filter(|node| !node.silent).map(|node| Machine {
            kind: "node",
            name: &node.name,
            version: node.version.as_deref(),
            config: node.config.as_deref(),
        });
        switches.chain(nodes)
    }
}

struct Machine<'a> {
    kind: &'static str,
    name: &'a str,
    version: Option<&'a str>,
    config: Option<&'a str>,
}

fn listed(names: &[String]) -> String {
    let (first, rest) = names.split_at(names.len().min(NAMED));
    match (first, rest.len()) {
        ([only], 0) => only.clone(),
        ([before @ .., last], 0) => format!("{} and {last}", before.join(", ")),
        (first, more) => format!("{} and {more} more", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::switch::{NodeView, SILENT, SwitchView};

    fn switch(name: &str, config: &str) -> SwitchView {
        SwitchView {
            name: name.to_owned(),
            state: "serving".into(),
            version: Some("1.2.0".to_owned()),
            config: Some(config.to_owned()),
            heard_by: 2,
            addresses: 1,
            ..SwitchView::default()
        }
    }

    fn node(name: &str, config: &str) -> NodeView {
        let (version, config) = (Some("1.2.0".to_owned()), Some(config.to_owned()));
        NodeView { name: name.to_owned(), version, config, ..NodeView::default() }
    }

    fn status() -> SwitchStatus {
        SwitchStatus {
            version: "1.2.0".to_owned(),
            config: "aaaaaaaa".to_owned(),
            switches: vec![
                SwitchView { here: true, ..switch("s1", "aaaaaaaa") },
                switch("s2", "aaaaaaaa"),
                switch("s3", "aaaaaaaa"),
            ],
            nodes: vec![node("n1", "aaaaaaaa"), node("n2", "aaaaaaaa")],
            ..SwitchStatus::default()
        }
    }

    #[test]
    fn machines_that_agree_are_no_warning() {
        assert_eq!(status().warnings(), [""; 0]);
        assert_eq!((status().other_configs(), status().other_versions()), (0, 0));
    }

    #[test]
    fn another_configuration_is_named_with_its_machines() {
        let mut status = status();
        status.switches[1] = switch("s2", "bbbbbbbb");
        let warning =
            "switch s2 has another configuration (bbbbbbbb, here aaaaaaaa): copy the file and reload";
        assert_eq!(status.warnings(), [warning]);
        status.nodes[0] = node("n1", "bbbbbbbb");
        status.nodes[1] = node("n2", "cccccccc");
        assert_eq!(
            status.warnings(),
            [
                "switch s2 and node n1 have another configuration (bbbbbbbb, here aaaaaaaa): copy the file and reload",
                "node n2 has another configuration (cccccccc, here aaaaaaaa): copy the file and reload",
            ]
        );
        assert_eq!(status.other_configs(), 3);
        status.nodes = (0..9).map(|index| node(&format!("n{index}"), "bbbbbbbb")).collect();
        let many = "switch s2, node n0, node n1, node n2, node n3 and 5 more have another";
        assert!(status.warnings()[0].starts_with(many), "{:?}", status.warnings());
    }

    #[test]
    fn another_version_is_named() {
        let mut status = status();
        status.switches[2].version = Some("1.3.0".to_owned());
        assert_eq!(status.warnings(), ["switch s3 runs version 1.3.0, here 1.2.0: upgrade what is older"]);
        status.nodes[1].version = Some("1.3.0".to_owned());
        let both = "switch s3 and node n2 run version 1.3.0, here 1.2.0: upgrade what is older";
        assert_eq!(status.warnings(), [both]);
        assert_eq!((status.other_configs(), status.other_versions()), (0, 2));
    }

    #[test]
    fn what_is_not_heard_or_not_known_differs_from_nothing() {
        let mut status = status();
        status.switches[1] = SwitchView { state: SILENT.into(), ..switch("s2", "bbbbbbbb") };
        status.switches[2] = SwitchView { config: None, version: None, ..switch("s3", "") };
        status.nodes[0] = NodeView { silent: true, ..node("n1", "bbbbbbbb") };
        status.nodes[1] = NodeView { config: None, version: None, ..node("n2", "") };
        assert_eq!(status.warnings(), [""; 0]);
    }

    #[test]
    fn a_name_that_two_machines_have_is_a_warning() {
        let mut status = status();
        status.switches[0].addresses = 2;
        let warning = "2 machines say that they are switch s1: start each with a name of its own (--name)";
        assert_eq!(status.warnings(), [warning]);
    }

    #[test]
    fn nodes_are_compared_without_named_switches() {
        let alone = SwitchStatus { switches: Vec::new(), nodes: vec![node("n1", "bbbbbbbb")], ..status() };
        let other = "node n1 has another configuration (bbbbbbbb, here aaaaaaaa): copy the file and reload";
        assert_eq!(alone.warnings(), [other]);
    }
}
