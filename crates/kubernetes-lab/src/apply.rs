//! Manifests in YAML: created or changed, and deleted.

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client, ResourceExt};
use serde_json::Value;

use crate::error::{Doing, Error, Result};
use crate::kubernetes::FIELD_MANAGER;

/// An object of a manifest, and where it goes.
struct Item {
    api: Api<DynamicObject>,
    kind: String,
    name: String,
    object: Value,
}

impl Item {
    async fn new(client: &Client, object: Value) -> Result<Item> {
        let text = |place: &str| object.pointer(place).and_then(Value::as_str);
        let field = |place: &str| {
            let value = text(place).map(str::to_owned);
            value.ok_or_else(|| Error::Manifest(format!("an object without {place}: {object}")))
        };
        let (version, kind, name) = (field("/apiVersion")?, field("/kind")?, field("/metadata/name")?);
        let (group, version) = version.split_once('/').unwrap_or(("", &version));
        let gvk = GroupVersionKind::gvk(group, version, &kind);
        let doing = || format!("look for the kind {kind} of {group}/{version}");
        let (resource, capabilities) = pinned_kind(client, &gvk).await.doing(doing)?;
        let namespace = text("/metadata/namespace").unwrap_or("default");
        let api = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => Api::namespaced_with(client.clone(), namespace, &resource),
        };
        Ok(Item { api, kind, name, object })
    }
}

fn documents(manifest: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(manifest).map_err(|error| Error::Manifest(error.to_string()))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Applies each object of the manifest on the server's side, which refuses fields that it does not know. Kinds that it defines
/// exist when this returns.
pub(crate) async fn apply(client: &Client, manifest: &str) -> Result<Vec<DynamicObject>> {
    let mut applied = Vec::new();
    for object in documents(manifest)? {
        let item = Item::new(client, object).await?;
        let parameters = PatchParams::apply(FIELD_MANAGER).force().validation_strict();
        let doing = || format!("apply {} {}", item.kind, item.name);
        applied
            .push(item.api.patch(&item.name, &parameters, &Patch::Apply(&item.object)).await.doing(doing)?);
        if item.kind == "CustomResourceDefinition" {
            let what = format!("kind of {}", item.name);
            crate::wait::object(&item.api, &item.name, &what, |definition| {
                definition.is_some_and(is_established)
            })
            .await?;
        }
    }
    Ok(applied)
}

fn is_established(definition: &DynamicObject) -> bool {
    let conditions = definition.data.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
}

/// Deletes each object of the manifest, and waits until all are gone.
pub(crate) async fn delete(client: &Client, manifest: &str) -> Result<()> {
    let mut items = Vec::new();
    for object in documents(manifest)? {
        let item = Item::new(client, object).await?;
        let doing = || format!("delete {} {}", item.kind, item.name);
        match item.api.delete(&item.name, &DeleteParams::foreground()).await {
            // Another object, such as its namespace, may have taken it along.
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            result => drop(result.doing(doing)?),
        }
        items.push(item);
    }
    for Item { api, kind, name, .. } in items {
        let what = format!("end of {kind} {name}");
        crate::wait::object(&api, &name, &what, |object| object.is_none()).await?;
    }
    Ok(())
}

/// Name and namespace, for messages.
pub(crate) fn shown<K: ResourceExt>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}
