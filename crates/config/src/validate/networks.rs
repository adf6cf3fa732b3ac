//! Networks of clients: lists with a name, in the file and in files of their own, and what names them.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::mistakes::Mistakes;
use crate::raw::{Spanned, Texts};
use crate::{Admitted, Network, raw, syntax};

/// The most networks of a list.
const MAX_LISTED: usize = 1_000_000;
/// The most mistakes that are told of a file.
const MAX_TOLD: usize = 10;

/// Lists by their names.
pub(super) type Lists<'a> = HashMap<&'a str, Vec<Network>>;

impl Mistakes {
    /// `[[networks]]`, with their files.
    pub(super) fn network_lists<'a>(&mut self, lists: &'a [raw::NetworkList], directory: &Path) -> Lists<'a> {
        self.names("networks", lists.iter().map(|list| &list.name));
        let mut read = Lists::new();
        for raw::NetworkList { name, list, file } in lists {
            let mut networks = list.as_ref().map_or(Vec::new(), |list| {
                self.each(list, "an empty list, leave the line out", syntax::network_or_address)
            });
            if let Some(file) = file {
                networks.extend(self.listed_in(file, directory));
            }
            if list.is_none() && file.is_none() {
                let what = format!("networks {:?} has neither list nor file, one is needed", name.get_ref());
                self.at(name, what);
            }
            if networks.len() > MAX_LISTED {
                let what = format!("{} networks, allowed are at most {MAX_LISTED}", networks.len());
                self.at(name, what);
            }
            read.entry(name.get_ref()).or_insert(networks);
        }
        read
    }

    /// The networks in a file.
    fn listed_in(&mut self, file: &Spanned<String>, directory: &Path) -> Vec<Network> {
        let path = directory.join(file.get_ref());
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) => {
                self.at(file, format!("cannot read {}: {error}", path.display()));
                return Vec::new();
            }
        };
        let mut networks = Vec::new();
        let mut wrong = 0;
        for (line, text) in text.lines().enumerate() {
            let text = text.split(['#', ';']).next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            match syntax::network_or_address(text) {
                Ok(network) => networks.push(network),
                Err(what) => {
                    wrong += 1;
                    if wrong <= MAX_TOLD {
                        self.at(file, format!("{} line {}: {what}", path.display(), line + 1));
                    }
                }
            }
        }
        if wrong > MAX_TOLD {
            self.at(file, format!("{} has {} more mistakes", path.display(), wrong - MAX_TOLD));
        }
        networks
    }

    /// Networks, addresses and names of lists: the texts, and the networks of all of them.
    pub(super) fn clients_in(
        &mut self,
        texts: &Spanned<Texts>,
        remedy: &str,
        lists: &Lists<'_>,
    ) -> (Vec<String>, Vec<Network>) {
        let found = self.each(texts, &format!("no network, {remedy}"), |text| {
            let networks = lists
                .get(text)
                .cloned()
                .map_or_else(|| syntax::client(text, lists.keys().copied()).map(|network| vec![network]), Ok);
            networks.map(|networks| (text.to_owned(), networks))
        });
        let (texts, networks): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        (texts, networks.concat())
    }

    /// `[service.clients]`
    pub(super) fn admitted(&mut self, file: &raw::Clients, lists: &Lists<'_>) -> Admitted {
        let mut read = |texts: &Option<Spanned<Texts>>, remedy| {
            texts.as_ref().map_or((Vec::new(), Vec::new()), |texts| self.clients_in(texts, remedy, lists))
        };
        let (allow, allowed) = read(&file.allow, "leave the line out to let all clients in");
        let (deny, denied) = read(&file.deny, "leave the line out to deny none");
        let all = [Network::ALL_V4, Network::ALL_V6].map(|network| (network, file.allow.is_none()));
        let allowed = allowed.into_iter().map(|network| (network, true));
        let denied = denied.into_iter().map(|network| (network, false));
        let networks = Arc::new(all.into_iter().chain(allowed).chain(denied).collect());
        Admitted { networks, allow, deny }
    }
}
