//! The controller: watches resources, publishes the document, writes statuses.
//!
//! Several may run at once: the same resources give the same document and statuses, and each write names the version that it
//! replaces.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, pin_mut, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, DefaultBackoff, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use switchback_config::{generate_key, key_file_text};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;

use crate::Error;
use crate::client::{WATCH, connect};
use crate::objects::{Objects, Place};
use crate::published::Published;
use crate::source::Address;
use crate::translation::{Assigned, KEY_FILE, Settings, Translation, translate};

/// Changes that come within this time are taken together.
const TOGETHER: Duration = Duration::from_millis(10);
/// Pause after a failure.
const PAUSE: Duration = Duration::from_secs(1);
/// Most statuses that are written at the same time.
const AT_ONCE: usize = 16;

/// What the controller is told.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the document goes.
    pub publish: Address,
    /// What the translation is told.
    pub settings: Settings,
}

/// Runs the controller until SIGTERM or SIGINT.
pub fn run(options: Options) -> Result<(), Error> {
    // Watches go on while a translation takes its time.
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().map_err(Error::Io)?;
    runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Io)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Io)?;
        tokio::select! {
            result = control(options) => result,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

async fn control(options: Options) -> Result<(), Error> {
    let client = connect().await?;
    let watched = Watched::new(&client, &options.publish);
    watched.until_ready().await;
    log::info!("the resources are known; the configuration goes to {}", options.publish);
    let mut controller = Controller::new(client, options);
    loop {
        let begun = Instant::now();
        controller.look_at(&watched.own_version());
        let reconciled = controller.reconcile(&watched.objects()).await;
        // In a large cluster that changes all the time, every other moment is for other work.
        let pause = TOGETHER.max(begun.elapsed());
        match reconciled {
            Ok(()) => {
                watched.changed.notified().await;
                tokio::time::sleep(pause).await;
            }
            // Another controller has written.
            Err(Error::Api(kube::Error::Api(answer))) if answer.code == 409 => {
                tokio::time::sleep(pause).await
            }
            Err(error) => {
                log::warn!("{error}; another try follows");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The resources, as watches tell of them.
struct Watched {
    stores: Stores,
    /// The Secret with the document.
    own: Store<Secret>,
    /// Notified of changes.
    changed: Arc<Notify>,
}

struct Stores {
    classes: Store<gateway_api::apis::standard::gatewayclasses::GatewayClass>,
    gateways: Store<gateway_api::apis::standard::gateways::Gateway>,
    routes: Store<gateway_api::apis::standard::httproutes::HttpRoute>,
    grants: Store<gateway_api::apis::standard::referencegrants::ReferenceGrant>,
    services: Store<k8s_openapi::api::core::v1::Service>,
    slices: Store<k8s_openapi::api::discovery::v1::EndpointSlice>,
    secrets: Store<Secret>,
    namespaces: Store<k8s_openapi::api::core::v1::Namespace>,
    nodes: Store<k8s_openapi::api::core::v1::Node>,
}

impl Watched {
    fn new(client: &Client, Address(own): &Address) -> Watched {
        let changed = Arc::new(Notify::new());
        let watches = Watches { client, changed: &changed };
        let only = watcher::Config::default().fields(&format!("metadata.name={}", own.name));
        let own = watches.watch_in(Api::namespaced(client.clone(), &own.namespace), only);
        let tls = watcher::Config::default().fields("type=kubernetes.io/tls");
        let all = watcher::Config::default;
        let stores = Stores {
            classes: watches.watch(all()),
            gateways: watches.watch(all()),
            routes: watches.watch(all()),
            grants: watches.watch(all()),
            services: watches.watch(all()),
            slices: watches.watch(all()),
            secrets: watches.watch(tls),
            namespaces: watches.watch(all()),
            nodes: watches.watch(all()),
        };
        Watched { stores, own, changed }
    }

    /// Waits until all resources are known.
    async fn until_ready(&self) {
        let Stores { classes, gateways, routes, grants, services, slices, secrets, namespaces, nodes } =
            &self.stores;
        // Their writers live as long as their tasks, which have no end.
        let _ = tokio::join!(
            classes.wait_until_ready(),
            gateways.wait_until_ready(),
            routes.wait_until_ready(),
            grants.wait_until_ready(),
            services.wait_until_ready(),
            slices.wait_until_ready(),
            secrets.wait_until_ready(),
            namespaces.wait_until_ready(),
            nodes.wait_until_ready(),
            self.own.wait_until_ready(),
        );
    }

    /// Resource version of the Secret with the document.
    fn own_version(&self) -> Option<String> {
        self.own.state().first().and_then(|secret| secret.resource_version())
    }

    fn objects(&self) -> Objects {
        let Stores { classes, gateways, routes, grants, services, slices, secrets, namespaces, nodes } =
            &self.stores;
        Objects {
            classes: classes.state(),
            gateways: gateways.state(),
            routes: routes.state(),
            grants: grants.state(),
            services: services.state(),
            slices: slices.state(),
            secrets: secrets.state(),
            namespaces: namespaces.state(),
            nodes: nodes.state(),
        }
    }
}

struct Watches<'a> {
    client: &'a Client,
    changed: &'a Arc<Notify>,
}

impl Watches<'_> {
    /// Watches resources of a kind in all namespaces.
    fn watch<K>(&self, config: watcher::Config) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        self.watch_in(Api::all(self.client.clone()), config)
    }

    /// Watches resources of a kind.
    fn watch_in<K>(&self, api: Api<K>, config: watcher::Config) -> Store<K>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let (store, writer) = reflector::store();
        let kind = K::plural(&());
        let events = watcher(api, config.timeout(WATCH));
        let events = reflector::reflector(writer, events.backoff(DefaultBackoff::default()));
        let changed = Arc::clone(self.changed);
        tokio::spawn(async move {
            pin_mut!(events);
            let mut is_failing = false;
            while let Some(event) = events.next().await {
                match event {
                    Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_) | watcher::Event::InitDone) => {
                        if std::mem::take(&mut is_failing) {
                            log::info!("{kind} can be read again");
                        }
                        changed.notify_one();
                    }
                    Ok(watcher::Event::Init | watcher::Event::InitApply(_)) => {}
                    Err(error) => {
                        if !std::mem::replace(&mut is_failing, true) {
                            log::warn!("cannot read {kind}: {error}");
                        }
                    }
                }
            }
        });
        store
    }
}

