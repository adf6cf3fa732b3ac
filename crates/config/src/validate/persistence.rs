//! `[pool.persistence]`: which keys go with which mode, what browsers take, and whether two pools use the
//! same cookie.

use std::collections::HashMap;

use crate::mistakes::{Mistakes, Names};
use crate::persistence::{DEFAULT_PATH, INSERTED_NAME, MARK, MAX_LINE, Mode};
use crate::raw::Spanned;
use crate::syntax::{COOKIE_PREFIXES, HOST_PREFIX, has_cookie_prefix};
use crate::{InsertedCookie, Persistence, PersistenceMode, Pool, SameSite, raw, syntax};

impl Mistakes {
    /// What `file` says about the pool named `pool`.
    pub(super) fn persistence(&mut self, file: &raw::Persistence, pool: &str) -> Option<Persistence> {
        let mode = self.one_of("mode", &file.mode, Mode::ALL, Mode::name);
        let sticky = file.sticky.as_ref();
        let strict = sticky.and_then(|sticky| self.take(sticky, syntax::sticky(sticky.get_ref())));
        if let Some(mode) = mode {
            self.keys_of_other_modes(file, mode);
        }
        // All values are looked at, whatever the mode, except the name of the cookie: what that may be
        // depends on the mode.
        let hash = file.hash.as_ref().and_then(|hash| self.take(hash, syntax::hash_key(hash.get_ref())));
        let attributes = self.attributes(file);
        let mode = match mode? {
            Mode::Rewrite => {
                let what = "mode \"rewrite\" without cookie, the name of the cookie that the servers set is \
                            needed";
                let cookie = self.needed(&file.cookie, &file.mode, what)?;
                let cookie = self.take(cookie, syntax::rewritten_cookie(cookie.get_ref()))?;
                PersistenceMode::Rewrite { cookie }
            }
            Mode::Insert => PersistenceMode::Insert(self.inserted(file, pool, attributes)?),
            Mode::Hash => {
                let what = "mode \"hash\" without hash, allowed: client, path, header NAME, cookie NAME";
                self.needed(&file.hash, &file.mode, what)?;
                PersistenceMode::Hash(hash?)
            }
        };
        Some(Persistence { mode, strict: strict.unwrap_or(false) })
    }

