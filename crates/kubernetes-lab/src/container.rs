//! What a container runs: program, environment and files, from its specification.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvVar, KeyToPath, ObjectFieldSelector, Pod, Secret, Volume,
};
use kube::{Api, Client, ResourceExt};

use crate::kubernetes::Image;
use crate::machine::Sandbox;
use crate::probe::Probe;

/// Why a container does not run yet, as its state in the pod's status says it.
pub(crate) struct Waiting {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// What runs in place of a container.
pub(crate) struct Program {
    words: Vec<String>,
    environment: Vec<(String, String)>,
    pub(crate) probe: Probe,
}

/// Paths in a container, and the directories that are there.
type Mounts = Vec<(String, PathBuf)>;

impl Program {
    /// The program of a container, whose volumes it makes.
    pub(crate) async fn prepare(
        client: &Client,
        images: &[Image],
        sandbox: &Sandbox,
        pod: &Pod,
        container: &Container,
    ) -> Result<Program, Waiting> {
        let image = container.image.as_deref().unwrap_or_default();
        let image = images.iter().find(|known| image.starts_with(&known.name));
        let (words, port) = match (&container.command, image) {
            (Some(command), _) => (command.clone(), None),
            (None, Some(image)) => (image.program.clone(), image.port),
            (None, None) => {
                let message = format!("no program for {}", container.image.as_deref().unwrap_or("no image"));
                return Err(Waiting { reason: "ErrImagePull", message });
            }
        };
        let probe = Probe::of(container, port).map_err(unsupported)?;
        let mounts = mounts(client, sandbox, pod, container).await?;
        let mut environment: Vec<(String, String)> = Vec::new();
        for variable in container.env.iter().flatten() {
            let value = value(client, sandbox, pod, variable).await?;
            let value = inside(&mounts, &expanded(&value, &environment));
            environment.push((variable.name.clone(), value));
        }
        let arguments = container.args.iter().flatten();
        let mut all = words;
        all.extend(arguments.map(|argument| inside(&mounts, &expanded(argument, &environment))));
        Ok(Program { words: all, environment, probe })
    }

    pub(crate) fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).current_dir(directory).env_clear();
        command.env("PATH", std::env::var_os("PATH").as_deref().unwrap_or(OsStr::new("/usr/bin:/bin")));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

fn unsupported(what: impl std::fmt::Display) -> Waiting {
    let message = format!("the pods of this lab have not: {what}");
    Waiting { reason: "CreateContainerConfigError", message }
}

fn missing(what: impl std::fmt::Display) -> Waiting {
    Waiting { reason: "ContainerCreating", message: format!("missing: {what}") }
}

async fn value(client: &Client, sandbox: &Sandbox, pod: &Pod, variable: &EnvVar) -> Result<String, Waiting> {
    let Some(source) = &variable.value_from else { return Ok(variable.value.clone().unwrap_or_default()) };
    if let Some(field) = &source.field_ref {
        return field_value(sandbox, pod, field);
    }
    let namespace = pod.namespace().unwrap_or_default();
    let (files, key, optional) = match (&source.secret_key_ref, &source.config_map_key_ref) {
        (Some(key), _) => (secret(client, &namespace, &key.name).await, &key.key, key.optional),
        (_, Some(key)) => (config_map(client, &namespace, &key.name).await, &key.key, key.optional),
        (None, None) => return Err(unsupported(format!("the source of {}", variable.name))),
    };
    match files.and_then(|files| files.get(key).cloned()) {
        Some(value) => Ok(String::from_utf8_lossy(&value).into_owned()),
        None if optional == Some(true) => Ok(String::new()),
        None => Err(missing(format!("{key}, for {}", variable.name))),
    }
}

fn field_value(sandbox: &Sandbox, pod: &Pod, field: &ObjectFieldSelector) -> Result<String, Waiting> {
    let (ipv4, ipv6) = sandbox.addresses();
    let host = &sandbox.machine().host;
    let key = |field: &str, map: &BTreeMap<String, String>| {
        let key = field.split_once("['")?.1.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    let path = field.field_path.as_str();
    let value = match path {
        "metadata.name" => Some(pod.name_any()),
        "metadata.namespace" => pod.namespace(),
        "metadata.uid" => pod.uid(),
        "spec.nodeName" => Some(host.name().to_owned()),
        "spec.serviceAccountName" => pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()),
        "status.hostIP" => Some(host.ipv4().to_string()),
        "status.podIP" => Some(ipv4.to_string()),
        "status.podIPs" => Some(format!("{ipv4},{ipv6}")),
        _ if path.starts_with("metadata.labels") => key(path, pod.labels()),
        _ if path.starts_with("metadata.annotations") => key(path, pod.annotations()),
        _ => None,
    };
    value.ok_or_else(|| unsupported(format!("the field {path}")))
}

async fn mounts(
    client: &Client,
    sandbox: &Sandbox,
    pod: &Pod,
    container: &Container,
) -> Result<Mounts, Waiting> {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref());
    let mut mounts = Mounts::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes.into_iter().flatten().find(|volume| volume.name == mount.name);
        let volume = volume.ok_or_else(|| missing(format!("the volume {}", mount.name)))?;
        let namespace = pod.namespace().unwrap_or_default();
        let mut directory = make_volume(client, &namespace, volume, sandbox).await?;
        if let Some(path) = &mount.sub_path {
            directory.push(path);
        }
        mounts.push((mount.mount_path.trim_end_matches('/').to_owned(), directory));
    }
    Ok(mounts)
}