/// What the controller knows of what it has written.
struct Controller {
    client: Client,
    options: Options,
    recorder: Recorder,
    /// What was published last, also if the Secret has gone since.
    last: Option<Published>,
    /// Resource version of the Secret, which is None if there is none; None before it was read.
    secret: Option<Option<String>>,
    /// Addresses of Gateways.
    assigned: Assigned,
    /// Why Gateways are not served, as far as the log says it.
    refused: Vec<String>,
}

impl Controller {
    fn new(client: Client, options: Options) -> Controller {
        let reporter = Reporter { controller: options.settings.controller.clone(), instance: None };
        let recorder = Recorder::new(client.clone(), reporter);
        Controller {
            client,
            options,
            recorder,
            last: None,
            secret: None,
            assigned: Assigned::new(),
            refused: Vec::new(),
        }
    }

    /// Has the Secret read again if it may have another version than the one that was written.
    fn look_at(&mut self, version: &Option<String>) {
        self.secret.take_if(|known| known != version);
    }

    /// Publishes what the resources say, and writes their statuses.
    async fn reconcile(&mut self, objects: &Objects) -> Result<(), Error> {
        let settings = &self.options.settings;
        let mut translation = translate(objects, settings, &self.assigned, Timestamp::now());
        self.assigned = std::mem::take(&mut translation.assigned);
        if self.refused != translation.refused {
            for what in &translation.refused {
                log::error!("a Gateway is not served, because cluster.toml does not hold with it: {what}");
            }
            self.refused.clone_from(&translation.refused);
        }
        if let Some(text) = &translation.document {
            self.publish(text, &translation).await?;
        }
        self.write_statuses(objects, translation).await
    }

