//! The Secret that hands the document from the controller to the daemons.
//!
//! It has the document, compressed because a Secret holds one MiB, and each file that the document names. Its version is in an
//! annotation: the API server's own one cannot be compared.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::ObjectMeta;

use crate::objects::Place;

/// Key of the document.
const DOCUMENT: &str = "cluster.toml.gz";
/// Annotation with the version.
const VERSION: &str = "switchback.dev/version";
/// Longest document. The API server takes no longer Secrets than 1 MiB; whoever writes one has not to fill the memory of all
/// daemons.
const LONGEST: u64 = 64 << 20;

/// What a Secret hands over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// The document.
    pub text: String,
    /// The files that it names, by their names.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Number of changes.
    pub version: u64,
}

impl Published {
    /// What a Secret has, or what is wrong with it.
    pub fn of(secret: &Secret) -> Result<Published, String> {
        let version = secret.annotations().get(VERSION).and_then(|version| version.parse().ok());
        let version = version.ok_or_else(|| format!("it has no annotation {VERSION} with a number"))?;
        let mut data = secret.data.clone().unwrap_or_default();
        let document = data.remove(DOCUMENT).ok_or_else(|| format!("it has no {DOCUMENT}"))?;
        let text = unpacked(&document.0).map_err(|error| format!("{DOCUMENT}: {error}"))?;
        let files: BTreeMap<String, Vec<u8>> =
            data.into_iter().map(|(name, content)| (name, content.0)).collect();
        Ok(Published { text, files, version })
    }

    /// The Secret at a place. It replaces the one of this resource version, or is new.
    pub fn secret(&self, place: &Place, replaces: Option<String>) -> io::Result<Secret> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(self.text.as_bytes())?;
        let document = (DOCUMENT.to_owned(), ByteString(encoder.finish()?));
        let files = self.files.iter().map(|(name, content)| (name.clone(), ByteString(content.clone())));
        Ok(Secret {
            metadata: ObjectMeta {
                name: Some(place.name.clone()),
                namespace: Some(place.namespace.clone()),
                annotations: Some([(VERSION.to_owned(), self.version.to_string())].into()),
                resource_version: replaces,
                ..ObjectMeta::default()
            },
            data: Some(files.chain([document]).collect()),
            ..Secret::default()
        })
    }
}

fn unpacked(content: &[u8]) -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(content).take(LONGEST + 1).read_to_string(&mut text)?;
    match text.len() as u64 > LONGEST {
        true => Err(io::Error::other(format!("longer than {LONGEST} bytes"))),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_published_comes_back() {
        let published = Published {
            text: "# a\n".repeat(1000),
            files: [("cluster.key".to_owned(), vec![1, 2, 3])].into(),
            version: 7,
        };
        let secret = published.secret(&Place::new("system", "cluster"), Some("12".to_owned())).unwrap();
        assert_eq!(Published::of(&secret).unwrap(), published);
        assert!(secret.data.as_ref().unwrap()[DOCUMENT].0.len() < 100);
        let broken = |change: fn(&mut Secret)| {
            let mut secret = secret.clone();
            change(&mut secret);
            Published::of(&secret).unwrap_err()
        };
        assert!(broken(|secret| secret.metadata.annotations = None).contains(VERSION));
        assert!(broken(|secret| secret.data = None).contains(DOCUMENT));
        let cut = broken(|secret| {
            secret.data.as_mut().unwrap().get_mut(DOCUMENT).unwrap().0.truncate(10);
        });
        assert!(cut.starts_with("cluster.toml.gz: "), "{cut}");
    }
}
