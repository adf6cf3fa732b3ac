//! Listeners of Gateways: which are valid, and which routes they take.

use std::sync::Arc;

use gateway_api::apis::standard::gateways::{
    Gateway, GatewayListeners, GatewayListenersAllowedRoutesNamespacesFrom, GatewayListenersTlsMode,
    GatewayStatusListeners, GatewayStatusListenersSupportedKinds,
};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt;
use kube::core::{Selector, SelectorExt};

use super::certificates::{Files, certificate};
use super::conditions::{Conditions, Said};
use super::document::Certificate;
use super::grants::HTTP_ROUTE;
use crate::objects::Objects;

/// A listener.
#[derive(Debug)]
pub(super) struct Listener<'a> {
    pub spec: &'a GatewayListeners,
    /// HTTPRoutes may be attached.
    takes_http_routes: bool,
    accepted: Said,
    conflicted: Said,
    resolved: Said,
    /// Those that can be used, with TLS.
    pub certificates: Vec<Certificate>,
    /// Number of routes.
    pub attached: i32,
}

impl<'a> Listener<'a> {
    /// The listeners of a Gateway. Files of their certificates are added.
    pub fn all(gateway: &'a Gateway, objects: &Objects, files: &mut Files) -> Vec<Listener<'a>> {
        let all = &gateway.spec.listeners;
        let namespace = gateway.namespace().unwrap_or_default();
        let listener = |spec: &'a GatewayListeners| {
            let mut listener = Listener {
                spec,
                takes_http_routes: false,
                accepted: Said::yes("Accepted", "Accepted"),
                conflicted: Said::no("Conflicted", "NoConflicts", ""),
                resolved: Said::yes("ResolvedRefs", "ResolvedRefs"),
                certificates: Vec::new(),
                attached: 0,
            };
            listener.check_protocol();
            listener.check_conflicts(all);
            listener.check_kinds();
            if listener.has_tls() {
                listener.check_certificates(&namespace, objects, files);
            }
            listener
        };
        all.iter().map(listener).collect()
    }

    /// Whether it is accepted.
    pub fn is_accepted(&self) -> bool {
        self.accepted.holds
    }

    /// Whether it can be served.
    pub fn is_valid(&self) -> bool {
        self.takes_http_routes && (!self.has_tls() || !self.certificates.is_empty())
    }

    pub fn has_tls(&self) -> bool {
        self.spec.protocol == "HTTPS"
    }

    fn check_protocol(&mut self) {
        let protocol = self.spec.protocol.as_str();
        let mode = self.spec.tls.as_ref().and_then(|tls| tls.mode.as_ref());
        let refused = match (protocol, mode) {
            ("HTTP", _) => return,
            ("HTTPS", None | Some(GatewayListenersTlsMode::Terminate)) => return,
            ("HTTPS", Some(GatewayListenersTlsMode::Passthrough)) => {
                "HTTPS with mode Passthrough is not supported".to_owned()
            }
            _ => format!("protocol {protocol} is not supported; HTTP and HTTPS are"),
        };
        self.accepted = Said::no("Accepted", "UnsupportedProtocol", refused);
    }

    fn check_kinds(&mut self) {
        let kinds = self.spec.allowed_routes.as_ref().and_then(|allowed| allowed.kinds.as_ref());
        let is_http = |kind: &&gateway_api::apis::standard::gateways::GatewayListenersAllowedRoutesKinds| {
            HTTP_ROUTE.is(kind.group.as_deref(), Some(&kind.kind))
        };
        match kinds.filter(|kinds| !kinds.is_empty()) {
            None => self.takes_http_routes = true,
            Some(kinds) => {
                self.takes_http_routes = kinds.iter().any(|kind| is_http(&kind));
                if let Some(other) = kinds.iter().find(|kind| !is_http(kind)) {
                    let what = format!("routes of kind {} are not supported; HTTPRoute is", other.kind);
                    self.resolved = Said::no("ResolvedRefs", "InvalidRouteKinds", what);
                }
            }
        }
        self.takes_http_routes &= self.is_accepted();
    }

