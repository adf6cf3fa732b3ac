//! `passthrough` of `[service.tls]`: keys, routes and pools that need somebody who reads what servers encrypt.

use std::collections::HashSet;

use super::conditions::Texts;
use crate::mistakes::Mistakes;
use crate::raw::Spanned;
use crate::{Pool, Resume, raw};

/// Whether the servers end TLS.
pub(super) fn passes_through(file: &raw::Tls) -> bool {
    file.passthrough.as_ref().is_some_and(|passthrough| *passthrough.get_ref())
}

impl Mistakes {
    /// Checks that no other key stands beside `passthrough`.
    pub(super) fn passthrough_alone(&mut self, file: &raw::Tls) {
        let raw::Tls {
            passthrough: _,
            server,
            sessions,
            hand_over,
            tickets,
            protocols,
            min_version,
            client_address,
            busy_connections,
            busy_cpu,
            ktls,
            client_certificates,
            certificate,
        } = file;
        let keys = [
            ("server", start(server)),
            ("sessions", start(sessions)),
            ("hand_over", start(hand_over)),
            ("tickets", start(tickets)),
            ("protocols", start(protocols)),
            ("min_version", start(min_version)),
            ("client_address", start(client_address)),
            ("busy_connections", start(busy_connections)),
            ("busy_cpu", start(busy_cpu)),
            ("ktls", start(ktls)),
            ("client_certificates", client_certificates.as_ref().map(|file| file.ca.span().start)),
        ];
        let certificates = certificate.iter().map(|file| ("certificate", Some(file.span().start)));
        for (key, place) in keys.into_iter().chain(certificates) {
            if let Some(place) = place {
                self.at_offset(
                    place,
                    format!("{key} with passthrough: the servers end TLS, leave {key} out"),
                );
            }
        }
    }

    /// Checks a route of a service with `passthrough`.
    pub(super) fn route_passed_through(&mut self, file: &raw::Route) {
        let exceptions = file.not.iter().flat_map(|tables| &tables.get_ref().0).map(Texts::of_exception);
        let conditions = std::iter::once(Texts::of_route(file)).chain(exceptions).flat_map(|texts| {
            let Texts { host: _, path, path_exact, path_regex, method, client: _, header, query } = texts;
            [
                ("path", start(path)),
                ("path_exact", start(path_exact)),
                ("path_regex", start(path_regex)),
                ("method", start(method)),
                ("header", start(header)),
                ("query", start(query)),
            ]
        });
        let why = "in a service with passthrough, where nobody reads requests";
        for (key, place) in conditions {
            if let Some(place) = place {
                self.at_offset(place, format!("{key} {why}, allowed are host, client and alpn"));
            }
        }
        let actions = [
            ("redirect", start(&file.redirect)),
            ("respond", start(&file.respond)),
            ("rewrite", start(&file.rewrite)),
            ("request_header", start(&file.request_header)),
            ("mirror", start(&file.mirror)),
        ];
        for (key, place) in actions {
            if let Some(place) = place {
                self.at_offset(place, format!("{key} {why}, allowed are pool and split"));
            }
        }
    }

    /// Checks the pools of services with `passthrough`. `pools` are those of the file, with holes where they are wrong.
    pub(super) fn pools_passed_through(&mut self, file: &raw::File, pools: &[Option<Pool>]) {
        let services = file.service.iter().filter(|service| service.tls.as_ref().is_some_and(passes_through));
        let routes = services.flat_map(|service| &service.route);
        let names: HashSet<&str> =
            routes.flat_map(|route| route.get_ref().pools()).map(|pool| pool.get_ref().as_str()).collect();
        for (file, pool) in file.pool.iter().zip(pools) {
            let Some(pool) = pool.as_ref().filter(|pool| names.contains(pool.name.as_str())) else {
                continue;
            };
            let whose = format!("in pool {:?} of a service with passthrough", pool.name);
            if let Some(path) = file.health.as_ref().and_then(|health| health.path.as_ref()) {
                let what = format!(
                    "path {whose}, whose servers speak TLS, leave the line out to check that they accept connections"
                );
                self.at(path, what);
            }
            if let Some(outliers) = &file.outliers {
                self.at(
                    outliers,
                    format!("outliers {whose}, where nobody reads responses, leave the table out"),
                );
            }
            if let (Some(resume), true) = (&file.resume, pool.resume != Resume::Off) {
                let what = format!(
                    "resume \"{}\" {whose}, where nobody reads responses, allowed is \"{}\"",
                    pool.resume,
                    Resume::Off
                );
                self.at(resume, what);
            }
        }
    }
}

/// Where a value of the file begins.
fn start<T>(value: &Option<Spanned<T>>) -> Option<usize> {
    value.as_ref().map(|value| value.span().start)
}
