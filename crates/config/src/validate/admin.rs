//! `[admin]`: an address that is free on every machine.

use crate::mistakes::Mistakes;
use crate::raw::Spanned;
use crate::{Admin, Service, raw, syntax};

impl Mistakes {
    /// None without the table, or with a mistake in it.
    pub(super) fn admin(&mut self, file: Option<&raw::Admin>, services: &[Service]) -> Option<Admin> {
        let file = file?;
        let hosts =
            file.hosts.iter().filter_map(|host| self.take(host, syntax::host_without_port(host.get_ref())));
        let hosts = hosts.collect();
        let Some(text) = &file.listen else { return Some(Admin { hosts, ..Admin::default() }) };
        let listen = self.take(text, syntax::admin_address(text.get_ref()))?;
        let admin = Admin { listen, hosts };
        self.admin_beside(text, &admin, services);
        Some(admin)
    }

    /// On a node the servers listen at the VIPs, or at all addresses.
    fn admin_beside(&mut self, text: &Spanned<String>, admin: &Admin, services: &[Service]) {
        let everywhere = admin.listen.ip().is_unspecified();
        let clashes = |service: &&Service| {
            let mut vips = service.listen.iter();
            vips.any(|vip| vip.ip() == admin.listen.ip() || everywhere && vip.port() == admin.listen.port())
        };
        let Some(service) = services.iter().find(clashes) else { return };
        let what =
            if everywhere { format!("port {}", admin.listen.port()) } else { admin.listen.ip().to_string() };
        let name = &service.name;
        self.at(text, format!("{what} is that of service {name:?}, allowed is one that no service has"));
    }
}
