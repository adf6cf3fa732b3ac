//! `rewrite` and `request_header` of a route: what its server gets instead of what the client has sent.

use crate::mistakes::Mistakes;
use crate::raw::{OneOrMany, Spanned};
use crate::{
    CLIENT_FIELDS, ClientAddress, Conditions, NewField, Rewrite, TlsMode, is_same_variable, raw, syntax,
};

/// Where a field may be named.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Key {
    Set,
    Add,
    Remove,
}

impl Mistakes {
    pub(super) fn rewrite(&mut self, route: &raw::Route, conditions: &Conditions, tls: &TlsMode) -> Rewrite {
        let raw::Route { rewrite, request_header, .. } = route;
        self.rewrite_has_server(route);
        let mut changes = Rewrite::default();
        if let Some(place) = rewrite {
            let raw::Rewrite { host, path, prefix } = place.get_ref();
            if host.is_none() && path.is_none() && prefix.is_none() {
                self.at(place, "this rewrite changes nothing, at least one of host, path, prefix is needed");
            }
            let host = host.as_ref();
            changes.host = host.and_then(|host| self.take(host, syntax::host_without_port(host.get_ref())));
            changes.path = self.path_change((path, prefix), conditions, syntax::rewritten_path);
        }
        if let Some(place) = request_header {
            self.request_header(place, tls, &mut changes);
        }
        changes
    }

    /// Checks that the server of a route gets what somebody has read.
    fn rewrite_has_server(&mut self, route: &raw::Route) {
        let leads_nowhere = route.redirect.is_some() || route.respond.is_some();
        let places = [
            ("rewrite", route.rewrite.as_ref().map(|place| place.span().start)),
            ("request_header", route.request_header.as_ref().map(|place| place.span().start)),
        ];
        for (key, place) in places {
            let Some(place) = place else { continue };
            if leads_nowhere {
                self.at_offset(
                    place,
                    format!("{key} is about what servers get, but the route leads to none"),
                );
            } else if route.h2c.as_ref().is_some_and(|h2c| *h2c.get_ref()) {
                self.at_offset(place, format!("{key} with h2c, of which the switch reads nothing"));
            }
        }
    }

    fn request_header(&mut self, place: &Spanned<raw::RequestHeader>, tls: &TlsMode, changes: &mut Rewrite) {
        let raw::RequestHeader { set, add, remove } = place.get_ref();
        if set.is_none() && add.is_none() && remove.is_none() {
            self.at(place, "this request_header changes nothing, at least one of set, add, remove is needed");
        }
        let mut named: Vec<(String, Key)> = Vec::new();
        changes.set = self.new_fields(set.as_ref(), Key::Set, tls, &mut named);
        changes.add = self.new_fields(add.as_ref(), Key::Add, tls, &mut named);
        if let Some(names) = remove {
            changes.remove = self.each(names, "no field, leave the line out", |name| {
                Ok(field(name, Key::Remove, tls, &mut named)?.to_ascii_lowercase())
            });
        }
    }

    fn new_fields(
        &mut self,
        fields: Option<&Spanned<OneOrMany<raw::NewField>>>,
        key: Key,
        tls: &TlsMode,
        named: &mut Vec<(String, Key)>,
    ) -> Vec<NewField> {
        let Some(fields) = fields else { return Vec::new() };
        if fields.get_ref().0.is_empty() {
            self.at(fields, "an empty list, leave the line out");
        }
        let mut new = Vec::new();
        for raw::NewField { name, value } in &fields.get_ref().0 {
            let name = self.take(name, field(name.get_ref(), key, tls, named));
            let value = self.take(value, syntax::sent_value(value.get_ref()));
            new.extend(name.zip(value).map(|(name, value)| NewField { name, value }));
        }
        new
    }
}

/// A field's name, which is noted in `named`.
fn field(name: &str, key: Key, tls: &TlsMode, named: &mut Vec<(String, Key)>) -> Result<String, String> {
    let name = syntax::changed_field(name)?;
    let is_told = tls.terminated().is_some_and(|tls| {
        matches!(tls.client_address, ClientAddress::XForwarded | ClientAddress::Forwarded)
    });
    if is_told && CLIENT_FIELDS.iter().any(|told| is_same_variable(told, &name)) {
        return Err(format!(
            "{name} is what nodes say of clients, allowed is it with client_address = \"{}\" or \"{}\"",
            ClientAddress::Proxy.name(),
            ClientAddress::Nothing.name()
        ));
    }
    if key == Key::Add && is_same_variable("cookie", &name) {
        return Err(
            "a request has one Cookie field only (RFC 6265 section 5.4), allowed is it in set".to_owned()
        );
    }
    let again = named
        .iter()
        .any(|(other, at)| is_same_variable(other, &name) && !(key == Key::Add && *at == Key::Add));
    if again {
        return Err(format!("{name} is named already, allowed is each field once, or several times in add"));
    }
    named.push((name.clone(), key));
    Ok(name)
}