    /// Writes the Secret, if it has something else.
    async fn publish(&mut self, text: &str, translation: &Translation) -> Result<(), Error> {
        let Address(place) = &self.options.publish;
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &place.namespace);
        let replaces = match self.secret.take() {
            Some(version) => version,
            None => {
                let secret = api.get_opt(&place.name).await.map_err(Error::Api)?;
                // Without a document, or with another one, it is written again, with the key that daemons have.
                if let Some(published) = secret.as_ref().and_then(|secret| Published::of(secret).ok()) {
                    self.last = Some(published);
                }
                secret.and_then(|secret| secret.resource_version())
            }
        };
        let mut files = translation.files.clone();
        let key = self.last.as_ref().and_then(|last| last.files.get(KEY_FILE)).cloned();
        files.insert(KEY_FILE.to_owned(), key.map_or_else(new_key, Ok)?);
        let is_last = |last: &Published| last.text == text && last.files == files;
        if replaces.is_some() && self.last.as_ref().is_some_and(is_last) {
            self.secret = Some(replaces);
            return Ok(());
        }
        let version = self.last.as_ref().map_or(0, |last| last.version) + 1;
        let published = Published { text: text.to_owned(), files, version };
        let secret = published.secret(place, replaces.clone()).map_err(Error::Io)?;
        let written = match replaces {
            None => api.create(&PostParams::default(), &secret).await,
            Some(_) => api.replace(&place.name, &PostParams::default(), &secret).await,
        };
        // After a failure, such as that another one has written, it is read anew.
        let written = written.map_err(Error::Api)?;
        log::info!(
            "version {version} is published: {} Gateways, {} routes, {} bytes",
            translation.gateways.len(),
            translation.routes.len(),
            published.text.len()
        );
        self.last = Some(published);
        self.secret = Some(written.resource_version());
        Ok(())
    }

    async fn write_statuses(&self, objects: &Objects, translation: Translation) -> Result<(), Error> {
        let Translation { classes, gateways, routes, .. } = translation;
        self.write(
            &objects.classes,
            classes,
            |class| class.status.as_ref(),
            |status| status.conditions.iter().flatten().cloned().collect(),
        )
        .await?;
        self.write(
            &objects.gateways,
            gateways,
            |gateway| gateway.status.as_ref(),
            |status| status.conditions.iter().flatten().cloned().collect(),
        )
        .await?;
        self.write(
            &objects.routes,
            routes,
            |route| route.status.as_ref(),
            |status| status.parents.iter().flat_map(|parent| parent.conditions.iter().cloned()).collect(),
        )
        .await
    }

    /// Writes the statuses of a kind that have changed, and an event for each condition that has come to fail.
    async fn write<K, S>(
        &self,
        objects: &[Arc<K>],
        statuses: Vec<(Place, S)>,
        before: impl Fn(&K) -> Option<&S>,
        conditions: impl Fn(&S) -> Vec<Condition>,
    ) -> Result<(), Error>
    where
        K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
        K::Scope: Scoped<K>,
        S: Serialize + PartialEq,
    {
        let by_place: BTreeMap<Place, &Arc<K>> =
            objects.iter().map(|object| (Place::of(&**object), object)).collect();
        let changed = statuses.into_iter().filter_map(|(place, status)| {
            let object = *by_place.get(&place)?;
            let old = before(object);
            if old == Some(&status) {
                return None;
            }
            let old = old.map(&conditions).unwrap_or_default();
            let failed = conditions(&status)
                .into_iter()
                .filter(|new| new.status == "False" && new.type_ != "Conflicted");
            let failed = failed.filter(|new| !old.iter().any(|old| said_the_same(old, new)));
            Some((object, place, status, failed.collect::<Vec<_>>()))
        });
        let writes = changed.map(|(object, place, status, failed)| async move {
            let api = K::Scope::api(self.client.clone(), &place.namespace);
            // With the version that was read: other controllers write statuses of routes, too.
            let patch = json!({
                "metadata": { "resourceVersion": object.resource_version() },
                "status": status,
            });
            let written = api.patch_status(&place.name, &PatchParams::default(), &Patch::Merge(patch)).await;
            match written {
                Ok(_) => {}
                // It has changed, or is gone, and the watch tells of that.
                Err(kube::Error::Api(answer)) if answer.code == 409 || answer.code == 404 => return Ok(()),
                Err(error) => return Err(Error::Api(error)),
            }
            for condition in failed {
                self.tell(&**object, condition).await;
            }
            Ok(())
        });
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// An event about a resource, for people.
    async fn tell<K: Resource<DynamicType = ()>>(&self, object: &K, condition: Condition) {
        let event = Event {
            type_: EventType::Warning,
            reason: condition.reason,
            note: Some(format!("{} is not the case: {}", condition.type_, condition.message)),
            action: "Translate".to_owned(),
            secondary: None,
        };
        // Nothing depends on events.
        if let Err(error) = self.recorder.publish(&event, &object.object_ref(&())).await {
            log::debug!("an event was not written: {error}");
        }
    }
}

fn said_the_same(one: &Condition, other: &Condition) -> bool {
    (&one.type_, &one.status, &one.reason, &one.message)
        == (&other.type_, &other.status, &other.reason, &other.message)
}

fn new_key() -> Result<Vec<u8>, Error> {
    let key = generate_key().map_err(|error| Error::Secret(error.to_string()))?;
    Ok(key_file_text(&key).into_bytes())
}

/// Resources of a namespace, or of the cluster.
trait Scoped<K> {
    /// The API of resources in a namespace, which is empty if they are in none.
    fn api(client: Client, namespace: &str) -> Api<K>;
}

impl<K: Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>> Scoped<K>
    for kube::core::NamespaceResourceScope
{
    fn api(client: Client, namespace: &str) -> Api<K> {
        Api::namespaced(client, namespace)
    }
}

impl<K: Resource<Scope = kube::core::ClusterResourceScope, DynamicType = ()>> Scoped<K>
    for kube::core::ClusterResourceScope
{
    fn api(client: Client, _: &str) -> Api<K> {
        Api::all(client)
    }
}
