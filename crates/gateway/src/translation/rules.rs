//! The rules of an HTTPRoute as routes of `cluster.toml`.

use std::cmp::Reverse;

use gateway_api::apis::standard::httproutes::{
    HttpRoute, HttpRouteRules, HttpRouteRulesFilters, HttpRouteRulesFiltersRequestMirror,
    HttpRouteRulesFiltersRequestRedirect, HttpRouteRulesFiltersRequestRedirectScheme,
    HttpRouteRulesFiltersType, HttpRouteRulesFiltersUrlRewrite, HttpRouteRulesMatches,
    HttpRouteRulesMatchesHeadersType, HttpRouteRulesMatchesPathType, HttpRouteRulesMatchesQueryParamsType,
};
use kube::ResourceExt;
use switchback_config::SHARES;

use super::backends::{Backends, Reference, merged};
use super::conditions::Said;
use super::document::{Field, Redirect, RequestHeader, Rewrite, Route, Share, Written};

/// Status of a redirect that says none.
const FOUND: i64 = 302;

/// The precedence of a match among those with the same host: the least comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Precedence {
    /// An exact path, a regular expression, the longest prefix.
    path: (u8, Reverse<usize>),
    without_method: bool,
    headers: Reverse<usize>,
    parameters: Reverse<usize>,
}

/// A match of a rule.
#[derive(Clone, Debug)]
pub(super) struct Matched {
    pub precedence: Precedence,
    /// Without host. A prefix of path elements takes two.
    pub routes: Vec<Route>,
}

/// What becomes of a route's rules.
#[derive(Debug)]
pub(super) struct Rules {
    pub matches: Vec<Matched>,
    /// The first backend that cannot be used, and why.
    pub unresolved: Option<Said>,
}

/// The action of a rule, for a path that is known.
struct Action<'a> {
    redirect: Option<&'a HttpRouteRulesFiltersRequestRedirect>,
    rewrite: Option<&'a HttpRouteRulesFiltersUrlRewrite>,
    /// What does not depend on the path.
    route: Route,
}

/// Condition on the path.
enum Path {
    Any,
    Exact(String),
    /// Without the slash at its end.
    Prefix(String),
    Regex(String),
}

/// What takes the place of the path: `path` and `prefix` of a redirect or a rewrite.
type Replaced = (Option<String>, Option<String>);

/// The routes of the rules, or why the route cannot be taken as a whole.
pub(super) fn rules(route: &HttpRoute, backends: &mut Backends<'_>) -> Result<Rules, Said> {
    let namespace = route.namespace().unwrap_or_default();
    let mut rules = Rules { matches: Vec::new(), unresolved: None };
    for (index, rule) in route.spec.rules.iter().flatten().enumerate() {
        let unsupported = |what: String| {
            let name = rule.name.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
            Said::no("Accepted", "UnsupportedValue", format!("rule {}{name}: {what}", index + 1))
        };
        let action = action(&namespace, rule, backends, &mut rules.unresolved).map_err(unsupported)?;
        let any = [HttpRouteRulesMatches::default()];
        let matches = rule.matches.as_deref().filter(|matches| !matches.is_empty()).unwrap_or(&any);
        rules.matches.extend(matches.iter().map(|one| matched(one, &action)));
    }
    Ok(rules)
}

fn action<'a>(
    namespace: &str,
    rule: &'a HttpRouteRules,
    backends: &mut Backends<'_>,
    unresolved: &mut Option<Said>,
) -> Result<Action<'a>, String> {
    if rule.timeouts.is_some() {
        return Err("timeouts are not supported".to_owned());
    }
    let mut action = Action { redirect: None, rewrite: None, route: Route::default() };
    for filter in rule.filters.iter().flatten() {
        apply(filter, namespace, &mut action, backends, unresolved)?;
    }
    if action.redirect.is_some() {
        return Ok(action);
    }
    // Weight of backends that cannot be used.
    let (mut shares, mut lost) = (Vec::new(), 0);
    for backend in rule.backend_refs.iter().flatten() {
        if backend.filters.as_ref().is_some_and(|filters| !filters.is_empty()) {
            return Err(format!(
                "filters of the backend {} are not supported, those of rules are",
                backend.name
            ));
        }
        let reference = Reference {
            group: backend.group.as_deref(),
            kind: backend.kind.as_deref(),
            namespace: backend.namespace.as_deref(),
            name: &backend.name,
            port: backend.port,
        };
        let weight = u32::try_from(backend.weight.unwrap_or(1)).unwrap_or(0).min(*SHARES.end());
        match backends.pool(namespace, reference) {
            Ok(pool) => shares.extend((weight > 0).then_some(Share { pool, weight })),
            Err(said) => {
                unresolved.get_or_insert(said);
                lost += weight;
            }
        }
    }
    let mut shares = merged(shares);
    match &shares[..] {
        [] => action.route.respond = Some(500),
        // Endpoints that come make another document.
        [only] if lost == 0 && !backends.has_nodes(&only.pool) => action.route.respond = Some(503),
        [only] if lost == 0 => action.route.pool = Some(only.pool.clone()),
        _ => {
            shares.extend((lost > 0).then(|| Share { pool: backends.unserved(), weight: lost }));
            action.route.split = shares;
        }
    }
    if action.route.respond.is_some() {
        let Route { respond, .. } = action.route;
        action = Action { redirect: None, rewrite: None, route: Route { respond, ..Route::default() } };
    }
    Ok(action)
}

