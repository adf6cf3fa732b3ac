//! The source of a daemon: a thread that follows the Secret.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::watcher::{self, Event, watcher};
use kube::runtime::{WatchStreamExt as _, watcher::DefaultBackoff};
use kube::{Api, Client};
use switchback_config::{Document, Source, replace_private};
use switchback_runtime::{Copies, Known, Newest, privileges, without_sigpipe};

use crate::client::{WATCH, connect};
use crate::objects::Place;
use crate::published::Published;
use crate::{Error, KEY_FILE};

/// Time that a daemon waits at its start for the API server.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time that it waits for a Secret that is not there yet: the controller may start after it.
const ABSENT: Duration = Duration::from_secs(60);
/// What an address begins with.
const SCHEME: &str = "kubernetes://";

/// The place of the Secret that a controller writes. Displays as `kubernetes://NAMESPACE/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(pub(crate) Place);

impl Address {
    /// Whether a text is meant as an address, rather than as a path.
    pub fn resembles(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// The document as it is now, for a command that ends. Its files are written to a directory of the commands.
    pub fn document(&self, directory: &Path) -> Result<Document, Error> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(Error::Io)?;
        let read = async {
            let api: Api<Secret> = Api::namespaced(connect().await?, &self.0.namespace);
            api.get_opt(&self.0.name).await.map_err(Error::Api)
        };
        let secret = without_sigpipe(|| runtime.block_on(read))?;
        let secret = secret.ok_or_else(|| Error::Secret(absent(self)))?;
        let published = Published::of(&secret).map_err(|what| Error::Secret(format!("{self}: {what}")))?;
        let files = Files::new(directory, "command");
        files.write(&published).map_err(Error::Io)?;
        Ok(files.document(self, published.text, published.version))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        let place = text.strip_prefix(SCHEME).and_then(|place| place.split_once('/'));
        let is_name = |name: &str| {
            !name.is_empty()
                && name
                    .bytes()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-' || c == b'.')
        };
        match place {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Address(Place::new(namespace, name)))
            }
            _ => Err(format!("not the place of a Secret, such as {SCHEME}switchback-system/cluster")),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.0)
    }
}

fn absent(address: &Address) -> String {
    format!("there is no Secret {} yet; switchback gateway writes it", address.0)
}

/// A document that a controller publishes, and a daemon follows.
#[derive(Debug)]
pub struct Followed {
    shared: Arc<Shared>,
    copies: Copies,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    files: Files,
    newest: Newest,
}

/// The files that documents name, in a directory of their own. Their names tell their content, but for the key.
#[derive(Clone, Debug)]
struct Files {
    directory: PathBuf,
}

impl Files {
    fn new(directory: &Path, role: &str) -> Files {
        Files { directory: directory.join(format!("kubernetes-{role}")) }
    }

    /// Writes those that are not there.
    fn write(&self, published: &Published) -> io::Result<()> {
        for (name, content) in &published.files {
            if name.contains('/') {
                return Err(io::Error::other(format!("the Secret has a file {name}")));
            }
            let path = self.directory.join(name);
            if fs::read(&path).ok().as_ref() != Some(content) {
                replace_private(&path, content)?;
            }
        }
        Ok(())
    }

    /// Removes those that a document does not name.
    fn keep_those_of(&self, document: &Document) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != KEY_FILE && !document.text.contains(&*name.to_string_lossy()) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    fn document(&self, address: &Address, text: String, version: u64) -> Document {
        let name = PathBuf::from(format!("{address}@{version}"));
        Document { directory: self.directory.clone(), version: Some(version), ..Document::new(text, &name) }
    }
}

