//! `[service.tls]`, and what it asks of the service's routes and pools.

use std::collections::HashMap;
use std::path::PathBuf;

use super::machines::users;
use super::passthrough::passes_through;
use crate::mistakes::{Mistakes, Text};
use crate::raw::{Spanned, Texts};
use crate::tls::{BUSY_CONNECTIONS, BUSY_CPU, DEFAULT_BUSY_CONNECTIONS, DEFAULT_BUSY_CPU, DEFAULT_PROTOCOLS};
use crate::{
    Admin, Balance, CertificateFiles, CertificateSource, ClientAddress, ClientAuth, ClientCertificates,
    HandOver, HashKey, Model, Node, PersistenceMode, Pool, Protocol, Resume, Server, ServerProtocol, Service,
    TicketScope, Tls, TlsMode, TlsVersion, raw, syntax,
};

impl Mistakes {
    /// What `file` says about the service named `service`. A value that is wrong is replaced, by its default if it has one,
    /// so that nothing else seems wrong because of it.
    pub(super) fn tls(&mut self, file: &raw::Tls, service: &Spanned<String>) -> TlsMode {
        if passes_through(file) {
            self.passthrough_alone(file);
            return TlsMode::Passthrough;
        }
        TlsMode::Terminate(self.terminated(file, service))
    }

    /// The settings of a service whose TLS nodes end.
    fn terminated(&mut self, file: &raw::Tls, service: &Spanned<String>) -> Tls {
        if file.certificate.is_empty() {
            let what = format!(
                "service {:?} has TLS without a certificate, at least one [[service.tls.certificate]] is needed",
                service.get_ref()
            );
            self.at(service, what);
        }
        let certificates = file.certificate.iter().map(|certificate| self.certificate(certificate)).collect();
        let client_certificates =
            file.client_certificates.as_ref().map(|file| self.client_certificates(file));
        let server = file.server.as_ref();
        let server = server.and_then(|server| self.take(server, Server::parse(server.get_ref())));
        let protocols = file.protocols.as_ref().and_then(|protocols| self.protocols(protocols));
        let busy_cpu = file.busy_cpu.as_ref();
        let busy_cpu =
            busy_cpu.and_then(|share| self.take(share, syntax::share("busy_cpu", share.get_ref(), BUSY_CPU)));
        let model = self.model(file);
        let hand_over = self.choice("hand_over", &file.hand_over, HandOver::ALL, HandOver::name);
        Tls {
            certificates,
            client_certificates,
            server,
            model,
            hand_over,
            tickets: self.choice("tickets", &file.tickets, TicketScope::ALL, TicketScope::name),
            protocols: protocols.unwrap_or(DEFAULT_PROTOCOLS.to_vec()),
            min_version: self.choice("min_version", &file.min_version, TlsVersion::ALL, TlsVersion::name),
            client_address: self.choice(
                "client_address",
                &file.client_address,
                ClientAddress::ALL,
                ClientAddress::name,
            ),
            busy_connections: self.number_or(
                "busy_connections",
                &file.busy_connections,
                BUSY_CONNECTIONS,
                DEFAULT_BUSY_CONNECTIONS,
            ),
            busy_cpu: busy_cpu.unwrap_or(DEFAULT_BUSY_CPU),
            ktls: self.ktls(file.ktls.as_ref(), model, hand_over),
        }
    }

    /// The one of `all` that `text` names; the default if it is absent or wrong.
    fn choice<T: Copy + Default, const N: usize>(
        &mut self,
        key: &str,
        text: &Text,
        all: [T; N],
        name: fn(T) -> &'static str,
    ) -> T {
        text.as_ref().and_then(|text| self.one_of(key, text, all, name)).unwrap_or_default()
    }