    fn check_conflicts(&mut self, all: &[GatewayListeners]) {
        let GatewayListeners { name, port, protocol, hostname, .. } = self.spec;
        let mut others = all.iter().filter(|other| other.port == *port && other.name != *name);
        let conflict = others.clone().find(|other| other.protocol != *protocol);
        let conflict = conflict.map(|other| ("ProtocolConflict", other));
        let same =
            || others.find(|other| other.hostname == *hostname).map(|other| ("HostnameConflict", other));
        if let Some((reason, other)) = conflict.or_else(same) {
            let what = format!("listener {} has port {port}, too", other.name);
            self.conflicted = Said { reason, message: what.clone(), ..Said::yes("Conflicted", reason) };
            self.accepted = Said::no("Accepted", reason, what);
        }
    }

    fn check_certificates(&mut self, namespace: &str, objects: &Objects, files: &mut Files) {
        let references = self.spec.tls.as_ref().and_then(|tls| tls.certificate_refs.as_ref());
        for reference in references.into_iter().flatten() {
            match certificate(objects, namespace, reference, files) {
                Ok(certificate) => self.certificates.push(certificate),
                Err(said) => self.resolved = said,
            }
        }
        if self.certificates.is_empty() && self.resolved.holds {
            self.resolved = Said::no("ResolvedRefs", "InvalidCertificateRef", "there is no certificateRef");
        }
    }

    /// Whether HTTPRoutes of a namespace may be attached to this listener of `gateway`.
    pub fn allows(&self, namespace: &str, gateway: &Gateway, namespaces: &[Arc<Namespace>]) -> bool {
        let from = self.spec.allowed_routes.as_ref().and_then(|allowed| allowed.namespaces.as_ref());
        let is_same = gateway.namespace().as_deref() == Some(namespace);
        let is_from = match from.and_then(|from| from.from.as_ref()) {
            None | Some(GatewayListenersAllowedRoutesNamespacesFrom::Same) => is_same,
            Some(GatewayListenersAllowedRoutesNamespacesFrom::All) => true,
            Some(GatewayListenersAllowedRoutesNamespacesFrom::Selector) => {
                let found = namespaces.iter().find(|one| one.name_any() == namespace);
                let selector = from.and_then(|from| from.selector.as_ref()).and_then(selector);
                selector.zip(found).is_some_and(|(selector, found)| selector.matches(found.labels()))
            }
        };
        self.takes_http_routes && is_from
    }

    /// Its status.
    pub fn status(
        &self,
        is_programmed: bool,
        conditions: Conditions,
        gateway: &Gateway,
    ) -> GatewayStatusListeners {
        let before = gateway.status.as_ref().and_then(|status| status.listeners.as_ref());
        let before = before.and_then(|all| all.iter().find(|one| one.name == self.spec.name));
        let programmed = match is_programmed && self.is_valid() {
            true => Said::yes("Programmed", "Programmed"),
            false => Said::no("Programmed", "Invalid", "see the other conditions"),
        };
        let said = vec![self.accepted.clone(), self.conflicted.clone(), self.resolved.clone(), programmed];
        let kind = GatewayStatusListenersSupportedKinds {
            group: Some(HTTP_ROUTE.group.to_owned()),
            kind: HTTP_ROUTE.kind.to_owned(),
        };
        GatewayStatusListeners {
            attached_routes: self.attached,
            conditions: conditions.of(said, before.map_or(&[], |before| &before.conditions)),
            name: self.spec.name.clone(),
            supported_kinds: Some(self.takes_http_routes.then_some(kind).into_iter().collect()),
        }
    }
}

/// None if the selector cannot be read: it selects nothing.
fn selector(
    selector: &gateway_api::apis::standard::gateways::GatewayListenersAllowedRoutesNamespacesSelector,
) -> Option<Selector> {
    let requirement = |one: &gateway_api::apis::standard::gateways::GatewayListenersAllowedRoutesNamespacesSelectorMatchExpressions| {
        LabelSelectorRequirement {
            key: one.key.clone(),
            operator: one.operator.clone(),
            values: one.values.clone(),
        }
    };
    let expressions = selector.match_expressions.as_ref();
    let selector = LabelSelector {
        match_expressions: expressions.map(|all| all.iter().map(requirement).collect()),
        match_labels: selector.match_labels.clone(),
    };
    Selector::try_from(selector).ok()
}
