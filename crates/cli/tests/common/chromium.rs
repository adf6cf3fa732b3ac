//! Headless Chromium as a client.

use std::time::Duration;

use switchback_lab::Host;

use super::Result;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Loads a page with a fresh profile, and returns what its document has become.
pub fn dump_dom(client: &Host, profile: &str, url: &str) -> Result<String> {
    dump_dom_with(client, profile, url, &[])
}

/// Likewise, with more options.
pub fn dump_dom_with(client: &Host, profile: &str, url: &str, options: &[&str]) -> Result<String> {
    let profile = format!("--user-data-dir={profile}");
    let mut words = vec!["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"];
    words.extend(["--no-first-run", "--disable-background-networking", "--disable-component-update"]);
    words.extend(["--disable-sync", "--disable-dev-shm-usage", "--timeout=30000", &profile]);
    words.extend(options);
    words.extend(["--dump-dom", url]);
    Ok(client.run_within(TIMEOUT, words)?.success()?)
}
