//! `[dns]`: who resolves names.

use std::time::Duration;

use crate::dns::HOLD;
use crate::mistakes::Mistakes;
use crate::{Dns, raw, syntax};

impl Mistakes {
    pub(super) fn dns(&mut self, file: &raw::Dns) -> Dns {
        let none = "no name server, leave the line out to ask those of the machine";
        let servers = file.servers.as_ref().map(|servers| self.each(servers, none, syntax::name_server));
        let hold = self.time("hold", &file.hold, HOLD, Duration::ZERO);
        Dns { servers: servers.unwrap_or_default(), hold }
    }
}