impl Followed {
    /// Follows the document at `address`, for a daemon of this role, which keeps its copy and its files in `directory`.
    pub fn start(address: Address, role: &str, directory: &Path) -> io::Result<Followed> {
        let copies = Copies::start(directory, role, address.to_string())?;
        let files = Files::new(directory, role);
        let shared = Arc::new(Shared { address, files, newest: Newest::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let follower = Arc::clone(&shared);
        privileges::spawn("kubernetes", move || runtime.block_on(follower.follow()))?;
        Ok(Followed { shared, copies })
    }
}

impl Source for Followed {
    fn newest(&self) -> Result<Document, switchback_config::Error> {
        let patience = |known: &Known| match known.document {
            Some(Ok(_)) => Duration::ZERO,
            // A copy is better than none.
            Some(Err(_)) if self.copies.last().is_some() => Duration::ZERO,
            Some(Err(_)) => ABSENT,
            None => PATIENCE,
        };
        self.shared.wait(patience)
    }

    fn followed(&self) -> Option<Result<Document, switchback_config::Error>> {
        Some(self.shared.wait(|_| Duration::ZERO))
    }

    fn last_good(&self) -> Option<Document> {
        let (text, version) = self.copies.last()?;
        Some(self.shared.files.document(&self.shared.address, text, version))
    }

    fn accept(&self, document: &Document) {
        self.copies.keep(document);
        if self.shared.newest.is(document)
            && let Err(error) = self.shared.files.keep_those_of(document)
        {
            log::warn!("cannot remove files that are not needed any more: {error}");
        }
    }

    fn follow(&self, since: &Document, changed: Box<dyn Fn() + Send + Sync>) {
        self.shared.newest.follow(since, changed);
    }
}

impl Shared {
    fn wait(&self, patience: impl Fn(&Known) -> Duration) -> Result<Document, switchback_config::Error> {
        self.newest.wait(patience, &self.address, "the API server has not answered")
    }

    async fn follow(&self) {
        let client = loop {
            match connect().await {
                Ok(client) => break client,
                Err(error) => self.fail(&error.to_string()),
            }
            tokio::time::sleep(PATIENCE).await;
        };
        self.watch(client).await;
    }

    /// Watches the Secret, for ever.
    async fn watch(&self, client: Client) {
        let Place { namespace, name } = &self.address.0;
        let config = watcher::Config::default().fields(&format!("metadata.name={name}")).timeout(WATCH);
        let events = watcher(Api::<Secret>::namespaced(client, namespace), config);
        let events = events.backoff(DefaultBackoff::default());
        pin_mut!(events);
        // Of the list with which a watch begins.
        let mut listed = None;
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(secret)) => self.found(Some(&secret)),
                Ok(Event::Delete(_)) => self.found(None),
                Ok(Event::Init) => listed = None,
                Ok(Event::InitApply(secret)) => listed = Some(secret),
                Ok(Event::InitDone) => self.found(listed.take().as_ref()),
                Err(error) => self.fail(&error.to_string()),
            }
        }
    }

    /// Takes the Secret as it is, and tells the daemon if it is something new.
    fn found(&self, secret: Option<&Secret>) {
        let newest = secret.ok_or_else(|| absent(&self.address)).and_then(|secret| {
            let published = Published::of(secret)?;
            self.files.write(&published).map_err(|error| {
                format!("cannot write its files to {}: {error}", self.files.directory.display())
            })?;
            Ok(self.files.document(&self.address, published.text, published.version))
        });
        if self.newest.found(|| newest) {
            log::info!("the API server answers again");
        }
    }

    /// Notes that the API server does not answer.
    fn fail(&self, error: &str) {
        if self.newest.fail(error.to_owned()) {
            log::warn!("the API server does not answer, the configuration stays; {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_places_of_secrets() {
        let address: Address = "kubernetes://switchback-system/cluster".parse().unwrap();
        assert_eq!(address, Address(Place::new("switchback-system", "cluster")));
        assert_eq!(address.to_string(), "kubernetes://switchback-system/cluster");
        for text in [
            "kubernetes://",
            "kubernetes://a",
            "kubernetes://a/",
            "kubernetes:///a",
            "kubernetes://a/b/c",
            "kubernetes://A/b",
        ] {
            assert!(
                text.parse::<Address>().unwrap_err().contains("kubernetes://switchback-system/cluster"),
                "{text}"
            );
        }
    }

    #[test]
    fn files_are_those_of_the_document_in_force() {
        let directory = std::env::temp_dir().join(format!("switchback-files-{}", std::process::id()));
        let files = Files::new(&directory, "node");
        let address = Address(Place::new("a", "b"));
        let of = |names: &[&str]| Published {
            text: names.join("\n"),
            files: names.iter().map(|name| ((*name).to_owned(), name.as_bytes().to_vec())).collect(),
            version: 1,
        };
        let there = || {
            let entries = fs::read_dir(&files.directory).unwrap();
            let mut names: Vec<String> =
                entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        files.write(&of(&["cluster.key", "tls-1.pem"])).unwrap();
        let second = of(&["tls-2.pem"]);
        files.write(&second).unwrap();
        assert_eq!(there(), ["cluster.key", "tls-1.pem", "tls-2.pem"]);
        files.keep_those_of(&files.document(&address, second.text.clone(), 2)).unwrap();
        assert_eq!(there(), ["cluster.key", "tls-2.pem"]);
        assert!(files.write(&of(&["../x"])).is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