    /// `value`, or `what` is wrong at `mode`.
    fn needed<'a>(
        &mut self,
        value: &'a Option<Spanned<String>>,
        mode: &Spanned<String>,
        what: &str,
    ) -> Option<&'a Spanned<String>> {
        if value.is_none() {
            self.at(mode, what);
        }
        value.as_ref()
    }

    fn keys_of_other_modes(&mut self, file: &raw::Persistence, mode: Mode) {
        let raw::Persistence { cookie, hash, path, domain, secure, http_only, same_site, max_age, .. } = file;
        self.only_with(&[Mode::Rewrite, Mode::Insert], mode, "cookie", cookie);
        self.only_with(&[Mode::Hash], mode, "hash", hash);
        self.only_with(&[Mode::Insert], mode, "path", path);
        self.only_with(&[Mode::Insert], mode, "domain", domain);
        self.only_with(&[Mode::Insert], mode, "secure", secure);
        self.only_with(&[Mode::Insert], mode, "http_only", http_only);
        self.only_with(&[Mode::Insert], mode, "same_site", same_site);
        self.only_with(&[Mode::Insert], mode, "max_age", max_age);
    }

    fn only_with<T>(&mut self, modes: &[Mode], mode: Mode, key: &str, value: &Option<Spanned<T>>) {
        if let Some(value) = value
            && !modes.contains(&mode)
        {
            let modes: Vec<_> = modes.iter().map(|mode| format!("{:?}", mode.name())).collect();
            let (mode, modes) = (mode.name(), modes.join(" or "));
            self.at(value, format!("{key} with mode {mode:?}, allowed is it only with mode {modes}"));
        }
    }

    /// An inserted cookie that has no name yet.
    fn attributes(&mut self, file: &raw::Persistence) -> InsertedCookie {
        let path = file.path.as_ref();
        let path = path.and_then(|path| self.take(path, syntax::cookie_path(path.get_ref())));
        let domain = file.domain.as_ref();
        let domain = domain.and_then(|domain| self.take(domain, syntax::cookie_domain(domain.get_ref())));
        let same_site = file.same_site.as_ref();
        let same_site =
            same_site.and_then(|text| self.one_of("same_site", text, SameSite::ALL, SameSite::name));
        let max_age = file.max_age.as_ref();
        let max_age = max_age.and_then(|age| self.take(age, syntax::max_age(age.get_ref())));
        InsertedCookie {
            name: String::new(),
            path: path.unwrap_or(DEFAULT_PATH.to_owned()),
            domain,
            secure: file.secure.as_ref().is_some_and(|secure| *secure.get_ref()),
            http_only: file.http_only.as_ref().is_none_or(|http_only| *http_only.get_ref()),
            same_site,
            max_age,
        }
    }

    /// Gives `cookie` its name, and looks at what browsers and nodes demand of the whole.
    fn inserted(
        &mut self,
        file: &raw::Persistence,
        pool: &str,
        cookie: InsertedCookie,
    ) -> Option<InsertedCookie> {
        if let Some(place) = &file.same_site
            && cookie.same_site == Some(SameSite::None)
            && !cookie.secure
        {
            let what = "same_site \"none\" without secure, which browsers refuse, allowed is it only with \
                        secure = true";
            self.at(place, what);
        }
        let name = match &file.cookie {
            Some(place) => {
                let name = self.take(place, syntax::inserted_cookie(place.get_ref()))?;
                self.prefix(file, place, &cookie);
                name
            }
            None => {
                let name = format!("{MARK}-{pool}");
                if !INSERTED_NAME.contains(&name.len()) {
                    let longest = INSERTED_NAME.end();
                    let what = format!(
                        "cookie name {name:?} (the default) is too long, a name of at most {longest} \
                         characters is needed: cookie = \"...\""
                    );
                    self.at(&file.mode, what);
                    return None;
                }
                name
            }
        };
        let cookie = InsertedCookie { name, ..cookie };
        // Without a domain there is always room.
        let len = cookie.line_len();
        if let Some(domain) = &file.domain
            && len > MAX_LINE
        {
            let what = format!(
                "Set-Cookie with this domain has {len} bytes, allowed are at most {MAX_LINE}: shorten \
                 domain, path or cookie"
            );
            self.at(domain, what);
        }
        Some(cookie)
    }

    /// What a name with a prefix, which stands at `name`, demands (RFC 6265bis section 4.1.3).
    fn prefix(&mut self, file: &raw::Persistence, name: &Spanned<String>, cookie: &InsertedCookie) {
        let text = name.get_ref();
        let has = |prefix| has_cookie_prefix(text, prefix);
        if !cookie.secure && COOKIE_PREFIXES.into_iter().any(has) {
            let what = format!("cookie name {text:?} without secure, allowed is it only with secure = true");
            self.at(name, what);
        }
        if !has(HOST_PREFIX) {
            return;
        }
        if let Some(path) = &file.path
            && cookie.path != "/"
        {
            let what = format!("path {:?} with cookie name {text:?}, allowed is only \"/\"", cookie.path);
            self.at(path, what);
        }
        if let Some(domain) = &file.domain {
            self.at(domain, format!("domain with cookie name {text:?}, leave the line out"));
        }
    }

    /// Clients of a service send what one pool's node has set to another pool's, too. A node that finds an
    /// inserted cookie takes it for its own, so no other pool of the service may use that name. Rewritten
    /// names may be the same: it is one and the same session of the servers then.
    ///
    /// `pools` are those of the file, with holes where they are wrong.
    pub(super) fn cookies(&mut self, service: &raw::Service, pool_names: &Names<'_>, pools: &[Option<Pool>]) {
        let mut reached = vec![false; pools.len()];
        let mut taken: HashMap<&str, &Pool> = HashMap::new();
        for place in service.route.iter().flat_map(|route| route.get_ref().pools()) {
            let Some(&index) = pool_names.get(place.get_ref().as_str()) else { continue };
            if std::mem::replace(&mut reached[index], true) {
                continue;
            }
            let Some(pool) = &pools[index] else { continue };
            let Some(cookie) = cookie(pool) else { continue };
            let other = *taken.entry(cookie).or_insert(pool);
            // The first pool with a name stands for all: if it does not insert, none before this one did.
            if other.name != pool.name && (inserts(other) || inserts(pool)) {
                let what = format!(
                    "pool {:?} uses cookie {cookie:?} as pool {:?} does, and service {:?} reaches both, \
                     allowed is the same name only if both have mode {:?}",
                    pool.name,
                    other.name,
                    service.name.get_ref(),
                    Mode::Rewrite.name()
                );
                self.at(place, what);
            }
        }
    }
}

/// The name of the cookie that the nodes of `pool` write.
fn cookie(pool: &Pool) -> Option<&str> {
    match &pool.persistence.as_ref()?.mode {
        PersistenceMode::Rewrite { cookie } => Some(cookie),
        PersistenceMode::Insert(cookie) => Some(&cookie.name),
        PersistenceMode::Hash(_) => None,
    }
}

fn inserts(pool: &Pool) -> bool {
    matches!(&pool.persistence, Some(Persistence { mode: PersistenceMode::Insert(_), .. }))
}