    fn certificate(&mut self, place: &Spanned<raw::Certificate>) -> CertificateSource {
        let raw::Certificate { domains, chain, key, staple } = place.get_ref();
        let files = [("chain", chain, "shop.pem"), ("key", key, "shop.key"), ("staple", staple, "shop.ocsp")];
        if let Some(domains) = domains {
            for (name, file, _) in files {
                if let Some(file) = file {
                    self.at(
                        file,
                        format!("{name} with domains: the CA issues the certificate, leave {name} out"),
                    );
                }
            }
            return CertificateSource::Issued(self.domains(domains));
        }
        for (name, file, example) in files {
            match file {
                Some(file) => self.path(name, file, example),
                None if name == "staple" => {}
                None => {
                    let what = format!(
                        "certificate without {name}, needed are chain and key, or domains for one from a CA"
                    );
                    self.at(place, what);
                }
            }
        }
        let path = |text: &Text| text.as_ref().map(|text| PathBuf::from(text.get_ref()));
        CertificateSource::Files(CertificateFiles {
            chain: path(chain).unwrap_or_default(),
            key: path(key).unwrap_or_default(),
            staple: path(staple),
        })
    }

    fn client_certificates(&mut self, file: &raw::ClientCertificates) -> ClientCertificates {
        self.path("ca", &file.ca, "clients.pem");
        if let Some(crl) = &file.crl {
            self.path("crl", crl, "clients.crl");
        }
        let path = |text: &Spanned<String>| PathBuf::from(text.get_ref());
        ClientCertificates {
            mode: self.choice("mode", &file.mode, ClientAuth::ALL, ClientAuth::name),
            ca: path(&file.ca),
            crl: file.crl.as_ref().map(path),
        }
    }

    /// None with a mistake in it.
    fn protocols(&mut self, list: &Spanned<Vec<Spanned<String>>>) -> Option<Vec<Protocol>> {
        let mistakes_before = self.count();
        if list.get_ref().is_empty() {
            let default = DEFAULT_PROTOCOLS.map(Protocol::name).join(", ");
            self.at(list, format!("no protocol, leave the line out for {default}"));
        }
        let mut protocols = Vec::new();
        for text in list.get_ref() {
            let protocol = self.one_of("protocol", text, Protocol::ALL, Protocol::name);
            let Some(protocol) = protocol else { continue };
            if protocols.contains(&protocol) {
                let what = format!("protocol {:?} is listed already, allowed is each once", protocol.name());
                self.at(text, what);
            }
            protocols.push(protocol);
        }
        (self.count() == mistakes_before).then_some(protocols)
    }

    /// `sessions`, and what goes with one value of it only.
    fn model(&mut self, file: &raw::Tls) -> Model {
        let mistakes_before = self.count();
        let model = self.choice("sessions", &file.sessions, Model::ALL, Model::name);
        if model != Model::Forwarding && self.count() == mistakes_before {
            let what = |key| {
                let (model, forwarding) = (model.name(), Model::Forwarding.name());
                format!("{key} with sessions {model:?}, allowed is it only with sessions {forwarding:?}")
            };
            if let Some(place) = &file.hand_over {
                self.at(place, what("hand_over"));
            }
            if let Some(place) = &file.busy_connections {
                self.at(place, what("busy_connections"));
            }
            if let Some(place) = &file.busy_cpu {
                self.at(place, what("busy_cpu"));
            }
        }
        if let (Model::Forwarding, None, Some(place)) = (model, &file.server, &file.sessions) {
            let what = format!(
                "sessions {:?} in [service.tls] without server, allowed is it only with one server for each machine",
                model.name()
            );
            self.at(place, what);
        }
        model
    }

    fn ktls(&mut self, wanted: Option<&Spanned<bool>>, model: Model, hand_over: HandOver) -> bool {
        let relays = model == Model::Forwarding && hand_over == HandOver::Relay;
        if let Some(place) = wanted.filter(|wanted| relays && *wanted.get_ref()) {
            let (relay, direct) = (HandOver::Relay.name(), HandOver::Direct.name());
            self.at(
                place,
                format!("ktls with hand_over {relay:?}, allowed is it only with hand_over {direct:?}"),
            );
        }
        wanted.map_or(!relays, |wanted| *wanted.get_ref())
    }

