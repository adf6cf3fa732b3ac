//! References into other namespaces, which ReferenceGrants there permit.

use std::sync::Arc;

use gateway_api::apis::standard::referencegrants::ReferenceGrant;

use crate::objects::Place;

/// The group of the Gateway API.
pub(super) const GROUP: &str = "gateway.networking.k8s.io";

/// A kind of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub group: &'static str,
    pub kind: &'static str,
}

pub(super) const GATEWAY: Kind = Kind { group: GROUP, kind: "Gateway" };
pub(super) const HTTP_ROUTE: Kind = Kind { group: GROUP, kind: "HTTPRoute" };
pub(super) const SECRET: Kind = Kind { group: "", kind: "Secret" };
pub(super) const SERVICE: Kind = Kind { group: "", kind: "Service" };

impl Kind {
    /// Whether a reference names this kind, which it also does by leaving it out.
    pub fn is(self, group: Option<&str>, kind: Option<&str>) -> bool {
        group.is_none_or(|group| group == self.group) && kind.is_none_or(|kind| kind == self.kind)
    }
}

/// Whether a resource of this kind and namespace may refer to one of another kind.
pub(super) fn permits(
    grants: &[Arc<ReferenceGrant>],
    (from, namespace): (Kind, &str),
    (to, place): (Kind, &Place),
) -> bool {
    let is_from = |grant: &ReferenceGrant| {
        let mut all = grant.spec.from.iter();
        all.any(|one| one.group == from.group && one.kind == from.kind && one.namespace == namespace)
    };
    let is_to = |grant: &ReferenceGrant| {
        grant.spec.to.iter().any(|one| {
            one.group == to.group
                && one.kind == to.kind
                && one.name.as_deref().filter(|name| !name.is_empty()).is_none_or(|name| name == place.name)
        })
    };
    namespace == place.namespace
        || grants.iter().any(|grant| {
            grant.metadata.namespace.as_deref() == Some(&place.namespace) && is_from(grant) && is_to(grant)
        })
}
