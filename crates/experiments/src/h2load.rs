//! Runs h2load on a client and parses its output.
//!
//! h2load ends successfully whatever its requests come to, and speaks HTTP/1.1 with a server that does not offer HTTP/2. So
//! its output is the measurement only if it says that all was as it should be.

use std::net::SocketAddr;
use std::time::Duration;

use switchback_lab::{Error, Host, Result};

/// Time that h2load may take beyond the load, for connecting and printing.
const SLACK: Duration = Duration::from_secs(15);

/// The parameters of h2load, with one thread: GET requests for one document over TLS.
#[derive(Clone, Debug)]
pub(super) struct Load<'a> {
    pub(super) server: SocketAddr,
    pub(super) url: &'a str,
    /// Length of the document, in bytes.
    pub(super) len: usize,
    pub(super) connections: u32,
    /// Number of concurrent streams of each connection.
    pub(super) streams: u32,
    pub(super) duration: Duration,
}

impl Load<'_> {
    /// Number of requests that the server has answered in that time; an error if one fails, or if a response has another
    /// status than 2xx or another length.
    pub(super) fn run(&self, client: &Host) -> Result<u64> {
        let words = [
            "h2load".to_owned(),
            format!("--clients={}", self.connections),
            format!("--max-concurrent-streams={}", self.streams),
            format!("--duration={}", self.duration.as_secs()),
            format!("--connect-to={}", self.server),
            self.url.to_owned(),
        ];
        self.parse(&client.run_within(SLACK + self.duration, words)?.success()?)
    }

    fn parse(&self, text: &str) -> Result<u64> {
        let lines: Vec<&str> = text.lines().filter(|line| !line.contains("progress: ")).collect();
        let unexpected = || Error::Invalid(format!("unexpected output of h2load: {:?}", lines.join("\n")));
        self.try_parse(text).ok_or_else(unexpected)
    }

    fn try_parse(&self, text: &str) -> Option<u64> {
        let after = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix)).map(str::trim);
        // "h2"
        let protocol = after("Application protocol:")?;
        // "500 total, 900 started, 500 done, 500 succeeded, 0 failed, 0 errored, 0 timeout"
        let list = after("requests:")?;
        let [succeeded, failed, errored, timeout] =
            ["succeeded", "failed", "errored", "timeout"].map(|kind| count(list, kind));
        // "500 2xx, 0 3xx, 0 4xx, 0 5xx"
        let statuses = after("status codes:")?;
        let good = count(statuses, "2xx")?;
        let others = ["3xx", "4xx", "5xx"].map(|class| count(statuses, class));
        // "1.20MB (1256112) total, 60.00KB (61440) headers (space savings 90.00%), 48.83KB (50000) data"
        let data = after("traffic:")?.strip_suffix(") data")?.rsplit_once('(')?.1.parse::<u64>().ok()?;
        let requests = succeeded?;
        // Heads and bodies of the requests that the end of the load has left open may have come too.
        let most = requests + u64::from(self.connections * self.streams);
        let len = self.len as u64;
        let is_good = protocol == "h2"
            && [failed, errored, timeout] == [Some(0); 3]
            && others == [Some(0); 3]
            && requests > 0
            && (requests..=most).contains(&good)
            && (requests * len..=most * len).contains(&data);
        is_good.then_some(requests)
    }
}

/// The number before this word, in a list such as `500 done, 0 failed`.
fn count(list: &str, word: &str) -> Option<u64> {
    list.split(", ").find_map(|part| part.strip_suffix(word))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "starting benchmark...
spawning thread #0: 4 total client(s). Timing-based test with 0s of warm-up time and 1s of main duration for measurements.
Warm-up started for thread #0.
progress: 25% of clients started
Main benchmark duration is started for thread #0.
TLS Protocol: TLSv1.3
Cipher: TLS_AES_128_GCM_SHA256
Server Temp Key: X25519 253 bits
Application protocol: h2
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 1.01s, 31663.00 req/s, 10.21MB/s
requests: 31663 total, 32063 started, 31663 done, 31663 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 31663 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 10.21MB (10702094) total, 5.71MB (5985122) headers (space savings 39.55%), 3.05MB (3200600) data
                     min         max         mean         sd        +/- sd
time for request:      940us     48.95ms     12.38ms      5.73ms    81.73%
";

    fn parse(text: &str) -> Result<u64> {
        let server = ([192, 0, 2, 10], 443).into();
        let url = "https://shop.example.com/small";
        let duration = Duration::from_secs(1);
        Load { server, url, len: 100, connections: 4, streams: 100, duration }.parse(text)
    }

    #[test]
    fn a_load_without_errors_is_read() {
        assert_eq!(parse(GOOD).expect("h2load's own words"), 31_663);
    }

    #[test]
    fn anything_but_expected_responses_is_an_error_that_shows_it() {
        let nothing = "finished in 1.01s, 0.00 req/s, 0B/s
requests: 0 total, 0 started, 0 done, 0 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 0 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 0B (0) total, 0B (0) headers (space savings 0.00%), 0B (0) data
";
        let cases = [
            String::new(),
            nothing.to_owned(),
            format!("Application protocol: h2\n{nothing}"),
            GOOD.replace("protocol: h2", "protocol: http/1.1"),
            GOOD.replace("0 failed", "1 failed"),
            GOOD.replace("0 errored", "400 errored"),
            GOOD.replace("0 timeout", "1 timeout"),
            GOOD.replace("31663 2xx, 0 3xx", "31662 2xx, 1 3xx"),
            GOOD.replace("31663 2xx, 0 3xx", "31663 2xx, 1 3xx"),
            GOOD.replace("31663 2xx", "32064 2xx"),
            // Shorter and longer bodies.
            GOOD.replace("(3200600) data", "(3166299) data"),
            GOOD.replace("(3200600) data", "(3206301) data"),
        ];
        for text in cases {
            let error = parse(&text).expect_err(&text).to_string();
            assert!(error.contains("unexpected output of h2load") && !error.contains("progress"), "{error}");
        }
    }
}