fn apply<'a>(
    filter: &'a HttpRouteRulesFilters,
    namespace: &str,
    action: &mut Action<'a>,
    backends: &mut Backends<'_>,
    unresolved: &mut Option<Said>,
) -> Result<(), String> {
    let twice = |is_there: bool, what: &str| match is_there {
        true => Err(format!("more than one {what} is not supported")),
        false => Ok(()),
    };
    match filter.r#type {
        HttpRouteRulesFiltersType::RequestHeaderModifier => {
            twice(action.route.request_header.is_some(), "RequestHeaderModifier")?;
            let Some(changes) = &filter.request_header_modifier else { return Ok(()) };
            let set = changes.set.iter().flatten();
            let add = changes.add.iter().flatten();
            let changes = RequestHeader {
                remove: changes.remove.clone().unwrap_or_default(),
                set: set
                    .map(|field| Written { name: field.name.clone(), value: field.value.clone() })
                    .collect(),
                add: add
                    .map(|field| Written { name: field.name.clone(), value: field.value.clone() })
                    .collect(),
            };
            action.route.request_header = (changes != RequestHeader::default()).then_some(changes);
        }
        HttpRouteRulesFiltersType::RequestMirror => {
            twice(action.route.mirror.is_some(), "RequestMirror")?;
            let Some(mirror) = &filter.request_mirror else { return Ok(()) };
            let backend = &mirror.backend_ref;
            let reference = Reference {
                group: backend.group.as_deref(),
                kind: backend.kind.as_deref(),
                namespace: backend.namespace.as_deref(),
                name: &backend.name,
                port: backend.port,
            };
            match (backends.pool(namespace, reference), mirror_share(mirror)) {
                (Err(said), _) => {
                    unresolved.get_or_insert(said);
                }
                (Ok(_), Some(share)) if share == "0%" => {}
                (Ok(pool), share) => {
                    action.route.mirror = Some(pool);
                    action.route.mirror_share = share;
                }
            }
        }
        HttpRouteRulesFiltersType::RequestRedirect => {
            twice(action.redirect.is_some(), "RequestRedirect")?;
            action.redirect = filter.request_redirect.as_ref();
        }
        HttpRouteRulesFiltersType::UrlRewrite => {
            twice(action.rewrite.is_some(), "URLRewrite")?;
            action.rewrite = filter.url_rewrite.as_ref();
        }
        HttpRouteRulesFiltersType::ResponseHeaderModifier => {
            return Err(
                "ResponseHeaderModifier is not supported: responses do not pass the gateway".to_owned()
            );
        }
        HttpRouteRulesFiltersType::Cors => return Err("CORS is not supported".to_owned()),
        HttpRouteRulesFiltersType::ExtensionRef => return Err("ExtensionRef is not supported".to_owned()),
    }
    Ok(())
}

/// The share of the requests that are copied, without one all.
fn mirror_share(mirror: &HttpRouteRulesFiltersRequestMirror) -> Option<String> {
    if let Some(percent) = mirror.percent {
        return Some(format!("{percent}%"));
    }
    let fraction = mirror.fraction.as_ref()?;
    let hundredths =
        i64::from(fraction.numerator) * 10_000 / i64::from(fraction.denominator.unwrap_or(100).max(1));
    let share = format!("{}.{:02}", hundredths / 100, hundredths % 100);
    Some(format!("{}%", share.trim_end_matches('0').trim_end_matches('.')))
}

