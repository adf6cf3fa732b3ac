//! `[pool.health]`: what is asked, and whether there is time for the answer.

use crate::health::{DEFAULT_STATUS, INTERVAL, TIMEOUT, TIMES, shown};
use crate::mistakes::Mistakes;
use crate::{Check, Health, raw, syntax};

impl Mistakes {
    pub(super) fn health(&mut self, file: &raw::Health) -> Health {
        let default = Health::default();
        let check = self.check(file);
        let mistakes_before = self.count();
        let interval = self.time("interval", &file.interval, INTERVAL, default.interval);
        let timeout = self.time("timeout", &file.timeout, TIMEOUT, default.timeout);
        if self.count() == mistakes_before {
            self.times_in_order(("timeout", timeout, &file.timeout), ("interval", interval, &file.interval));
        }
        let rise = self.number_or("rise", &file.rise, TIMES, default.rise);
        let fall = self.number_or("fall", &file.fall, TIMES, default.fall);
        Health { check, interval, timeout, rise, fall }
    }

    fn check(&mut self, file: &raw::Health) -> Check {
        let path = file.path.as_ref();
        let host = file.host.as_ref();
        let status = file.status.as_ref();
        if path.is_none() {
            let what = |key| format!("{key} without path, allowed is it only with path");
            if let Some(host) = host {
                self.at(host, what("host"));
            }
            if let Some(status) = status {
                self.at(status, what("status"));
            }
        }
        let path = path.and_then(|path| self.take(path, syntax::check_path(path.get_ref())));
        let host = host.and_then(|host| self.take(host, syntax::host_without_port(host.get_ref())));
        let status = status.map(|status| {
            let none = format!("no status, leave the line out to allow {}", shown(&DEFAULT_STATUS));
            self.each(status, &none, syntax::statuses)
        });
        if let (Some(place), Some(_)) = (&file.grpc, &file.path) {
            self.at(place, "grpc with path, allowed is one of the two");
        }
        let service =
            file.grpc.as_ref().and_then(|text| self.take(text, syntax::grpc_service(text.get_ref())));
        match (path, service) {
            (None, None) => Check::Tcp,
            (None, Some(service)) => Check::Grpc { service },
            (Some(path), _) => Check::Http { path, host, status: status.unwrap_or(vec![DEFAULT_STATUS]) },
        }
    }
}