/// Writes a volume below the pod's directory; returns its own. A path of the machine is below the directory of its host.
async fn make_volume(
    client: &Client,
    namespace: &str,
    volume: &Volume,
    sandbox: &Sandbox,
) -> Result<PathBuf, Waiting> {
    let mut directory = sandbox.directory.join(&volume.name);
    let (name, files, items, optional) = if let Some(source) = &volume.secret {
        let name = source.secret_name.clone().unwrap_or_default();
        let files = secret(client, namespace, &name).await;
        (name, files, &source.items, source.optional)
    } else if let Some(source) = &volume.config_map {
        let files = config_map(client, namespace, &source.name).await;
        (source.name.clone(), files, &source.items, source.optional)
    } else if volume.empty_dir.is_some() {
        (String::new(), Some(BTreeMap::new()), &None, None)
    } else if let Some(source) = &volume.host_path {
        directory =
            sandbox.machine().host.directory().join("files").join(source.path.trim_start_matches('/'));
        (String::new(), Some(BTreeMap::new()), &None, None)
    } else {
        return Err(unsupported(format!("the kind of the volume {}", volume.name)));
    };
    let files = files.or_else(|| optional?.then(BTreeMap::new));
    let files = files.ok_or_else(|| missing(format!("{name}, for the volume {}", volume.name)))?;
    for (path, content) in selected(files, items.as_ref()) {
        let path = directory.join(path);
        let parent = path.parent().unwrap_or(&directory);
        fs::create_dir_all(parent)
            .and_then(|()| fs::write(&path, content))
            .map_err(|error| missing(format!("{}: {error}", path.display())))?;
    }
    fs::create_dir_all(&directory).map_err(|error| missing(format!("{}: {error}", directory.display())))?;
    Ok(directory)
}

/// The files of a volume, by their paths: those of these keys, or all.
fn selected(files: BTreeMap<String, Vec<u8>>, items: Option<&Vec<KeyToPath>>) -> Vec<(String, Vec<u8>)> {
    match items {
        None => files.into_iter().collect(),
        Some(items) => {
            items.iter().filter_map(|item| Some((item.path.clone(), files.get(&item.key)?.clone()))).collect()
        }
    }
}

async fn secret(client: &Client, namespace: &str, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets.get(name).await.ok()?;
    Some(secret.data.unwrap_or_default().into_iter().map(|(key, ByteString(value))| (key, value)).collect())
}

async fn config_map(client: &Client, namespace: &str, name: &str) -> Option<BTreeMap<String, Vec<u8>>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let map = maps.get(name).await.ok()?;
    let text = map.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.into_bytes()));
    let binary = map.binary_data.unwrap_or_default().into_iter().map(|(key, ByteString(value))| (key, value));
    Some(text.chain(binary).collect())
}

/// The text with the values of these variables in place of `$(NAME)`.
fn expanded(text: &str, variables: &[(String, String)]) -> String {
    variables.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("$({name})"), value))
}

/// The text with directories in place of the paths where they are mounted.
fn inside(mounts: &Mounts, text: &str) -> String {
    let mut text = text.to_owned();
    for (path, directory) in mounts {
        let mut replaced = String::new();
        let mut rest = text.as_str();
        while let Some(at) = rest.find(path.as_str()) {
            let (before, after) = (&rest[..at], &rest[at + path.len()..]);
            let whole = !before.ends_with(|c: char| c.is_alphanumeric() || c == '/')
                && !after.starts_with(|c: char| c != '/' && c != ',' && c != ':');
            replaced.push_str(before);
            replaced.push_str(&if whole { directory.display().to_string() } else { path.clone() });
            rest = after;
        }
        replaced.push_str(rest);
        text = replaced;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_mounts_are_replaced_where_they_are_whole() {
        let mounts = vec![("/etc/tls".to_owned(), PathBuf::from("/lab/pod/tls"))];
        for (text, expected) in [
            ("/etc/tls/key", "/lab/pod/tls/key"),
            ("--cert=/etc/tls/crt,/etc/tls", "--cert=/lab/pod/tls/crt,/lab/pod/tls"),
            ("/etc/tls2/key", "/etc/tls2/key"),
            ("/srv/etc/tls/key", "/srv/etc/tls/key"),
        ] {
            assert_eq!(inside(&mounts, text), expected);
        }
    }

    #[test]
    fn variables_are_expanded() {
        let variables = [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "2".to_owned())];
        assert_eq!(expanded("$(A)-$(B)-$(C)", &variables), "1-2-$(C)");
    }
}
