//! Files of accounts and certificates, in one directory. Only root reads them, and each is replaced as a whole.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use instant_acme::AccountCredentials;
use switchback_config::replace_private;
use switchback_tls::Issue;
use zeroize::Zeroizing;

use crate::Error;

/// Stands before the URL of the CA's directory, in the first line of a certificate's file.
const DIRECTORY: &str = "directory: ";

/// The directory with the files.
#[derive(Clone, Debug)]
pub(crate) struct Store(PathBuf);

impl Store {
    /// The directory is made when something is written.
    pub(crate) fn at(path: &Path) -> Store {
        Store(path.to_owned())
    }

    fn certificate_file(&self, domain: &str) -> PathBuf {
        self.0.join(format!("{domain}.pem"))
    }

    fn account_file(&self, directory: &str) -> PathBuf {
        let url = directory.strip_prefix("https://").unwrap_or(directory);
        let name: String =
            url.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' }).collect();
        self.0.join(format!("{name}.account.json"))
    }

    /// The certificate that is known by this domain, if there is one.
    pub(crate) fn certificate(&self, domain: &str) -> Result<Option<Issue>, Error> {
        let path = self.certificate_file(domain);
        let Some(text) = read(&path)? else { return Ok(None) };
        let Some((directory, pem)) = text.strip_prefix(DIRECTORY).and_then(|rest| rest.split_once('\n'))
        else {
            return Err(Error::Content(path, format!("does not begin with {DIRECTORY:?}")));
        };
        let pem = Zeroizing::new(pem.to_owned());
        Ok(Some(Issue { domain: domain.to_owned(), directory: directory.to_owned(), pem }))
    }

    /// Writes the file of a certificate.
    pub(crate) fn save(&self, issue: &Issue) -> Result<(), Error> {
        let text = Zeroizing::new(format!("{DIRECTORY}{}\n{}", issue.directory, *issue.pem));
        write(&self.certificate_file(&issue.domain), text.as_bytes())
    }

    /// The account at the CA with this directory, if there is one.
    pub(crate) fn account(&self, directory: &str) -> Result<Option<AccountCredentials>, Error> {
        let path = self.account_file(directory);
        let Some(text) = read(&path)? else { return Ok(None) };
        serde_json::from_str(&text).map(Some).map_err(|error| Error::Content(path, error.to_string()))
    }

    /// Writes the file of an account.
    pub(crate) fn save_account(&self, directory: &str, account: &AccountCredentials) -> Result<(), Error> {
        let path = self.account_file(directory);
        let text = serde_json::to_string(account).map(Zeroizing::new);
        let text = text.map_err(|error| Error::Content(path.clone(), error.to_string()))?;
        write(&path, text.as_bytes())
    }

    /// Removes the file of an account that the CA does not know.
    pub(crate) fn forget_account(&self, directory: &str) -> Result<(), Error> {
        let path = self.account_file(directory);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::File(path, error)),
            _ => Ok(()),
        }
    }
}

fn write(path: &Path, content: &[u8]) -> Result<(), Error> {
    replace_private(path, content).map_err(|error| Error::File(path.to_owned(), error))
}

fn read(path: &Path) -> Result<Option<Zeroizing<String>>, Error> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::File(path.to_owned(), error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Directory {
            let path = std::env::temp_dir().join(format!("switchback-acme-{test}-{}", std::process::id()));
            Directory(path.join("state"))
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(self.0.parent().expect("it has one"));
        }
    }

    fn issue(pem: &str) -> Issue {
        let (domain, directory) = ("a.example".to_owned(), "https://ca.example/dir?x=1".to_owned());
        Issue { domain, directory, pem: Zeroizing::new(pem.to_owned()) }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn certificates_come_back_and_only_their_owner_reads_them() {
        let directory = Directory::new("certificates");
        let store = Store::at(&directory.0);
        assert_eq!(store.certificate("a.example").unwrap(), None);
        store.save(&issue("PEM\n")).unwrap();
        assert_eq!(store.certificate("a.example").unwrap(), Some(issue("PEM\n")));
        assert_eq!((mode(&directory.0), mode(&directory.0.join("a.example.pem"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), 1, "something is left behind");
    }

    #[test]
    fn what_cannot_be_written_leaves_the_old_file() {
        let directory = Directory::new("full");
        let store = Store::at(&directory.0);
        store.save(&issue("old")).unwrap();
        // As if the disk were full.
        fs::create_dir(directory.0.join("a.example.pem.new")).unwrap();
        let error = store.save(&issue("new")).unwrap_err().to_string();
        assert!(error.contains("a.example.pem: "), "{error}");
        assert_eq!(store.certificate("a.example").unwrap(), Some(issue("old")));
        fs::write(directory.0.join("a.example.pem"), "no first line").unwrap();
        let error = store.certificate("a.example").unwrap_err().to_string();
        assert!(error.contains("a.example.pem: does not begin"), "{error}");
    }

    #[test]
    fn an_account_for_each_ca() {
        let directory = Directory::new("accounts");
        let store = Store::at(&directory.0);
        let (one, other) = ("https://ca.example/directory", "https://staging.ca.example/directory");
        let account =
            r#"{"id":"https://ca.example/1","key_pkcs8":"AAAA","directory":"https://ca.example/directory"}"#;
        store.save_account(one, &serde_json::from_str(account).unwrap()).unwrap();
        let file = directory.0.join("ca.example-directory.account.json");
        assert_eq!((mode(&file), fs::read_to_string(&file).unwrap().as_str()), (0o600, account));
        assert!(store.account(one).unwrap().is_some() && store.account(other).unwrap().is_none());
        store.forget_account(one).unwrap();
        store.forget_account(one).unwrap();
        assert!(store.account(one).unwrap().is_none());
    }
}
