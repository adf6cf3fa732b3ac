//! The resources that a translation reads.

use std::sync::Arc;

use gateway_api::apis::standard::gatewayclasses::GatewayClass;
use gateway_api::apis::standard::gateways::Gateway;
use gateway_api::apis::standard::httproutes::HttpRoute;
use gateway_api::apis::standard::referencegrants::ReferenceGrant;
use k8s_openapi::api::core::v1::{Namespace, Node, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Resource, ResourceExt};

/// All resources of these kinds at one time.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Classes, also those of other controllers.
    pub classes: Vec<Arc<GatewayClass>>,
    /// Gateways of all classes.
    pub gateways: Vec<Arc<Gateway>>,
    /// Routes, also those of other Gateways.
    pub routes: Vec<Arc<HttpRoute>>,
    /// Permissions for references into other namespaces.
    pub grants: Vec<Arc<ReferenceGrant>>,
    /// Services.
    pub services: Vec<Arc<Service>>,
    /// Endpoints of Services.
    pub slices: Vec<Arc<EndpointSlice>>,
    /// Secrets of type `kubernetes.io/tls`.
    pub secrets: Vec<Arc<Secret>>,
    /// Namespaces, for selectors of listeners.
    pub namespaces: Vec<Arc<Namespace>>,
    /// Machines.
    pub nodes: Vec<Arc<Node>>,
}

/// Namespace and name of a resource; the namespace is empty if it has none.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Place {
    /// The place of a resource.
    pub fn of(resource: &impl Resource) -> Place {
        Place::new(resource.namespace().unwrap_or_default(), resource.name_any())
    }

    /// A place.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Place {
        Place { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}