fn matched(one: &HttpRouteRulesMatches, action: &Action<'_>) -> Matched {
    let headers = one.headers.iter().flatten().map(|field| {
        let is_regex = field.r#type == Some(HttpRouteRulesMatchesHeadersType::RegularExpression);
        self::field(&field.name, &field.value, is_regex)
    });
    let query = one.query_params.iter().flatten().map(|field| {
        let is_regex = field.r#type == Some(HttpRouteRulesMatchesQueryParamsType::RegularExpression);
        self::field(&field.name, &field.value, is_regex)
    });
    let route = Route {
        method: one.method.as_ref().map(|method| format!("{method:?}").to_ascii_uppercase()),
        header: headers.collect(),
        query: query.collect(),
        ..action.route.clone()
    };
    let path = path(one);
    let (kind, len) = match &path {
        Path::Exact(text) => (0, text.len()),
        Path::Regex(text) => (1, text.len()),
        Path::Prefix(text) => (2, text.len()),
        Path::Any => (2, 1),
    };
    let precedence = Precedence {
        path: (kind, Reverse(len)),
        without_method: route.method.is_none(),
        headers: Reverse(route.header.len()),
        parameters: Reverse(route.query.len()),
    };
    let whole = |prefix: &str| (Some(or_root(prefix)), None);
    let routes = match path {
        Path::Any => vec![finished(route, action, |prefix| (None, some(prefix.trim_end_matches('/'))))],
        Path::Exact(text) => vec![finished(Route { path_exact: Some(text), ..route }, action, whole)],
        Path::Regex(text) => vec![finished(Route { path_regex: Some(text), ..route }, action, whole)],
        Path::Prefix(text) => {
            let itself = Route { path_exact: Some(text.clone()), ..route.clone() };
            let below = Route { path: Some(format!("{text}/")), ..route };
            vec![
                finished(itself, action, |prefix| whole(prefix.trim_end_matches('/'))),
                finished(below, action, |prefix| (None, Some(format!("{}/", prefix.trim_end_matches('/'))))),
            ]
        }
    };
    Matched { precedence, routes }
}

/// The route with its redirect or rewrite, where `prefix` is what the replacement of a prefix makes of the path.
fn finished(route: Route, action: &Action<'_>, prefix: impl Fn(&str) -> Replaced) -> Route {
    let replaced = |whole: Option<&String>, of_prefix: Option<&String>| match (whole, of_prefix) {
        (Some(whole), _) => (Some(whole.clone()), None),
        (None, Some(text)) => prefix(text),
        (None, None) => (None, None),
    };
    let redirect = action.redirect.map(|redirect| {
        let new = redirect.path.as_ref();
        let (path, prefix) = replaced(
            new.and_then(|path| path.replace_full_path.as_ref()),
            new.and_then(|path| path.replace_prefix_match.as_ref()),
        );
        Redirect {
            scheme: redirect.scheme.as_ref().map(|scheme| match scheme {
                HttpRouteRulesFiltersRequestRedirectScheme::Http => "http",
                HttpRouteRulesFiltersRequestRedirectScheme::Https => "https",
            }),
            host: redirect.hostname.clone(),
            port: redirect.port,
            path,
            prefix,
            status: redirect.status_code.unwrap_or(FOUND),
        }
    });
    let rewrite = action.rewrite.map(|rewrite| {
        let new = rewrite.path.as_ref();
        let (path, prefix) = replaced(
            new.and_then(|path| path.replace_full_path.as_ref()),
            new.and_then(|path| path.replace_prefix_match.as_ref()),
        );
        Rewrite { host: rewrite.hostname.clone(), path, prefix }
    });
    Route { redirect, rewrite: rewrite.filter(|rewrite| *rewrite != Rewrite::default()), ..route }
}

fn or_root(path: &str) -> String {
    if path.is_empty() { "/".to_owned() } else { path.to_owned() }
}

/// The text, unless it is empty.
fn some(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn field(name: &str, value: &str, is_regex: bool) -> Field {
    let (value, regex) = match is_regex {
        false => (Some(value.to_owned()), None),
        true => (None, Some(value.to_owned())),
    };
    Field { name: name.to_owned(), value, regex }
}

/// The condition on the path; texts are in the form in which requests are compared.
fn path(one: &HttpRouteRulesMatches) -> Path {
    let Some(path) = &one.path else { return Path::Any };
    let text = path.value.as_deref().unwrap_or("/");
    let normal = || switchback_http::path::normal(text).into_owned();
    match path.r#type {
        Some(HttpRouteRulesMatchesPathType::Exact) => Path::Exact(normal()),
        Some(HttpRouteRulesMatchesPathType::RegularExpression) => Path::Regex(text.to_owned()),
        Some(HttpRouteRulesMatchesPathType::PathPrefix) | None => match normal().trim_end_matches('/') {
            "" => Path::Any,
            prefix => Path::Prefix(prefix.to_owned()),
        },
    }
}
