//! Conditions of routes, and of what they do not take.

use std::sync::Arc;

use super::networks::Lists;
use crate::mistakes::{Mistakes, Text};
use crate::raw::{OneOrMany, Spanned};
use crate::{ClientMatch, Conditions, FieldMatch, PathMatch, Pattern, ValueMatch, raw, syntax};

/// Conditions in the file, whose keys a route has beside others.
pub(super) struct Texts<'a> {
    pub(super) host: &'a Option<Spanned<raw::Texts>>,
    pub(super) path: &'a Text,
    pub(super) path_exact: &'a Text,
    pub(super) path_regex: &'a Text,
    pub(super) method: &'a Option<Spanned<raw::Texts>>,
    pub(super) client: &'a Option<Spanned<raw::Texts>>,
    pub(super) header: &'a Option<Spanned<OneOrMany<raw::Field>>>,
    pub(super) query: &'a Option<Spanned<OneOrMany<raw::Field>>>,
}

impl<'a> Texts<'a> {
    pub(super) fn of_route(route: &'a raw::Route) -> Self {
        let raw::Route { host, path, path_exact, path_regex, method, client, header, query, .. } = route;
        Texts { host, path, path_exact, path_regex, method, client, header, query }
    }

    pub(super) fn of_exception(exception: &'a raw::Conditions) -> Self {
        let raw::Conditions { host, path, path_exact, path_regex, method, client, header, query } = exception;
        Texts { host, path, path_exact, path_regex, method, client, header, query }
    }
}

impl Mistakes {
    pub(super) fn conditions(&mut self, texts: &Texts<'_>, lists: &Lists<'_>) -> Conditions {
        let hosts = texts.host.as_ref().map_or(Vec::new(), |hosts| {
            self.each(hosts, "no host, leave the line out to allow any", syntax::host)
        });
        let methods = texts.method.as_ref().map_or(Vec::new(), |methods| {
            self.each(methods, "no method, leave the line out to allow any", syntax::method)
        });
        Conditions {
            hosts,
            path: self.path_match(texts),
            methods,
            headers: self.fields(texts.header.as_ref(), syntax::header_name, syntax::header_value),
            query: self.fields(texts.query.as_ref(), syntax::parameter_name, |value| Ok(value.to_owned())),
            clients: texts.client.as_ref().map(|clients| {
                let (texts, networks) = self.clients_in(clients, "leave the line out to allow any", lists);
                let networks = networks.into_iter().map(|network| (network, ())).collect();
                ClientMatch { texts, networks: Arc::new(networks) }
            }),
        }
    }

    /// The tables of `not`.
    pub(super) fn exceptions(
        &mut self,
        tables: Option<&Spanned<OneOrMany<raw::Conditions>>>,
        lists: &Lists<'_>,
    ) -> Vec<Conditions> {
        let Some(tables) = tables else { return Vec::new() };
        let mut exceptions = Vec::new();
        for table in &tables.get_ref().0 {
            let before = self.count();
            let exception = self.conditions(&Texts::of_exception(table), lists);
            if exception.is_empty() && self.count() == before {
                self.at(
                    tables,
                    "a table of not has no conditions, so the route takes nothing: at least one is needed",
                );
            }
            exceptions.push(exception);
        }
        exceptions
    }

    fn path_match(&mut self, texts: &Texts<'_>) -> Option<PathMatch> {
        let keys = [texts.path, texts.path_exact, texts.path_regex];
        if let Some(second) = keys.into_iter().flatten().nth(1) {
            self.at(second, "the path is given twice, allowed is one of path, path_exact and path_regex");
        }
        let taken = |text: &Spanned<String>, mistakes: &mut Mistakes| {
            mistakes.take(text, syntax::path(text.get_ref()))
        };
        if let Some(prefix) = texts.path {
            // Every path begins with a slash.
            return taken(prefix, self).filter(|prefix| prefix != "/").map(PathMatch::Prefix);
        }
        if let Some(exact) = texts.path_exact {
            return taken(exact, self).map(PathMatch::Exact);
        }
        let regex = texts.path_regex.as_ref()?;
        self.take(regex, Pattern::new(regex.get_ref())).map(PathMatch::Regex)
    }

    fn fields(
        &mut self,
        tables: Option<&Spanned<OneOrMany<raw::Field>>>,
        name: impl Fn(&str) -> Result<String, String>,
        value: impl Fn(&str) -> Result<String, String>,
    ) -> Vec<FieldMatch> {
        let Some(tables) = tables else { return Vec::new() };
        if tables.get_ref().0.is_empty() {
            self.at(tables, "an empty list, leave the line out");
        }
        let mut fields = Vec::new();
        for raw::Field { name: text, value: wanted, regex, absent } in &tables.get_ref().0 {
            let absent = absent.as_ref().filter(|absent| *absent.get_ref());
            let several = "the field is described twice, allowed is one of value, regex and absent";
            match (wanted, regex, absent) {
                (Some(_), Some(regex), _) => self.at(regex, several),
                (None, Some(_), Some(absent)) | (Some(_), None, Some(absent)) => self.at(absent, several),
                _ => {}
            }
            let value = match (wanted, regex, absent) {
                (Some(wanted), ..) => self.take(wanted, value(wanted.get_ref())).map(ValueMatch::Is),
                (_, Some(regex), _) => self.take(regex, Pattern::new(regex.get_ref())).map(ValueMatch::Regex),
                (.., Some(_)) => Some(ValueMatch::Absent),
                _ => Some(ValueMatch::Any),
            };
            let name = self.take(text, name(text.get_ref()));
            fields.extend(name.zip(value).map(|(name, value)| FieldMatch { name, value }));
        }
        fields
    }
}
