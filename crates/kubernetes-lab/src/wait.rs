//! States of objects, awaited by watching them.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watch_object, watcher};
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use switchback_lab::within;
use tokio::time::timeout;

use crate::apply::shown;
use crate::error::{Error, Result};

/// How long a state may take to come.
const PATIENCE: Duration = within(Duration::from_secs(60));

/// Waits for a state of one object, which may be absent.
pub(crate) async fn object<K>(
    api: &Api<K>,
    name: &str,
    what: &str,
    wanted: impl Fn(Option<&K>) -> bool,
) -> Result<Option<K>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut last = "nothing".to_owned();
    let watching = async {
        let states = watch_object(api.clone(), name).default_backoff();
        pin_mut!(states);
        while let Some(state) = states.next().await {
            match state {
                Ok(object) if wanted(object.as_ref()) => return Some(object),
                Ok(object) => last = object.map_or_else(|| "absent".to_owned(), |object| json(&object)),
                Err(error) => last = error.to_string(),
            }
        }
        None
    };
    let found = timeout(PATIENCE, watching).await.ok().flatten();
    found.ok_or_else(|| Error::Timeout { waiting_for: what.to_owned(), after: PATIENCE, last })
}

/// Waits for a state of all objects that a selection has.
pub(crate) async fn list<K>(
    api: &Api<K>,
    selection: watcher::Config,
    what: &str,
    wanted: impl Fn(&[K]) -> bool,
) -> Result<Vec<K>>
where
    K: Resource + Clone + DeserializeOwned + Serialize + Debug + Send + 'static,
{
    let mut last = "nothing".to_owned();
    let watching = async {
        let events = watcher(api.clone(), selection).default_backoff();
        pin_mut!(events);
        let (mut objects, mut complete) = (BTreeMap::new(), false);
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => {
                    objects.clear();
                    complete = false;
                }
                Ok(Event::InitApply(object) | Event::Apply(object)) => {
                    objects.insert(shown(&object), object);
                }
                Ok(Event::Delete(object)) => {
                    objects.remove(&shown(&object));
                }
                Ok(Event::InitDone) => complete = true,
                Err(error) => last = error.to_string(),
            }
            if complete {
                let now: Vec<K> = objects.values().cloned().collect();
                if wanted(&now) {
                    return Some(now);
                }
                last = now.iter().map(json).collect::<Vec<_>>().join("\n");
            }
        }
        None
    };
    let found = timeout(PATIENCE, watching).await.ok().flatten();
    found.ok_or_else(|| Error::Timeout { waiting_for: what.to_owned(), after: PATIENCE, last })
}

/// The object without the notes on who has written which of its fields.
fn json<K: Resource + Clone + Serialize>(object: &K) -> String {
    let mut object = object.clone();
    object.managed_fields_mut().clear();
    serde_json::to_string(&object).unwrap_or_default()
}
