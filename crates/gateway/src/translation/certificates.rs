//! Certificates of listeners, in Secrets.

use std::collections::BTreeMap;

use gateway_api::apis::standard::gateways::GatewayListenersTlsCertificateRefs;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::conditions::Said;
use super::document::Certificate;
use super::grants::{GATEWAY, SECRET, permits};
use super::names::hex;
use crate::objects::{Objects, Place};

/// Files that the document names, by their names.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// The certificate of a reference, whose file is added; or why it cannot be used.
pub(super) fn certificate(
    objects: &Objects,
    namespace: &str,
    reference: &GatewayListenersTlsCertificateRefs,
    files: &mut Files,
) -> Result<Certificate, Said> {
    let refused = |reason, what: String| Said::no("ResolvedRefs", reason, what);
    let invalid = |what: String| refused("InvalidCertificateRef", what);
    let GatewayListenersTlsCertificateRefs { group, kind, name, namespace: other } = reference;
    if !SECRET.is(group.as_deref(), kind.as_deref()) {
        let kind = kind.as_deref().unwrap_or("Secret");
        return Err(invalid(format!("a certificate is in a Secret, not in a {kind}")));
    }
    let place = Place::new(other.as_deref().unwrap_or(namespace), name);
    if !permits(&objects.grants, (GATEWAY, namespace), (SECRET, &place)) {
        let what = format!("no ReferenceGrant in {} lets Gateways of {namespace} use it", place.namespace);
        return Err(refused("RefNotPermitted", format!("Secret {place}: {what}")));
    }
    let is_it = |secret: &&std::sync::Arc<Secret>| {
        secret.name_any() == place.name && secret.namespace().as_deref() == Some(&place.namespace)
    };
    let secret = objects.secrets.iter().find(is_it);
    let secret =
        secret.ok_or_else(|| invalid(format!("there is no Secret {place} of type kubernetes.io/tls")))?;
    let content = pair(secret).map_err(|what| invalid(format!("Secret {place}: {what}")))?;
    let name = format!("tls-{}.pem", &hex(&content)[..16]);
    files.insert(name.clone(), content);
    Ok(Certificate { chain: name.clone(), key: name })
}

/// Certificate, chain and key of a Secret as one text in PEM.
fn pair(secret: &Secret) -> Result<Vec<u8>, String> {
    let of = |name: &str| {
        let data = secret.data.as_ref().and_then(|data| data.get(name));
        data.map(|content| content.0.as_slice()).ok_or_else(|| format!("it has no {name}"))
    };
    let (chain, key) = (of("tls.crt")?, of("tls.key")?);
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(chain).collect();
    let certificates = certificates.map_err(|error| format!("tls.crt: {error}"))?;
    if certificates.is_empty() {
        return Err("tls.crt has no certificate in PEM".to_owned());
    }
    let parsed = PrivateKeyDer::from_pem_slice(key).map_err(|error| format!("tls.key: {error}"))?;
    CertifiedKey::from_der(certificates, parsed, &default_provider()).map_err(|error| error.to_string())?;
    Ok([chain, b"\n", key].concat())
}