    /// `alpn` of a route in a service with `tls`. What the service does not speak would make a route that never matches.
    pub(super) fn alpn(&mut self, texts: &Spanned<Texts>, tls: &TlsMode) -> Vec<Protocol> {
        let spoken = match tls {
            TlsMode::Off => {
                self.at(texts, "alpn in a service without TLS, allowed is it only in one with [service.tls]");
                return Vec::new();
            }
            TlsMode::Terminate(tls) => &tls.protocols[..],
            TlsMode::Passthrough => &Protocol::ALL,
        };
        self.each(texts, "no protocol, leave the line out to allow any", |text| {
            let protocol = syntax::one_of("alpn", text, Protocol::ALL, Protocol::name)?;
            if spoken.contains(&protocol) {
                return Ok(protocol);
            }
            let names: Vec<&str> = spoken.iter().map(|protocol| protocol.name()).collect();
            Err(format!("alpn {text:?} is not among the service's protocols, allowed: {}", names.join(", ")))
        })
    }

    /// A port can be listened at once: by a server, or by the daemons themselves. `services` are those of `files`.
    pub(super) fn servers_beside_admin(
        &mut self,
        files: &[raw::Service],
        services: &[Service],
        admin: Option<&Admin>,
    ) {
        let Some(Admin { listen, .. }) = admin else { return };
        for (file, service) in files.iter().zip(services) {
            let place = file.tls.as_ref().and_then(|tls| tls.server.as_ref());
            let (Some(place), Some(tls)) = (place, service.tls.terminated()) else { continue };
            let Some(Server::Tcp(server)) = tls.server else { continue };
            if server.port() == listen.port() && (server.ip() == listen.ip() || listen.ip().is_unspecified())
            {
                let what = format!("server {server} is where [admin] listens, allowed is another port");
                self.at(place, what);
            }
        }
    }

    /// Where TLS ends at machines, the agents listen at the VIPs, so the server of each node has an address of its own. `services`
    /// are those of `files`.
    pub(super) fn servers_behind_tls(
        &mut self,
        files: &[raw::Service],
        nodes: &[Node],
        pools: &[Option<Pool>],
        services: &[Service],
    ) {
        for (file, service) in files.iter().zip(services) {
            let Some(tls) = service.tls.terminated() else { continue };
            let mirrors = service.routes.iter().filter_map(|route| pools.get(route.mirror?.pool)?.as_ref());
            let copied = mirrors.flat_map(|pool| pool.nodes.iter().copied());
            let mut all = users(service, pools).into_iter().chain(copied);
            let without = all.find(|node| tls.server_of(&nodes[*node]).is_none());
            if let (Some(node), true) = (without, file.tls.as_ref().is_some_and(|tls| tls.server.is_none())) {
                let what = format!(
                    "service {:?} has TLS without a server, and so has its node {:?}, needed is an address, such as server = \
                     \"127.0.0.1:8080\", in [service.tls] or in [[node]], because the agent itself listens at the VIPs; or \
                     passthrough = true if the servers end TLS themselves",
                    service.name, nodes[node].name
                );
                self.at(&file.name, what);
            }
        }
    }

    /// Switches choose a node before they could read a request, so a pool of a service with TLS must not need them to.
    ///
    /// `pools` are those of the file, with holes where they are wrong.
    pub(super) fn pools_over_tls(&mut self, file: &raw::File, pools: &[Option<Pool>]) {
        let mut reached: HashMap<&str, &str> = HashMap::new();
        for service in file.service.iter().filter(|service| service.tls.is_some()) {
            for pool in service.route.iter().flat_map(|route| route.get_ref().pools()) {
                reached.entry(pool.get_ref()).or_insert(service.name.get_ref());
            }
        }
        self.resume_over_tls(file, pools);
        self.pools_passed_through(file, pools);
        self.protocols_without_agents(file, pools);
        for (file, pool) in file.pool.iter().zip(pools) {
            if let (Some(service), Some(pool)) = (reached.get(file.name.get_ref().as_str()), pool) {
                self.pool_over_tls(file, pool, service);
            }
        }
    }

