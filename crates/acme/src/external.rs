//! Accounts with a CA outside of ACME, to which it wants those of ACME to be bound (RFC 8555 section 7.3.4).

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use instant_acme::ExternalAccountKey;
use switchback_config::ExternalAccount;
use zeroize::Zeroizing;

use crate::Error;

/// As CAs hand keys out: some with padding, some without.
const KEYS: GeneralPurpose = GeneralPurpose::new(
    &URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the key.
pub(crate) fn external_account(account: &ExternalAccount) -> Result<ExternalAccountKey, Error> {
    let ExternalAccount { id, key } = account;
    Ok(ExternalAccountKey::new(id.clone(), &read(key)?))
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, Error> {
    let text = fs::read_to_string(path).map_err(|error| Error::File(path.to_owned(), error))?;
    let text = Zeroizing::new(text);
    let key = KEYS.decode(text.trim()).map(Zeroizing::new);
    let wrong = |what: String| Error::Content(path.to_owned(), what);
    let key = key.map_err(|error| wrong(format!("needed is a key in base64url: {error}")))?;
    if key.is_empty() {
        return Err(wrong("it is empty, needed is a key in base64url".to_owned()));
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_with_padding_and_without() {
        let path = std::env::temp_dir().join(format!("switchback-external-{}", std::process::id()));
        let read = |text: &str| {
            fs::write(&path, text).unwrap();
            read(&path).map(|key| key.to_vec()).map_err(|error| error.to_string())
        };
        assert_eq!(read("-_8\n"), Ok(vec![0xfb, 0xff]));
        assert_eq!(read("-_8="), Ok(vec![0xfb, 0xff]));
        let of_base64 = read("+/8=").unwrap_err();
        assert!(of_base64.contains("needed is a key in base64url: Invalid symbol 43"), "{of_base64}");
        assert!(read(" \n").is_err_and(|error| error.contains("it is empty")));
        fs::remove_file(&path).unwrap();
        assert!(super::read(&path).is_err_and(|error| matches!(error, Error::File(..))));
    }
}
