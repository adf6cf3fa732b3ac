//! Resources in files of YAML, and what becomes of them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::*;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/translation");

fn settings() -> Settings {
    Settings {
        controller: "switchback.dev/gateway".to_owned(),
        addresses: vec!["203.0.113.0/29".parse().unwrap()],
        tables: "[admin]\nlisten = \"0.0.0.0:9180\"\n".to_owned(),
    }
}

/// Adds a resource to those of its kind.
fn add(objects: &mut Objects, resource: Value) {
    fn push<T: DeserializeOwned>(all: &mut Vec<Arc<T>>, resource: Value) {
        let text = resource.to_string();
        all.push(Arc::new(
            serde_json::from_value(resource).unwrap_or_else(|error| panic!("{error}: {text}")),
        ));
    }
    let kind = resource["kind"].as_str().unwrap_or_else(|| panic!("no kind: {resource}")).to_owned();
    match kind.as_str() {
        "GatewayClass" => push(&mut objects.classes, resource),
        "Gateway" => push(&mut objects.gateways, resource),
        "HTTPRoute" => push(&mut objects.routes, resource),
        "ReferenceGrant" => push(&mut objects.grants, resource),
        "Service" => push(&mut objects.services, resource),
        "EndpointSlice" => push(&mut objects.slices, resource),
        "Secret" => push(&mut objects.secrets, resource),
        "Namespace" => push(&mut objects.namespaces, resource),
        "Node" => push(&mut objects.nodes, resource),
        _ => panic!("{kind}"),
    }
}

/// The resources of a text of YAML.
fn objects(yaml: &str) -> Objects {
    let mut objects = Objects::default();
    for document in yaml.split("\n---\n").filter(|document| !document.trim().is_empty()) {
        add(
            &mut objects,
            serde_saphyr::from_str(document).unwrap_or_else(|error| panic!("{error}\n{document}")),
        );
    }
    objects
}

/// The conditions, a line each.
fn lines(out: &mut String, what: &str, conditions: &[Condition]) {
    for Condition { type_, status, reason, message, .. } in conditions {
        let message = if message.is_empty() { String::new() } else { format!(": {message}") };
        writeln!(out, "{what} {type_}={status} {reason}{message}").unwrap();
    }
}

/// What a translation says, as its file has it.
fn shown(translation: &Translation) -> String {
    let mut out = String::new();
    for (place, status) in &translation.gateways {
        let addresses = status.addresses.iter().flatten().map(|address| address.value.as_str());
        let addresses: Vec<&str> = addresses.collect();
        writeln!(out, "Gateway {place} addresses={}", addresses.join(",")).unwrap();
        lines(&mut out, &format!("Gateway {place}"), status.conditions.as_ref().unwrap());
        for listener in status.listeners.iter().flatten() {
            let what = format!("Gateway {place} listener {}", listener.name);
            writeln!(out, "{what} routes={}", listener.attached_routes).unwrap();
            lines(&mut out, &what, &listener.conditions);
        }
    }
    for (place, status) in &translation.routes {
        for parent in &status.parents {
            let section =
                parent.parent_ref.section_name.as_ref().map_or_else(String::new, |name| format!("#{name}"));
            let what = format!("HTTPRoute {place} at {}{section}", parent.parent_ref.name);
            lines(&mut out, &what, &parent.conditions);
        }
    }
    for what in &translation.refused {
        writeln!(out, "refused: {what}").unwrap();
    }
    format!("{out}\n{}", translation.document.as_deref().unwrap_or("no document"))
}

/// Each file of resources has one with its translation. `UPDATE=1 cargo test` writes it anew.
#[test]
fn resources_become_what_their_files_say() {
    let mut files: Vec<_> = fs::read_dir(DIRECTORY).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    let base = fs::read_to_string(Path::new(DIRECTORY).join("base/base.yaml")).unwrap();
    for file in files {
        let yaml = format!("{base}{}", fs::read_to_string(&file).unwrap());
        let translation = translate(&objects(&yaml), &settings(), &Assigned::new(), Timestamp::UNIX_EPOCH);
        let found = shown(&translation);
        let expected = file.with_extension("txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected, &found).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap_or_default();
        assert!(found == expected, "{} has become\n{found}\nand should be\n{expected}", file.display());
    }
}