    /// Servers of other services than those whose TLS agents end get what clients send.
    fn protocols_without_agents(&mut self, file: &raw::File, pools: &[Option<Pool>]) {
        let mut others: HashMap<&str, (&str, &str)> = HashMap::new();
        for service in &file.service {
            let (what, remedy) = match &service.tls {
                None => ("without TLS", "leave the line out, and set h2c = true in the route"),
                Some(tls) if passes_through(tls) => ("with passthrough", "leave the line out"),
                Some(_) => continue,
            };
            for pool in service.route.iter().flat_map(|route| route.get_ref().pools()) {
                others.entry(pool.get_ref()).or_insert((what, remedy));
            }
        }
        for (file, pool) in file.pool.iter().zip(pools) {
            let Some(pool) = pool.as_ref().filter(|pool| pool.protocol != ServerProtocol::Http11) else {
                continue;
            };
            if let (Some(place), Some((what, remedy))) = (&file.protocol, others.get(pool.name.as_str())) {
                let what = format!(
                    "protocol \"{}\" in pool {:?} of a service {what}, whose servers get what clients send, {remedy}",
                    pool.protocol, pool.name
                );
                self.at(place, what);
            }
        }
    }

    /// What the kernel encrypts goes out before anybody knows it.
    fn resume_over_tls(&mut self, file: &raw::File, pools: &[Option<Pool>]) {
        let resumed = |name: &str| {
            let is_it = |pool: &&Pool| pool.name == name && pool.resume != Resume::Off;
            pools.iter().flatten().find(is_it)
        };
        for service in &file.service {
            let ktls = service.tls.as_ref().and_then(|tls| tls.ktls.as_ref());
            let Some(place) = ktls.filter(|ktls| *ktls.get_ref()) else { continue };
            let names = service.route.iter().flat_map(|route| route.get_ref().pools());
            if let Some(pool) = names.into_iter().find_map(|name| resumed(name.get_ref())) {
                let what = format!(
                    "ktls with pool {:?}, which has resume \"{}\", allowed is false, or leave the line out",
                    pool.name, pool.resume
                );
                self.at(place, what);
            }
        }
    }

    fn pool_over_tls(&mut self, file: &raw::Pool, pool: &Pool, service: &str) {
        let whose = format!(
            "in pool {:?} of service {service:?}, whose requests switches cannot read under TLS",
            pool.name
        );
        let by_client = HashKey::Client;
        // A hash by anything else makes balance "request" the default, so the two are one mistake.
        if let (Some(place), true) = (&file.hash, pool.hash != by_client) {
            self.at(place, format!("hash \"{}\" {whose}, allowed is hash \"{by_client}\"", pool.hash));
        } else if let (Some(place), Balance::Request) = (&file.balance, pool.balance) {
            let (request, connection) = (Balance::Request, Balance::Connection);
            self.at(place, format!("balance \"{request}\" {whose}, allowed is balance \"{connection}\""));
        }
        if let Some(place) = &file.delegate {
            self.at(place, format!("delegate {whose}, leave the line out"));
        }
        let (Some(file), Some(persistence)) = (&file.persistence, &pool.persistence) else { return };
        match (&persistence.mode, &file.hash) {
            (PersistenceMode::Rewrite { .. } | PersistenceMode::Insert(_), _) => {
                let mode = file.mode.get_ref();
                let what =
                    format!("mode {mode:?} {whose}, allowed is mode \"hash\" with hash \"{by_client}\"");
                self.at(&file.mode, what);
            }
            (PersistenceMode::Hash(key), Some(place)) if *key != by_client => {
                self.at(place, format!("hash \"{key}\" {whose}, allowed is hash \"{by_client}\""));
            }
            _ => {}
        }
    }
}
