//! `[[switch]]`: what each serves, and whether every service has a switch.

use crate::mistakes::{Mistakes, Names};
use crate::{MAX_SWITCHES, Switch, raw, syntax};

impl Mistakes {
    pub(super) fn switches(
        &mut self,
        switches: &[raw::Switch],
        services: &[raw::Service],
        service_names: &Names<'_>,
    ) -> Vec<Switch> {
        if let Some(switch) = switches.get(MAX_SWITCHES) {
            let what = format!("{} switches, allowed are at most {MAX_SWITCHES}", switches.len());
            self.at(&switch.name, what);
        }
        let mistakes_before = self.count();
        let valid: Vec<Switch> =
            switches.iter().map(|switch| self.switch(switch, services.len(), service_names)).collect();
        // A name with a slip in it may be that of the service that seems to have no switch.
        if self.count() == mistakes_before {
            self.served(services, &valid, service_names);
        }
        valid
    }

    fn switch(&mut self, switch: &raw::Switch, services: usize, service_names: &Names<'_>) -> Switch {
        let name = switch.name.get_ref().clone();
        let Some(list) = &switch.services else { return Switch { name, services: (0..services).collect() } };
        if list.get_ref().is_empty() {
            self.at(list, format!("switch {name:?} serves nothing, leave the line out for all services"));
        }
        let mut served = Vec::new();
        for service in list.get_ref() {
            let Some(index) = self.resolve("service", service, service_names) else { continue };
            if served.contains(&index) {
                let what = format!(
                    "switch {name:?} has service {:?} already, allowed is each service once",
                    service.get_ref()
                );
                self.at(service, what);
            }
            served.push(index);
        }
        served.sort_unstable();
        Switch { name, services: served }
    }

    /// Reports each service that no switch serves, if there are switches.
    fn served(&mut self, services: &[raw::Service], switches: &[Switch], service_names: &Names<'_>) {
        let names = switches.iter().map(|switch| switch.name.as_str()).filter(|name| !name.is_empty());
        let names: Vec<&str> = names.collect();
        if names.is_empty() {
            return;
        }
        for (index, service) in services.iter().enumerate() {
            let name = service.name.get_ref().as_str();
            // The second service with a name has been reported, and no list can mean it.
            let first = service_names.get(name) == Some(&index);
            if first && !switches.iter().any(|switch| switch.services.contains(&index)) {
                let what = format!(
                    "no switch serves service {name:?}, at least one has to: {}",
                    syntax::listed(&names)
                );
                self.at(&service.name, what);
            }
        }
    }
}
