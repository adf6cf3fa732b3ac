//! The configuration that a daemon starts with.

use switchback_config::{Document, Source};

use crate::Result;

/// Reads the newest document of a source; if that fails, the last good one, and logs why. The error is that of the newest one.
pub fn first_document<T>(
    source: &dyn Source,
    read: impl Fn(&Document) -> Result<T>,
) -> Result<(Document, T)> {
    let attempt = |document: Document| read(&document).map(|read| (document, read));
    let newest = source.newest().map_err(Into::into).and_then(attempt);
    newest.or_else(|error| match source.last_good().map(attempt) {
        Some(Ok((document, read))) => {
            log::error!(
                "the start is with the last good configuration, {}: {error}",
                document.name.display()
            );
            Ok((document, read))
        }
        Some(Err(_)) | None => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Error;

    use super::*;

    /// A source with these texts.
    #[derive(Debug)]
    struct Texts {
        newest: Option<&'static str>,
        last_good: Option<&'static str>,
    }

    fn document(text: &str) -> Document {
        Document::new(text, Path::new("cluster.toml"))
    }

    impl Source for Texts {
        fn newest(&self) -> std::result::Result<Document, switchback_config::Error> {
            self.newest.map(document).ok_or_else(|| switchback_config::Error::Read {
                file: "cluster.toml".into(),
                source: std::io::ErrorKind::NotFound.into(),
                remedy: None,
            })
        }

        fn followed(&self) -> Option<std::result::Result<Document, switchback_config::Error>> {
            None
        }

        fn last_good(&self) -> Option<Document> {
            self.last_good.map(document)
        }

        fn accept(&self, _: &Document) {}

        fn follow(&self, _: &Document, _: Box<dyn Fn() + Send + Sync>) {}
    }

    #[test]
    fn a_daemon_starts_with_the_newest_document_that_holds() {
        let read = |document: &Document| match document.text.starts_with("good") {
            true => Ok(document.text.clone()),
            false => Err(Error::new(format!("{} is bad", document.text)).with_exit_status(1)),
        };
        let first = |newest, last_good| {
            let first = first_document(&Texts { newest, last_good }, read);
            first.map(|(_, text)| text).map_err(|error| (error.to_string(), error.exit_status()))
        };
        assert_eq!(first(Some("good 2"), Some("good 1")), Ok("good 2".to_owned()));
        assert_eq!(first(Some("2"), Some("good 1")), Ok("good 1".to_owned()));
        assert_eq!(first(None, Some("good 1")), Ok("good 1".to_owned()));
        assert_eq!(first(Some("2"), Some("1")), Err(("2 is bad".to_owned(), 1)));
        assert_eq!(first(Some("2"), None), Err(("2 is bad".to_owned(), 1)));
        assert!(first(None, None).unwrap_err().0.starts_with("cannot read cluster.toml"));
    }
}
